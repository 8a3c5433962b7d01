-- Erasing a person: the one way besides a purge in which words leave the log.

-- The receipts. The person is known only by a hash.
CREATE TABLE erasures (
    id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile TEXT COLLATE "C" NOT NULL,
    at      BIGINT NOT NULL,
    receipt TEXT COLLATE "C" NOT NULL
);
CREATE INDEX erasures_by_profile ON erasures (profile, at);

-- Entries whose words are being taken out in this transaction; empty outside of it.
CREATE TABLE erasing (
    entry_no BIGINT NOT NULL PRIMARY KEY
);

CREATE OR REPLACE FUNCTION entries_leave_only_by_purge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT purged_at FROM sessions WHERE no = OLD.entry_no >> 24) IS NULL
        AND NOT EXISTS (SELECT 1 FROM erasing e WHERE e.entry_no = OLD.entry_no) THEN
        RAISE EXCEPTION 'the log is append-only';
    END IF;
    RETURN OLD;
END $$;
