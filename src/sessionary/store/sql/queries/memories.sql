-- The long-term store of graphs. An item that has expired is not there, whether it was deleted already or not.

-- name: memory_columns
no, namespace, key, value, created_at, updated_at, ttl_micros

-- name: is_live_memory
(expires_at IS NULL OR expires_at > :now)

-- name: get_memory
SELECT {{memory_columns}} FROM memory_items
WHERE profile = :profile AND namespace = :namespace AND key = :key AND {{is_live_memory}};

-- name: page_of_memories
SELECT {{memory_columns}} FROM memory_items
WHERE profile = :profile AND (namespace, no) > (:after_namespace, :after_no) AND namespace < :beyond
    AND {{is_live_memory}}
ORDER BY namespace, no LIMIT :limit;

-- name: page_of_memory_namespaces
-- Each namespace once: the items of one are passed over without being read.
WITH RECURSIVE names (namespace) AS (
    SELECT (
        SELECT namespace FROM memory_items
        WHERE profile = :profile AND namespace > :after AND namespace < :beyond AND {{is_live_memory}}
        ORDER BY namespace LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT i.namespace FROM memory_items i
        WHERE i.profile = :profile AND i.namespace > names.namespace AND i.namespace < :beyond AND {{is_live_memory}}
        ORDER BY i.namespace LIMIT 1
    )
    FROM names WHERE names.namespace IS NOT NULL
)
SELECT namespace FROM names WHERE namespace IS NOT NULL LIMIT :limit;

-- name: vectors_of_memories
SELECT item_no, vector FROM memory_vectors WHERE item_no {{among_numbers}} ORDER BY item_no, position;

-- name: put_memory
INSERT INTO memory_items (profile, namespace, key, value, created_at, updated_at, ttl_micros, expires_at)
VALUES (:profile, :namespace, :key, :value, :now, :now, :ttl_micros, :expires_at)
ON CONFLICT (profile, namespace, key) DO UPDATE SET
    value = excluded.value, updated_at = excluded.updated_at,
    ttl_micros = excluded.ttl_micros, expires_at = excluded.expires_at
RETURNING no;

-- name: put_memory_vector
INSERT INTO memory_vectors (item_no, position, vector) VALUES (:item_no, :position, :vector);

-- name: find_memory
SELECT no, expires_at FROM memory_items WHERE profile = :profile AND namespace = :namespace AND key = :key;

-- name: expired_memories
SELECT no FROM memory_items WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit;

-- name: refresh_memory
UPDATE memory_items SET expires_at = :expires_at WHERE no = :no;

-- name: delete_memory_vectors
DELETE FROM memory_vectors WHERE item_no {{among_numbers}};

-- name: delete_memories
DELETE FROM memory_items WHERE no {{among_numbers}};
