-- The web: who may come in over HTTP, and what was answered to whom.

-- A program's right to use the HTTP interface. Only a hash of the token is kept.
CREATE TABLE tokens (
    id         TEXT NOT NULL PRIMARY KEY,
    profile    TEXT NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    scope      TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
);
CREATE INDEX tokens_by_profile ON tokens (profile, created_at);

-- A browser that was let in. Only a hash of its cookie is kept.
CREATE TABLE logins (
    id         TEXT NOT NULL PRIMARY KEY,
    profile    TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    began_at   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER
);
CREATE INDEX logins_by_profile ON logins (profile, began_at);
CREATE INDEX logins_by_end ON logins (expires_at);

-- A link that lets one browser in once; using it deletes it.
CREATE TABLE login_links (
    hash       TEXT NOT NULL PRIMARY KEY,
    profile    TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);

-- The password of a profile, as scrypt made it.
CREATE TABLE passwords (
    profile TEXT NOT NULL PRIMARY KEY,
    hash    TEXT NOT NULL,
    set_at  INTEGER NOT NULL
);
CREATE TABLE login_guards (
    profile      TEXT NOT NULL PRIMARY KEY,
    wrong        INTEGER NOT NULL CHECK (wrong >= 0),
    locked_until INTEGER NOT NULL
);

-- Requests that changed something, by the key their caller chose: a repeat gets the same answer.
CREATE TABLE requests (
    profile     TEXT NOT NULL,
    idem        TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    session_id  TEXT,
    answered_at INTEGER NOT NULL,
    PRIMARY KEY (profile, idem)
);
CREATE INDEX requests_by_time ON requests (answered_at);
CREATE INDEX requests_by_session ON requests (session_id) WHERE session_id IS NOT NULL;
