-- What a copy of a whole store needs besides its rows.

-- name: late_parents
-- Sessions whose parent has a higher number than they have: rows come in the order of numbers.
SELECT no, parent_no, lineage FROM sessions WHERE parent_no > no AND no > :after ORDER BY no LIMIT :limit;

-- name: set_parent
UPDATE sessions SET parent_no = :parent_no, lineage = :lineage WHERE no = :no;

-- name: has_content
SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM projects)
    OR EXISTS (SELECT 1 FROM arrivals) OR EXISTS (SELECT 1 FROM feed) OR EXISTS (SELECT 1 FROM deliveries)
    OR EXISTS (SELECT 1 FROM schedules) OR EXISTS (SELECT 1 FROM permits);

-- name: count_running
SELECT COUNT(*) FROM turns WHERE state = 'running' AND lease_until < {{never}};

-- name: delete_meta
DELETE FROM meta WHERE name = :name;

-- name: blob_sizes
SELECT hash, size FROM blobs WHERE hash > :after ORDER BY hash LIMIT :limit;

-- name: count_content
SELECT (SELECT COUNT(*) FROM sessions WHERE folder <> 'gone'), (SELECT COUNT(*) FROM entries);
