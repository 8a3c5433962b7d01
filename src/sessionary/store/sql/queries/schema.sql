-- Migrations and the store's own facts.

-- name: create_migrations
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       TEXT PRIMARY KEY,
    checksum   TEXT NOT NULL,
    applied_at BIGINT NOT NULL
);

-- name: list_migrations
SELECT name, checksum FROM schema_migrations ORDER BY name;

-- name: record_migration
INSERT INTO schema_migrations (name, checksum, applied_at) VALUES (:name, :checksum, :applied_at);

-- name: set_meta_once
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;

-- name: set_meta
INSERT INTO meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: get_meta
SELECT value FROM meta WHERE name = :name;

-- name: count_everything
SELECT
    (SELECT COUNT(*) FROM sessions WHERE folder <> 'gone'),
    (SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL AND folder <> 'gone'),
    (SELECT COUNT(*) FROM entries),
    (SELECT COUNT(*) FROM turns),
    (SELECT COUNT(*) FROM arrivals WHERE state = 'waiting'),
    (SELECT COUNT(*) FROM deliveries WHERE state IN ('waiting', 'sending')),
    (SELECT COUNT(*) FROM blobs),
    (SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM blobs);

-- name: count_backlog
-- What is under way: read from small partial indexes, whatever the size of the store.
SELECT
    (SELECT COUNT(*) FROM arrivals WHERE state = 'waiting'),
    (SELECT COUNT(*) FROM turns WHERE state = 'running' AND lease_until < {{never}}),
    (SELECT COUNT(*) FROM deliveries WHERE state IN ('waiting', 'sending'));
