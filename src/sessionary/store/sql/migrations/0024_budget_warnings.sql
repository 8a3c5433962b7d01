-- The warnings about a budget: each threshold of a scope is reported once in a period, by whichever process passes it.
CREATE TABLE budget_warnings (
    profile   TEXT COLLATE "C" NOT NULL,
    scope     TEXT COLLATE "C" NOT NULL,
    period    TEXT COLLATE "C" NOT NULL,
    threshold BIGINT NOT NULL CHECK (threshold > 0),
    warned_at BIGINT NOT NULL,
    PRIMARY KEY (profile, scope, period, threshold)
);
