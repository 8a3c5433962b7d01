-- Looking after a record of years: erasing a person, packing what is old.

-- The receipts. The person is known only by a hash.
CREATE TABLE erasures (
    id      TEXT NOT NULL PRIMARY KEY,
    profile TEXT NOT NULL,
    at      INTEGER NOT NULL,
    receipt TEXT NOT NULL
);
CREATE INDEX erasures_by_profile ON erasures (profile, at);

-- Entries that are being written anew in this transaction; empty outside of it.
CREATE TABLE rewriting (
    entry_no INTEGER NOT NULL PRIMARY KEY
);

DROP TRIGGER entries_leave_only_by_purge;
CREATE TRIGGER entries_leave_only_by_purge BEFORE DELETE ON entries
WHEN (SELECT purged_at FROM sessions WHERE no = OLD.entry_no >> 24) IS NULL
    AND NOT EXISTS (SELECT 1 FROM rewriting e WHERE e.entry_no = OLD.entry_no)
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;

-- Messages of a session that has been quiet for long, compressed together. Their entries stay in the
-- log and say in which pack their words are.
CREATE TABLE packs (
    no         INTEGER PRIMARY KEY,
    session_no INTEGER NOT NULL REFERENCES sessions (no),
    first_seq  INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL CHECK (last_seq >= first_seq),
    size       INTEGER NOT NULL,
    data       BLOB NOT NULL
);
CREATE INDEX packs_by_session ON packs (session_no, last_seq);
