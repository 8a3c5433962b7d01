-- What a running turn is expected to use. A budget counts it as used until the turn has ended.
CREATE TABLE reservations (
    turn_id       TEXT NOT NULL,
    profile       TEXT NOT NULL,
    scope         TEXT NOT NULL,
    tokens        INTEGER NOT NULL CHECK (tokens >= 0),
    cost_microusd INTEGER NOT NULL CHECK (cost_microusd >= 0),
    PRIMARY KEY (turn_id, scope)
);
CREATE INDEX reservations_by_scope ON reservations (profile, scope);
