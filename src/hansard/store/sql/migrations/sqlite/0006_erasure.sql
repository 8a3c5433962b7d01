-- Erasing a person: the one way besides a purge in which words leave the log.

-- The receipts. The person is known only by a hash.
CREATE TABLE erasures (
    id      TEXT NOT NULL PRIMARY KEY,
    profile TEXT NOT NULL,
    at      INTEGER NOT NULL,
    receipt TEXT NOT NULL
);
CREATE INDEX erasures_by_profile ON erasures (profile, at);

-- Entries whose words are being taken out in this transaction; empty outside of it.
CREATE TABLE erasing (
    entry_no INTEGER NOT NULL PRIMARY KEY
);

DROP TRIGGER entries_leave_only_by_purge;
CREATE TRIGGER entries_leave_only_by_purge BEFORE DELETE ON entries
WHEN (SELECT purged_at FROM sessions WHERE no = OLD.entry_no >> 24) IS NULL
    AND NOT EXISTS (SELECT 1 FROM erasing e WHERE e.entry_no = OLD.entry_no)
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;
