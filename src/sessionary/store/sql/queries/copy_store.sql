-- What a copy of a whole store needs besides its rows.

-- name: late_parents
-- Sessions whose parent has a higher number than they have: rows come in the order of numbers.
SELECT no, parent_no, lineage FROM sessions WHERE parent_no > no AND no > :after ORDER BY no LIMIT :limit;

-- name: set_parent
UPDATE sessions SET parent_no = :parent_no, lineage = :lineage WHERE no = :no;

-- name: has_content
SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM projects)
    OR EXISTS (SELECT 1 FROM arrivals) OR EXISTS (SELECT 1 FROM feed) OR EXISTS (SELECT 1 FROM deliveries)
    OR EXISTS (SELECT 1 FROM schedules) OR EXISTS (SELECT 1 FROM permits)
    OR EXISTS (SELECT 1 FROM checkpoint_threads) OR EXISTS (SELECT 1 FROM memory_items);

-- name: count_running
SELECT COUNT(*) FROM turns WHERE state = 'running' AND lease_until < {{never}};

-- name: delete_meta
DELETE FROM meta WHERE name = :name;

-- name: copy_sizes_blobs
SELECT size FROM blobs WHERE hash > :after_hash ORDER BY hash LIMIT :limit;

-- name: copy_sizes_checkpoints
SELECT length(body) + length(metadata) FROM checkpoints
WHERE (namespace_no, id) > (:after_namespace_no, :after_id) ORDER BY namespace_no, id LIMIT :limit;

-- name: copy_sizes_checkpoint_values
SELECT length(body) FROM checkpoint_values
WHERE (namespace_no, name) > (:after_namespace_no, :after_name) ORDER BY namespace_no, name LIMIT :limit;

-- name: copy_sizes_checkpoint_writes
SELECT length(body) FROM checkpoint_writes
WHERE (namespace_no, checkpoint_id, task_id, idx) > (:after_namespace_no, :after_checkpoint_id, :after_task_id, :after_idx)
ORDER BY namespace_no, checkpoint_id, task_id, idx LIMIT :limit;

-- name: copy_sizes_stored_runs
SELECT octet_length(run) FROM stored_runs
WHERE (session_no, sdk) > (:after_session_no, :after_sdk) ORDER BY session_no, sdk LIMIT :limit;

-- name: count_content
SELECT (SELECT COUNT(*) FROM sessions WHERE folder <> 'gone'), (SELECT COUNT(*) FROM entries);
