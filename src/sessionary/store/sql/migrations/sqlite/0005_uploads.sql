-- Files on their way into the record, and lists by source.

-- Bytes that a profile has brought in. They stay until an entry refers to them, or for a week.
CREATE TABLE uploads (
    profile     TEXT NOT NULL,
    hash        TEXT NOT NULL REFERENCES blobs (hash),
    uploaded_at INTEGER NOT NULL,
    PRIMARY KEY (profile, hash)
);
CREATE INDEX uploads_by_hash ON uploads (hash);
CREATE INDEX uploads_by_time ON uploads (uploaded_at);

CREATE INDEX sessions_by_shelf ON sessions (profile, shelf, platform);
