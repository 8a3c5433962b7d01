"""Lets many tests use one PostgreSQL database in turn: deleting its rows is cheaper than a new database."""

import psycopg

# Also restarts the sequences at 1, so that tests know which numbers come. TRUNCATE makes new files for
# every table and index: while the tables are small, deleting the few rows of a test is quicker.
DELETE_ALL_ROWS = """
DO $$ DECLARE filled regclass[]; largest bigint; each regclass; BEGIN
    SELECT array_agg(oid::regclass), max(pg_relation_size(oid)) INTO filled, largest FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        AND relname NOT IN ('schema_migrations', 'meta') AND pg_relation_size(oid) > 0;
    IF largest > 65536 THEN
        EXECUTE 'TRUNCATE ' || array_to_string(filled, ', ') || ' CASCADE';
    ELSIF largest > 0 THEN
        SET LOCAL session_replication_role = replica;  -- no triggers and no foreign keys
        FOREACH each IN ARRAY filled LOOP
            EXECUTE 'DELETE FROM ' || each;
        END LOOP;
    END IF;
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false)
    FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL;
    DELETE FROM meta WHERE name NOT IN ('store_id', 'redaction_salt');
END $$
"""


def delete_all_rows(url: str) -> str:
    """Delete every row of a database with our schema; return its URL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DELETE_ALL_ROWS)
    return url
