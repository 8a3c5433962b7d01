-- Checkpoints of LangGraph: of a thread and a namespace, the newest first.

-- name: find_checkpoint_thread
-- The newest thread of a name, whether its session is over, and one of its namespaces if that exists.
SELECT t.no, n.no, t.session_no, CASE WHEN s.ended_at IS NULL THEN 0 ELSE 1 END
FROM checkpoint_threads t
LEFT JOIN checkpoint_namespaces n ON n.thread_no = t.no AND n.digest = :namespace
LEFT JOIN sessions s ON s.no = t.session_no
WHERE t.profile = :profile AND t.digest = :digest ORDER BY t.no DESC LIMIT 1;

-- name: insert_checkpoint_thread
INSERT INTO checkpoint_threads (profile, digest, name, session_no) VALUES (:profile, :digest, :name, :session_no)
RETURNING no;

-- name: insert_checkpoint_namespace
INSERT INTO checkpoint_namespaces (thread_no, digest, name) VALUES (:thread_no, :digest, :name)
ON CONFLICT (thread_no, digest) DO UPDATE SET name = excluded.name RETURNING no;

-- name: link_checkpoint_thread
UPDATE checkpoint_threads SET session_no = :session_no WHERE no = :no;

-- name: threads_of_name
SELECT no FROM checkpoint_threads WHERE profile = :profile AND digest = :digest;

-- name: threads_of_session
SELECT no FROM checkpoint_threads WHERE session_no = :session_no;

-- name: page_of_checkpoint_threads
-- The threads of a profile, those of sessions that are over left out.
SELECT t.no, t.name FROM checkpoint_threads t LEFT JOIN sessions s ON s.no = t.session_no
WHERE t.no > :after AND t.profile = :profile AND s.ended_at IS NULL ORDER BY t.no LIMIT :limit;

-- name: namespaces_of_thread
SELECT no, digest, name FROM checkpoint_namespaces WHERE thread_no = :thread_no ORDER BY no;

-- name: lock_checkpoint_namespace
-- Hold a namespace until the transaction ends: other writers into it wait.
SELECT no FROM checkpoint_namespaces WHERE no = :no {{for_update}};

-- name: checkpoint_columns
c.namespace_no, c.id, c.parent_id, c.form, c.body, c.metadata_form, c.metadata

-- name: newest_checkpoint
SELECT {{checkpoint_columns}} FROM checkpoints c WHERE c.namespace_no = :namespace_no ORDER BY c.id DESC LIMIT 1;

-- name: get_checkpoint
SELECT {{checkpoint_columns}} FROM checkpoints c WHERE c.namespace_no = :namespace_no AND c.id = :id;

-- name: has_checkpoint
SELECT 1 FROM checkpoints WHERE namespace_no = :namespace_no AND id = :id;

-- name: page_of_checkpoints
SELECT {{checkpoint_columns}} FROM checkpoints c
WHERE c.namespace_no = :namespace_no AND c.id < :before ORDER BY c.id DESC LIMIT :limit;

-- name: page_of_thread
-- The checkpoints of all namespaces of a thread together.
SELECT {{checkpoint_columns}} FROM checkpoints c
WHERE c.thread_no = :thread_no AND (c.id, c.namespace_no) < (:before, :before_no)
ORDER BY c.id DESC, c.namespace_no DESC LIMIT :limit;

-- name: checkpoint_ancestors
-- A checkpoint and what it comes from, the nearest first. A chain that leads back into itself ends there.
WITH RECURSIVE chain (id, parent_id) AS (
    SELECT id, parent_id FROM checkpoints WHERE namespace_no = :namespace_no AND id = :id
    UNION
    SELECT c.id, c.parent_id FROM chain CROSS JOIN checkpoints c
    WHERE c.namespace_no = :namespace_no AND c.id = chain.parent_id
)
SELECT id FROM chain LIMIT :limit;

-- name: checkpoints_among
SELECT {{checkpoint_columns}} FROM checkpoints c WHERE c.namespace_no = :namespace_no AND c.id {{among_names}};

-- name: checkpoint_values_among
SELECT name, form, body FROM checkpoint_values WHERE namespace_no = :namespace_no AND name {{among_names}};

-- name: checkpoint_values_there
-- The names of the values that are not empty.
SELECT name FROM checkpoint_values WHERE namespace_no = :namespace_no AND form <> 'empty' AND name {{among_names}};

-- name: checkpoint_writes_among
SELECT checkpoint_id, task_id, idx, task_path, channel, form, body FROM checkpoint_writes
WHERE namespace_no = :namespace_no AND checkpoint_id {{among_names}};

