-- Locks that only PostgreSQL needs.

-- name: for_update
FOR UPDATE

-- name: for_no_key_update
FOR NO KEY UPDATE

-- name: for_no_key_update_of_session
FOR NO KEY UPDATE OF s

-- name: lock_key
-- Before the binding is read: PostgreSQL lets two readers see no binding. Ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(:profile || '/' || :key, 0));

-- name: lock_session_no
-- Hold a session's row by its number, whether it was purged or not.
SELECT no FROM sessions WHERE no = :no FOR NO KEY UPDATE;
