-- Threads: conversations that other programs keep under names of their own.

-- name: bindings_from
-- Which sessions the keys in a range lead to; a page at a time.
SELECT key, session_no FROM bindings
WHERE profile = :profile AND key > :after AND key < :beyond ORDER BY key LIMIT :limit;