-- name: put_checkpoint
INSERT INTO checkpoints (namespace_no, id, thread_no, parent_id, run_digest, form, body, metadata_form, metadata)
VALUES (:namespace_no, :id, :thread_no, :parent_id, :run_digest, :form, :body, :metadata_form, :metadata)
ON CONFLICT (namespace_no, id) DO UPDATE SET
    parent_id = excluded.parent_id, run_digest = excluded.run_digest, form = excluded.form, body = excluded.body,
    metadata_form = excluded.metadata_form, metadata = excluded.metadata;

-- name: put_checkpoint_value
INSERT INTO checkpoint_values (namespace_no, name, form, body) VALUES (:namespace_no, :name, :form, :body)
ON CONFLICT (namespace_no, name) DO UPDATE SET form = excluded.form, body = excluded.body;

-- name: put_checkpoint_write
-- An error or an interrupt takes the place of the one before.
INSERT INTO checkpoint_writes (namespace_no, checkpoint_id, task_id, idx, task_path, channel, form, body)
VALUES (:namespace_no, :checkpoint_id, :task_id, :idx, :task_path, :channel, :form, :body)
ON CONFLICT (namespace_no, checkpoint_id, task_id, idx) DO UPDATE SET
    task_path = excluded.task_path, channel = excluded.channel, form = excluded.form, body = excluded.body;

-- name: add_checkpoint_write
-- What a task has written stays: the same write again changes nothing.
INSERT INTO checkpoint_writes (namespace_no, checkpoint_id, task_id, idx, task_path, channel, form, body)
VALUES (:namespace_no, :checkpoint_id, :task_id, :idx, :task_path, :channel, :form, :body)
ON CONFLICT (namespace_no, checkpoint_id, task_id, idx) DO NOTHING;

-- name: checkpoints_of_runs
SELECT c.namespace_no, c.id FROM checkpoints c JOIN checkpoint_threads t ON t.no = c.thread_no
WHERE c.run_digest {{among_names}} AND t.profile = :profile ORDER BY c.namespace_no, c.id;

-- name: delete_checkpoints_among
DELETE FROM checkpoints WHERE namespace_no = :namespace_no AND id {{among_names}};

-- name: delete_checkpoint_writes_among
DELETE FROM checkpoint_writes WHERE namespace_no = :namespace_no AND checkpoint_id {{among_names}};

-- name: delete_other_checkpoints
DELETE FROM checkpoints WHERE namespace_no = :namespace_no AND NOT id {{among_names}};

-- name: delete_other_checkpoint_writes
-- Those of a later checkpoint may be there before it is.
DELETE FROM checkpoint_writes
WHERE namespace_no = :namespace_no AND checkpoint_id <= :through AND NOT checkpoint_id {{among_names}};

-- name: delete_other_checkpoint_values
DELETE FROM checkpoint_values WHERE namespace_no = :namespace_no AND NOT name {{among_names}};

-- name: delete_checkpoint_namespace
DELETE FROM checkpoint_namespaces WHERE no = :namespace_no;

-- name: delete_checkpoint_thread
DELETE FROM checkpoint_threads WHERE no = :no;

-- name: copy_checkpoints
INSERT INTO checkpoints (namespace_no, id, thread_no, parent_id, run_digest, form, body, metadata_form, metadata)
SELECT CAST(:target_no AS BIGINT), id, CAST(:thread_no AS BIGINT), parent_id, run_digest, form, body, metadata_form, metadata
FROM checkpoints WHERE namespace_no = :namespace_no;

-- name: copy_checkpoint_values
INSERT INTO checkpoint_values (namespace_no, name, form, body)
SELECT CAST(:target_no AS BIGINT), name, form, body FROM checkpoint_values WHERE namespace_no = :namespace_no;

-- name: copy_checkpoint_writes
INSERT INTO checkpoint_writes (namespace_no, checkpoint_id, task_id, idx, task_path, channel, form, body)
SELECT CAST(:target_no AS BIGINT), checkpoint_id, task_id, idx, task_path, channel, form, body
FROM checkpoint_writes WHERE namespace_no = :namespace_no;

-- name: put_stored_run
INSERT INTO stored_runs (session_no, sdk, at, run) VALUES (:session_no, :sdk, :at, :run)
ON CONFLICT (session_no, sdk) DO UPDATE SET at = excluded.at, run = excluded.run;

-- name: get_stored_run
SELECT run FROM stored_runs WHERE session_no = :session_no AND sdk = :sdk;

-- name: delete_stored_run
DELETE FROM stored_runs WHERE session_no = :session_no AND sdk = :sdk;

-- name: delete_stored_runs
DELETE FROM stored_runs WHERE session_no = :session_no;
