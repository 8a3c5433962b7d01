-- Sessions on their way out of one store and into another.

-- name: lineage_of
SELECT id, folder, parent_no, lineage, base_seq, last_seq FROM sessions WHERE no = :no;

-- name: needed_below
-- How much of a purged session's history living ones still read; null when none came from it.
WITH RECURSIVE below (no, need, folder, inherits) AS (
    SELECT no, base_seq, folder, CASE WHEN lineage IN ('fork', 'continuation') THEN 1 ELSE 0 END
    FROM sessions WHERE parent_no = :no
    UNION
    SELECT s.no, CASE WHEN s.base_seq < below.need THEN s.base_seq ELSE below.need END, s.folder, 1
    FROM below JOIN sessions s ON s.parent_no = below.no
    WHERE below.folder = 'gone' AND below.inherits = 1 AND s.lineage IN ('fork', 'continuation')
)
SELECT MAX(CASE WHEN inherits = 1 THEN need ELSE 0 END) FROM below WHERE folder <> 'gone';

-- name: bindings_of_session
SELECT key, bound_at FROM bindings WHERE session_no = :no ORDER BY key;

-- name: page_of_ended_turns
SELECT no, id, state, epoch, first_seq, began_at, ended_at, agent, reason, partial, resumed, resume_reason,
    request_hash
FROM turns
WHERE session_no = :no AND no > :after AND state <> 'running' ORDER BY no LIMIT :limit;

-- name: page_of_usage
SELECT no, call_id, turn_id, at, model, provider, base_url, billing_mode, task, input_tokens,
    output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microusd, cost_status,
    price_source, price_version
FROM usage WHERE session_no = :no AND no > :after ORDER BY no LIMIT :limit;

-- name: find_any_session
-- A session by its id in any profile, purged or not.
SELECT s.no, s.profile, s.folder, s.base_seq, s.last_seq, parent.id, s.lineage, s.running_turn
FROM sessions s LEFT JOIN sessions parent ON parent.no = s.parent_no WHERE s.id = :id;

-- name: comes_from
-- Whether a session is another or came from it, over any number of steps.
WITH RECURSIVE line (no, parent_no) AS (
    SELECT no, parent_no FROM sessions WHERE no = :no
    UNION
    SELECT s.no, s.parent_no FROM line JOIN sessions s ON s.no = line.parent_no
)
SELECT 1 FROM line WHERE no = :ancestor_no;

-- name: insert_hidden_session
-- A session that no one sees yet: it is filled, and shown when it is whole.
INSERT INTO sessions (
    id, profile, source, platform, chat_type, kind, folder, parent_no, lineage, base_seq, last_seq,
    began_at, last_active_at, ended_at, end_reason, purged_at, finalized_at
) VALUES (
    :id, :profile, :source, 'import', 'dm', :kind, 'gone', :parent_no, :lineage, :base_seq, :base_seq,
    :began_at, :began_at, :began_at, 'import', :began_at, :began_at
) RETURNING no;

-- name: set_lineage
UPDATE sessions SET parent_no = :parent_no, lineage = :lineage, base_seq = :base_seq,
    last_seq = CASE WHEN last_seq > :base_seq THEN last_seq ELSE :base_seq END
WHERE no = :no;

-- name: set_last_seq
UPDATE sessions SET last_seq = :last_seq WHERE no = :no;

-- name: raise_last_seq
UPDATE sessions SET last_seq = CASE WHEN last_seq > :last_seq THEN last_seq ELSE :last_seq END WHERE no = :no;

-- name: turn_session
SELECT session_no FROM turns WHERE id = :id;

-- name: show_session
-- The facts of a session that is whole now.
UPDATE sessions SET key = :key, source = :source, platform = :platform, chat_type = :chat_type,
    chat_id = :chat_id, person_id = :person_id, kind = :kind, folder = :folder, title = :title,
    title_by = :title_by, model = :model, settings = :settings, prompt_hash = :prompt_hash,
    workspace = :workspace, project_no = :project_no, pinned = :pinned, archived = :archived,
    read_only = :read_only, labels = :labels, extra = :extra, read_through = :read_through,
    parent_no = :parent_no, lineage = :lineage, base_seq = :base_seq, last_seq = :last_seq,
    began_at = :began_at, last_active_at = :last_active_at, ended_at = :ended_at,
    end_reason = :end_reason, trashed_at = :trashed_at, purged_at = NULL, finalized_at = :finalized_at,
    finalize_tries = 0, finalize_error = NULL, running_turn = NULL,
    -- It grows, because the number may have belonged to the session before it was purged.
    epoch = (SELECT CASE WHEN COALESCE(MAX(t.epoch), 0) > sessions.epoch THEN MAX(t.epoch)
                         ELSE sessions.epoch + 1 END FROM turns t WHERE t.session_no = :no)
WHERE no = :no;

-- name: extend_session
-- Entries were added behind the last one; what people made of the session stays.
UPDATE sessions SET last_seq = :last_seq,
    last_active_at = CASE WHEN :active_at > last_active_at THEN :active_at ELSE last_active_at END,
    epoch = (SELECT CASE WHEN COALESCE(MAX(t.epoch), 0) > sessions.epoch THEN MAX(t.epoch)
                         ELSE sessions.epoch END FROM turns t WHERE t.session_no = :no)
WHERE no = :no;

-- name: insert_ended_turn
INSERT INTO turns (id, session_no, agent, state, epoch, holder, lease_until, began_at, ended_at, first_seq,
    reason, partial, resumed, resume_reason, request_hash)
VALUES (:id, :session_no, :agent, :state, :epoch, 'import', :ended_at, :began_at, :ended_at, :first_seq,
    :reason, :partial, :resumed, :resume_reason, :request_hash)
ON CONFLICT (id) DO NOTHING;

-- name: tell_entries
-- The feed hears of a stretch of the log at once.
INSERT INTO feed (session_no, seq, what)
SELECT :session_no, entry_no - :before, 'entry' FROM entries
WHERE entry_no BETWEEN :first AND :last ORDER BY entry_no;

-- name: bind_if_free
INSERT INTO bindings (profile, key, session_no, bound_at) VALUES (:profile, :key, :session_no, :at)
ON CONFLICT (profile, key) DO NOTHING;
