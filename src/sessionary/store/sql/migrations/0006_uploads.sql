--@ sqlite name 0005_uploads
-- Files on their way into the record, and lists by source.

-- Bytes that a profile has brought in. They stay until an entry refers to them, or for a week.
CREATE TABLE uploads (
    profile     TEXT COLLATE "C" NOT NULL,
    hash        TEXT COLLATE "C" NOT NULL REFERENCES blobs (hash),
    uploaded_at BIGINT NOT NULL,
    PRIMARY KEY (profile, hash)
);
CREATE INDEX uploads_by_hash ON uploads (hash);
CREATE INDEX uploads_by_time ON uploads (uploaded_at);

CREATE INDEX sessions_by_shelf ON sessions (profile, shelf, platform);
