-- The engine: homes, access, budgets, schedules.

-- A platform's default channel.
CREATE TABLE homes (
    profile   TEXT NOT NULL,
    platform  TEXT NOT NULL,
    chat_id   TEXT NOT NULL,
    thread_id TEXT,
    name      TEXT,
    set_at    INTEGER NOT NULL,
    PRIMARY KEY (profile, platform)
);

-- Who may reach the agent besides those whom the configuration names.
CREATE TABLE permits (
    profile   TEXT NOT NULL,
    platform  TEXT NOT NULL,
    person_id TEXT NOT NULL,
    name      TEXT,
    given_at  INTEGER NOT NULL,
    given_by  TEXT NOT NULL,
    PRIMARY KEY (profile, platform, person_id)
);

-- A stranger's request to be let in. The code itself is not kept.
CREATE TABLE pairings (
    profile    TEXT NOT NULL,
    platform   TEXT NOT NULL,
    person_id  TEXT NOT NULL,
    name       TEXT,
    code_hash  TEXT NOT NULL,
    asked_at   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (profile, platform, person_id)
);
CREATE TABLE pairing_guards (
    profile      TEXT NOT NULL PRIMARY KEY,
    wrong_codes  INTEGER NOT NULL,
    locked_until INTEGER NOT NULL
);

-- What a person, channel or schedule has used in a period; a budget is compared with it before a turn.
CREATE TABLE spending (
    profile       TEXT NOT NULL,
    scope         TEXT NOT NULL,
    period        TEXT NOT NULL,
    tokens        INTEGER NOT NULL CHECK (tokens >= 0),
    cost_microusd INTEGER NOT NULL CHECK (cost_microusd >= 0),
    PRIMARY KEY (profile, scope, period)
);

CREATE TABLE schedules (
    no            INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    profile       TEXT NOT NULL,
    name          TEXT NOT NULL,
    timing        TEXT NOT NULL,
    zone          TEXT NOT NULL,
    prompt        TEXT NOT NULL,
    agent         TEXT,
    deliver_to    TEXT NOT NULL,
    origin        TEXT,
    grace_seconds INTEGER NOT NULL CHECK (grace_seconds >= 0),
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    created_at    INTEGER NOT NULL,
    removed_at    INTEGER,
    next_at       INTEGER
);
CREATE UNIQUE INDEX one_schedule_per_name ON schedules (profile, name) WHERE removed_at IS NULL;
CREATE INDEX schedules_due ON schedules (next_at) WHERE removed_at IS NULL AND paused = 0 AND next_at IS NOT NULL;

-- One row per occurrence: whoever inserts it runs it.
CREATE TABLE runs (
    schedule_no INTEGER NOT NULL REFERENCES schedules (no),
    due_at      INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'skipped')),
    holder      TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    began_at    INTEGER NOT NULL,
    ended_at    INTEGER,
    session_no  INTEGER REFERENCES sessions (no),
    reason      TEXT,
    PRIMARY KEY (schedule_no, due_at)
);
CREATE INDEX runs_open ON runs (lease_until) WHERE state = 'running';

-- The title that a person wants for the next session of a key.
CREATE TABLE next_titles (
    profile TEXT NOT NULL,
    key     TEXT NOT NULL,
    title   TEXT NOT NULL,
    PRIMARY KEY (profile, key)
);
