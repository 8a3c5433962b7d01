-- Threads: conversations that other programs keep under names of their own.

-- name: bindings_from
-- Which sessions the keys in a range lead to; a page at a time.
SELECT key, session_no FROM bindings
WHERE profile = :profile AND key > :after AND key < :beyond ORDER BY key LIMIT :limit;

-- name: open_thread
-- The session that a key leads to, while it is open.
SELECT s.no, s.id FROM bindings b JOIN sessions s ON s.no = b.session_no
WHERE b.profile = :profile AND b.key = :key AND s.ended_at IS NULL AND s.folder <> 'gone';
