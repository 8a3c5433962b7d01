-- What truly differs between the two databases.

-- name: has_migrations
SELECT 1 FROM pg_tables WHERE tablename = 'schema_migrations' AND schemaname = current_schema();

-- name: lock_key
-- Before the binding is read: PostgreSQL lets two readers see no binding. Ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(:profile || '/' || :key, 0));

-- name: lock_session
-- Hold a session's row until the transaction ends; the first statement of whatever depends on it.
SELECT no FROM sessions WHERE id = :id AND profile = :profile AND shelf <> 'gone' FOR NO KEY UPDATE;

-- name: lock_session_no
-- The same by its number, whatever has become of it.
SELECT no FROM sessions WHERE no = :no FOR NO KEY UPDATE;

-- name: lock_dead_turn
-- A turn whose lease ran out and stays so: whoever renews it waits, and finds that it has ended.
SELECT id FROM turns WHERE id = :id AND state = 'running' AND lease_until < :now FOR UPDATE;

-- name: server_time
-- What time the server has, whoever asks.
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
