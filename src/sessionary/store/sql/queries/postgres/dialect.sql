-- What truly differs between the two databases.

-- name: has_migrations
SELECT 1 FROM pg_tables WHERE tablename = 'schema_migrations' AND schemaname = current_schema();

-- name: server_time
-- The time of the server.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT);

-- name: check_references
SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype = 'f' AND NOT convalidated;

-- name: table_sizes
SELECT relname, pg_total_relation_size(oid), reltuples::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY 2 DESC;

-- name: listed_name
-- By what a session is listed; nothing but A to Z is lowered.
lower(COALESCE(s.title, s.preview, '') COLLATE "C")

-- name: among_numbers
= ANY (CAST(:numbers AS BIGINT[]))

-- name: among_names
-- The names come as a list in JSON.
IN (SELECT jsonb_array_elements_text(CAST(:names AS jsonb)))

-- name: highest_titles
-- Of the numbered titles with one beginning the last with each number of digits.
SELECT (
    SELECT title FROM sessions
    WHERE profile = :profile AND length(title) = length(:beginning::text) + digits AND title <> replace(title, ' #', '')
        AND title >= :beginning::text || '0' AND title < :beginning::text || ':'
        AND substr(title, length(:beginning::text) + 1) !~ '[^0-9]'
    ORDER BY title DESC LIMIT 1
)
FROM generate_series(:fewest::int, :most::int) AS digits;

-- name: total_columns
-- The columns of a UsageTotal after its group.
COUNT(*), COUNT(*) - COUNT(u.cost_microusd), COUNT(CASE WHEN u.cost_status = 'estimated' THEN 1 END),
CAST(LEAST({{largest_sum}}, COALESCE(SUM(u.input_tokens), 0)) AS BIGINT),
CAST(LEAST({{largest_sum}}, COALESCE(SUM(u.output_tokens), 0)) AS BIGINT),
CAST(LEAST({{largest_sum}}, COALESCE(SUM(u.cache_read_tokens), 0)) AS BIGINT),
CAST(LEAST({{largest_sum}}, COALESCE(SUM(u.cache_write_tokens), 0)) AS BIGINT),
CAST(LEAST({{largest_sum}}, COALESCE(SUM(u.reasoning_tokens), 0)) AS BIGINT),
CAST(LEAST({{largest_sum}}, COALESCE(SUM(u.cost_microusd), 0)) AS BIGINT)

-- name: advance_with_entry
-- All that most appends need, at once: the server is asked one time.
WITH advanced AS ({{advance}}), logged AS (
    INSERT INTO entries (entry_no, kind, role, at, turn_id, body)
    SELECT no << 24 | last_seq, 'message', :role, :at, NULLIF(:turn_id, ''), :body FROM advanced
), told AS (
    INSERT INTO feed (session_no, seq, what) SELECT no, last_seq, 'entry' FROM advanced
)
SELECT no, last_seq, wants_preview FROM advanced;

-- name: begin
BEGIN;

-- name: wait_briefly
-- For the rest of this transaction no lock is waited for longer than this many milliseconds.
SET LOCAL lock_timeout = 100;

-- name: set_up_connection
-- Every query has its index. A young table has no statistics yet, a plan is kept, and reading the whole
-- table would go on when it has grown. Words that wait to be sorted into the search index are read by every
-- search: at most 128 kB of them. A transaction that waits for its process for a minute is undone: the process is frozen,
-- or its machine is gone, and others wait for its locks.
SELECT set_config('enable_seqscan', 'off', false), set_config('gin_pending_list_limit', '128', false),
    set_config('idle_in_transaction_session_timeout', '60000', false);

-- name: restart_numbers
-- The rows came with their numbers; the next one is given from behind the highest.
SELECT setval(pg_get_serial_sequence('projects', 'no'), GREATEST((SELECT MAX(no) FROM projects), 1), EXISTS (SELECT 1 FROM projects)),
    setval(pg_get_serial_sequence('sessions', 'no'), GREATEST((SELECT MAX(no) FROM sessions), 1), EXISTS (SELECT 1 FROM sessions)),
    setval(pg_get_serial_sequence('turns', 'no'), GREATEST((SELECT MAX(no) FROM turns), 1), EXISTS (SELECT 1 FROM turns)),
    setval(pg_get_serial_sequence('arrivals', 'no'), GREATEST((SELECT MAX(no) FROM arrivals), 1), EXISTS (SELECT 1 FROM arrivals)),
    setval(pg_get_serial_sequence('feed', 'position'), GREATEST((SELECT MAX(position) FROM feed), 1), EXISTS (SELECT 1 FROM feed)),
    setval(pg_get_serial_sequence('usage', 'no'), GREATEST((SELECT MAX(no) FROM usage), 1), EXISTS (SELECT 1 FROM usage)),
    setval(pg_get_serial_sequence('deliveries', 'no'), GREATEST((SELECT MAX(no) FROM deliveries), 1), EXISTS (SELECT 1 FROM deliveries)),
    setval(pg_get_serial_sequence('schedules', 'no'), GREATEST((SELECT MAX(no) FROM schedules), 1), EXISTS (SELECT 1 FROM schedules)),
    setval(pg_get_serial_sequence('questions', 'no'), GREATEST((SELECT MAX(no) FROM questions), 1), EXISTS (SELECT 1 FROM questions)),
    setval(pg_get_serial_sequence('standing_approvals', 'no'), GREATEST((SELECT MAX(no) FROM standing_approvals), 1), EXISTS (SELECT 1 FROM standing_approvals)),
    setval(pg_get_serial_sequence('checkpoint_threads', 'no'), GREATEST((SELECT MAX(no) FROM checkpoint_threads), 1), EXISTS (SELECT 1 FROM checkpoint_threads)),
    setval(pg_get_serial_sequence('checkpoint_namespaces', 'no'), GREATEST((SELECT MAX(no) FROM checkpoint_namespaces), 1), EXISTS (SELECT 1 FROM checkpoint_namespaces)),
    setval(pg_get_serial_sequence('memory_items', 'no'), GREATEST((SELECT MAX(no) FROM memory_items), 1), EXISTS (SELECT 1 FROM memory_items)),
    setval(pg_get_serial_sequence('packs', 'no'), GREATEST((SELECT MAX(no) FROM packs), 1), EXISTS (SELECT 1 FROM packs));
