-- What truly differs between the two databases.

-- name: has_migrations
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations';

-- name: lock_key
-- One writer at a time: the key is locked already.
SELECT 1;
