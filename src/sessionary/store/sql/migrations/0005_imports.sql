--@ sqlite name 0004_imports
-- Other tools' records: how far each was read, and which session is which of theirs.

-- A file or a database that was read: what it looked like then, and where to read on.
CREATE TABLE imports (
    profile TEXT COLLATE "C" NOT NULL,
    tool  TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    stamp   TEXT COLLATE "C" NOT NULL,
    place   BIGINT NOT NULL DEFAULT 0 CHECK (place >= 0),
    note    TEXT,
    read_at BIGINT NOT NULL,
    PRIMARY KEY (profile, tool, name)
);

-- The names by which other tools know a session.
CREATE TABLE imported (
    profile    TEXT COLLATE "C" NOT NULL,
    tool     TEXT COLLATE "C" NOT NULL,
    native_id  TEXT COLLATE "C" NOT NULL,
    session_no BIGINT NOT NULL REFERENCES sessions (no),
    PRIMARY KEY (profile, tool, native_id)
);
CREATE INDEX imported_by_session ON imported (session_no);
