-- What truly differs between the two databases.

-- name: has_migrations
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations';

-- name: check_integrity
PRAGMA integrity_check(20);

-- name: check_references
PRAGMA foreign_key_check;

-- name: table_sizes
SELECT name, SUM(pgsize), SUM(CASE WHEN pagetype = 'leaf' THEN ncell ELSE 0 END) FROM dbstat
GROUP BY name ORDER BY 2 DESC;

-- name: listed_name
-- By what a session is listed; nothing but A to Z is lowered.
lower(COALESCE(s.title, s.preview, ''))

-- name: among_numbers
-- The numbers come as PostgreSQL writes them, in braces; between brackets they are JSON.
IN (SELECT value FROM json_each('[' || TRIM(:numbers, '{}') || ']'))

-- name: among_names
-- The names come as a list in JSON.
IN (SELECT value FROM json_each(:names))

-- name: highest_titles
-- Of the numbered titles with one beginning the last with each number of digits.
SELECT (
    SELECT title FROM sessions INDEXED BY sessions_by_number
    WHERE profile = :profile AND length(title) = length(:beginning) + digits.value AND title <> replace(title, ' #', '')
        AND title >= :beginning || '0' AND title < :beginning || ':'
        AND substr(title, length(:beginning) + 1) NOT GLOB '*[^0-9]*'
    ORDER BY title DESC LIMIT 1
)
FROM json_each('[1,2,3,4,5,6,7,8,9]') AS digits WHERE digits.value BETWEEN :fewest AND :most;

-- name: total_columns
-- The columns of a UsageTotal after its group.
-- SQLite's SUM fails when it passes 2^63: the two halves of each number are summed by themselves.
COUNT(*), COUNT(*) - COUNT(u.cost_microusd), COUNT(CASE WHEN u.cost_status = 'estimated' THEN 1 END),
MIN({{largest_sum}}, COALESCE(SUM(u.input_tokens >> 26), 0) * 67108864 + COALESCE(SUM(u.input_tokens & 67108863), 0)),
MIN({{largest_sum}}, COALESCE(SUM(u.output_tokens >> 26), 0) * 67108864 + COALESCE(SUM(u.output_tokens & 67108863), 0)),
MIN({{largest_sum}}, COALESCE(SUM(u.cache_read_tokens >> 26), 0) * 67108864 + COALESCE(SUM(u.cache_read_tokens & 67108863), 0)),
MIN({{largest_sum}}, COALESCE(SUM(u.cache_write_tokens >> 26), 0) * 67108864 + COALESCE(SUM(u.cache_write_tokens & 67108863), 0)),
MIN({{largest_sum}}, COALESCE(SUM(u.reasoning_tokens >> 26), 0) * 67108864 + COALESCE(SUM(u.reasoning_tokens & 67108863), 0)),
MIN({{largest_sum}}, COALESCE(SUM(u.cost_microusd >> 26), 0) * 67108864 + COALESCE(SUM(u.cost_microusd & 67108863), 0))

-- name: advance_with_entry
-- All that most appends need; each statement does nothing when the one before it did nothing.
{{advance}};
INSERT INTO entries (entry_no, kind, role, at, turn_id, body)
SELECT no << 24 | last_seq, 'message', :role, :at, NULLIF(:turn_id, ''), :body FROM sessions
WHERE id = :id AND changes() = 1;
INSERT INTO feed (session_no, seq, what)
SELECT no, last_seq, 'entry' FROM sessions WHERE id = :id AND changes() = 1;
