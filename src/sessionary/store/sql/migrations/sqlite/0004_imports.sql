-- Other tools' records: how far each was read, and which session is which of theirs.

-- A file or a database that was read: what it looked like then, and where to read on.
CREATE TABLE imports (
    profile TEXT NOT NULL,
    tool  TEXT NOT NULL,
    name    TEXT NOT NULL,
    stamp   TEXT NOT NULL,
    place   INTEGER NOT NULL DEFAULT 0 CHECK (place >= 0),
    note    TEXT,
    read_at INTEGER NOT NULL,
    PRIMARY KEY (profile, tool, name)
);

-- The names by which other tools know a session.
CREATE TABLE imported (
    profile    TEXT NOT NULL,
    tool     TEXT NOT NULL,
    native_id  TEXT NOT NULL,
    session_no INTEGER NOT NULL REFERENCES sessions (no),
    PRIMARY KEY (profile, tool, native_id)
);
CREATE INDEX imported_by_session ON imported (session_no);
