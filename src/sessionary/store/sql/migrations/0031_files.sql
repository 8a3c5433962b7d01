-- Files that programs keep here by an id, to name them in messages. They stay until they are deleted or expire.
CREATE TABLE files (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile    TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL REFERENCES blobs (hash),
    name       TEXT NOT NULL,
    media_type TEXT COLLATE "C" NOT NULL,
    size       BIGINT NOT NULL CHECK (size >= 0),
    -- What the program said that it is for.
    purpose    TEXT COLLATE "C" NOT NULL,
    -- The token with which it came.
    token_id   TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
CREATE INDEX files_by_profile ON files (profile, created_at, id);
CREATE INDEX files_by_hash ON files (hash);
CREATE INDEX files_by_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;
