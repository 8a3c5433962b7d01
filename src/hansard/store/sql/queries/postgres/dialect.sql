-- What truly differs between the two databases.

-- name: has_migrations
SELECT 1 FROM pg_tables WHERE tablename = 'schema_migrations' AND schemaname = current_schema();

-- name: lock_key
-- Before the binding is read: PostgreSQL lets two readers see no binding. Ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(:profile || '/' || :key, 0));
