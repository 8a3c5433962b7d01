-- Partitions for the log of a very large store on PostgreSQL; docs/scale.md says when they help.
-- Stop every Sessionary, take a backup, then, as the owner of the tables:
--     psql -v ON_ERROR_STOP=1 -f deploy/partition.sql DATABASE
--
-- entry_no is the session's number * 2^24 + seq. A partition holds the sessions of a range of numbers,
-- that is, those opened in some stretch of time; a conversation is never in two. No query changes.
-- What is there becomes the first partition as it is: nothing is copied. Run it again to add more, in
-- time: once sessions have gone into the net (entries_rest), no partition can be made for them.
BEGIN;

DO $$
DECLARE
    -- How many sessions a partition has, and how many partitions are made ahead.
    sessions_each CONSTANT BIGINT := 10000000;
    made_ahead    CONSTANT BIGINT := 8;
    per_session   CONSTANT BIGINT := 16777216;
    last_no       BIGINT;
    upper_bound   BIGINT;
    part          BIGINT;
    part_name     TEXT;
BEGIN
    LOCK TABLE sessions, entries IN ACCESS EXCLUSIVE MODE;
    SELECT COALESCE(MAX(no), 0) INTO last_no FROM sessions;

    IF (SELECT relkind FROM pg_class WHERE oid = 'entries'::regclass) = 'r' THEN
        upper_bound := (last_no / sessions_each + 1) * sessions_each * per_session;
        DROP TRIGGER entries_never_change ON entries;
        DROP TRIGGER entries_leave_only_by_purge ON entries;
        ALTER TABLE entries RENAME TO entries_first;
        ALTER INDEX entries_pkey RENAME TO entries_first_pkey;
        ALTER INDEX marks RENAME TO entries_first_marks;
        CREATE TABLE entries (LIKE entries_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
            PARTITION BY RANGE (entry_no);
        ALTER TABLE entries ADD PRIMARY KEY (entry_no);
        CREATE INDEX marks ON entries (entry_no) WHERE kind <> 'message';
        CREATE TRIGGER entries_never_change BEFORE UPDATE ON entries
            FOR EACH ROW EXECUTE FUNCTION entries_never_change();
        CREATE TRIGGER entries_leave_only_by_purge BEFORE DELETE ON entries
            FOR EACH ROW EXECUTE FUNCTION entries_leave_only_by_purge();
        EXECUTE format(
            'ALTER TABLE entries ATTACH PARTITION entries_first FOR VALUES FROM (MINVALUE) TO (%s)',
            upper_bound
        );
        -- The net under it: no append is refused when nobody made a partition in time.
        CREATE TABLE entries_rest PARTITION OF entries DEFAULT;
    END IF;

    FOR part IN last_no / sessions_each + 1 .. last_no / sessions_each + made_ahead LOOP
        part_name := format('entries_%s', part);
        IF to_regclass(part_name) IS NULL THEN
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF entries FOR VALUES FROM (%s) TO (%s)',
                part_name, part * sessions_each * per_session, (part + 1) * sessions_each * per_session
            );
        END IF;
    END LOOP;
END $$;

COMMIT;
