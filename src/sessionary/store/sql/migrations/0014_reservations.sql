--@ sqlite name 0011_reservations
-- What a running turn is expected to use. A budget counts it as used until the turn has ended.
CREATE TABLE reservations (
    turn_id       TEXT COLLATE "C" NOT NULL,
    profile       TEXT COLLATE "C" NOT NULL,
    scope         TEXT COLLATE "C" NOT NULL,
    tokens        BIGINT NOT NULL CHECK (tokens >= 0),
    cost_microusd BIGINT NOT NULL CHECK (cost_microusd >= 0),
    PRIMARY KEY (turn_id, scope)
);
CREATE INDEX reservations_by_scope ON reservations (profile, scope);
