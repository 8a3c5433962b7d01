--@ sqlite name 0003_web
-- The web: who may come in over HTTP, and what was answered to whom.

-- A program's right to use the HTTP interface. Only a hash of the token is kept.
CREATE TABLE tokens (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile    TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    scope      TEXT COLLATE "C" NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX tokens_by_profile ON tokens (profile, created_at);

-- A browser that was let in. Only a hash of its cookie is kept.
CREATE TABLE logins (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile    TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    began_at   BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ended_at   BIGINT
);
CREATE INDEX logins_by_profile ON logins (profile, began_at);
CREATE INDEX logins_by_end ON logins (expires_at);

-- A link that lets one browser in once; using it deletes it.
CREATE TABLE login_links (
    hash       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile    TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL
);

-- The password of a profile, as scrypt made it.
CREATE TABLE passwords (
    profile TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hash    TEXT COLLATE "C" NOT NULL,
    set_at  BIGINT NOT NULL
);
CREATE TABLE login_guards (
    profile      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    wrong        BIGINT NOT NULL CHECK (wrong >= 0),
    locked_until BIGINT NOT NULL
);

-- Requests that changed something, by the key their caller chose: a repeat gets the same answer.
CREATE TABLE requests (
    profile     TEXT COLLATE "C" NOT NULL,
    idem        TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    status      BIGINT NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    session_id  TEXT COLLATE "C",
    answered_at BIGINT NOT NULL,
    PRIMARY KEY (profile, idem)
);
CREATE INDEX requests_by_time ON requests (answered_at);
CREATE INDEX requests_by_session ON requests (session_id) WHERE session_id IS NOT NULL;
