-- What truly differs between the two databases.

-- name: has_migrations
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations';

-- name: lock_key
-- One writer at a time: the key is locked already.
SELECT 1;

-- name: lock_session
-- The one writer holds every row already.
SELECT no FROM sessions WHERE id = :id AND profile = :profile AND shelf <> 'gone';

-- name: lock_session_no
SELECT no FROM sessions WHERE no = :no;

-- name: lock_dead_turn
SELECT id FROM turns WHERE id = :id AND state = 'running' AND lease_until < :now;

-- name: server_time
-- A file has no clock of its own.
SELECT NULL;

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
