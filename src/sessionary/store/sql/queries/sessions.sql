-- Sessions: opening, heads, what people change about them.

-- name: head_columns
-- The columns of a SessionHead, in its order; store/sessions.py reads them by place.
s.no, s.id, s.profile, s.key, s.source, s.kind, s.folder, s.title, s.title_by, s.preview, s.model,
p.name, s.pinned, s.archived, s.read_only, s.labels, s.began_at, s.last_active_at, s.ended_at,
s.end_reason, s.trashed_at, s.last_seq, s.base_seq, s.read_through, s.last_reply_seq, s.message_count,
s.tool_call_count, s.calls, s.unknown_cost_calls, s.estimated_calls, s.input_tokens, s.output_tokens,
s.cache_read_tokens, s.cache_write_tokens, s.reasoning_tokens, s.cost_microusd, s.running_turn,
parent.id, s.lineage, s.context_tokens, s.context_seq, s.settings,
-- Only a session with a running turn reads the table of turns.
(SELECT t.lease_until FROM turns t WHERE t.id = s.running_turn)

-- name: head_tables
sessions s LEFT JOIN projects p ON p.no = s.project_no LEFT JOIN sessions parent ON parent.no = s.parent_no

-- name: insert_session
INSERT INTO sessions (
    id, profile, key, source, platform, chat_type, chat_id, person_id, kind, folder, title, title_by, model, settings,
    prompt_hash, workspace, labels, extra, read_only, parent_no, lineage, base_seq, began_at, last_seq,
    last_active_at, preview, message_count, tool_call_count, compacted_seq, last_reply_seq
) VALUES (
    :id, :profile, :key, :source, :platform, :chat_type, :chat_id, :person_id, :kind, :folder, :title, :title_by,
    :model, :settings, :prompt_hash, :workspace, :labels, :extra, :read_only, :parent_no, :lineage, :base_seq,
    :began_at, :base_seq, :began_at, :preview, :message_count, :tool_call_count, :compacted_seq, :last_reply_seq
) RETURNING no;

-- name: get_head
SELECT {{head_columns}} FROM {{head_tables}} WHERE s.id = :id AND s.profile = :profile AND s.folder <> 'gone';

-- name: get_head_by_no
SELECT {{head_columns}} FROM {{head_tables}} WHERE s.no = :no;

-- name: get_details
-- What a list does not show.
SELECT s.settings, s.prompt_hash, s.workspace, s.extra, d.text, s.finalized_at, s.compacted_seq, s.epoch
FROM sessions s LEFT JOIN drafts d ON d.session_no = s.no
WHERE s.no = :no;

-- name: get_workspaces
SELECT s.no, s.workspace FROM sessions s WHERE s.no {{among_numbers}} AND s.workspace IS NOT NULL;

-- name: ids_by_prefix
-- The profile is no help in finding them: SQLite would look at all that it has.
SELECT id, title FROM sessions
WHERE profile || '' = :profile AND id >= :first AND id < :beyond AND folder <> 'gone'
ORDER BY id LIMIT :limit;

-- name: id_by_title
SELECT id FROM sessions WHERE profile = :profile AND title = :title;

-- name: titles_from
-- Titles of a numbered family; the caller checks the digits.
SELECT title, id, no FROM sessions
WHERE profile = :profile AND title >= :first AND title < :beyond
ORDER BY title;

-- name: set_title
UPDATE sessions SET title = :title, title_by = :title_by WHERE no = :no;

-- name: set_pinned
UPDATE sessions SET pinned = :pinned WHERE no = :no;

-- name: set_folder
UPDATE sessions SET folder = :folder, archived = :archived, trashed_at = :trashed_at WHERE no = :no;

-- name: set_read_only
UPDATE sessions SET read_only = 1 WHERE no = :no;

-- name: set_project
UPDATE sessions SET project_no = :project_no WHERE no = :no;

-- name: set_labels
UPDATE sessions SET labels = :labels WHERE no = :no;

-- name: set_read_through
UPDATE sessions SET read_through = :read_through WHERE no = :no;

-- name: set_settings
UPDATE sessions SET settings = :settings, model = :model WHERE no = :no;

-- name: set_model
UPDATE sessions SET model = :model WHERE no = :no;

-- name: set_draft
INSERT INTO drafts (session_no, text, updated_at) VALUES (:no, :text, :at)
ON CONFLICT (session_no) DO UPDATE SET text = excluded.text, updated_at = excluded.updated_at;

-- name: delete_draft
DELETE FROM drafts WHERE session_no = :no;

-- name: end_session
-- The first reason wins. The clock may have been set back: an end is never before the beginning.
-- Nobody ends a session under a running turn.
UPDATE sessions SET ended_at = CASE WHEN :at > began_at THEN :at ELSE began_at END, end_reason = :reason,
    finalized_at = NULL, finalize_tries = 0, finalize_error = NULL
WHERE no = :no AND ended_at IS NULL AND running_turn IS NULL;

-- name: reopen_session
UPDATE sessions SET ended_at = NULL, end_reason = NULL, key = :key WHERE no = :no;

-- name: set_key
UPDATE sessions SET key = :key WHERE no = :no;

-- name: open_session_of_key
SELECT no FROM sessions WHERE profile = :profile AND key = :key AND ended_at IS NULL;

-- name: ancestors
-- A session and those it came from, nearest first; the depth ends a cycle.
WITH RECURSIVE line (no, id, parent_no, lineage, base_seq, last_seq, depth) AS (
    SELECT no, id, parent_no, lineage, base_seq, last_seq, 0 FROM sessions WHERE no = :no
    UNION
    SELECT s.no, s.id, s.parent_no, s.lineage, s.base_seq, s.last_seq, line.depth + 1
    FROM line JOIN sessions s ON s.no = line.parent_no
    WHERE line.lineage IN ('fork', 'continuation') AND line.depth < 100000
)
SELECT no, id, base_seq, last_seq FROM line ORDER BY depth;

-- name: children
SELECT no, id, lineage, base_seq, folder FROM sessions WHERE parent_no = :no ORDER BY no;

-- name: subagents_below
-- The subagents of a session, their subagents, and so on.
WITH RECURSIVE below (no) AS (
    SELECT no FROM sessions WHERE parent_no = :no AND lineage = 'subagent'
    UNION
    SELECT s.no FROM below JOIN sessions s ON s.parent_no = below.no WHERE s.lineage = 'subagent'
)
SELECT no FROM below WHERE no <> :no ORDER BY no;

-- name: standings
SELECT s.id,
    (SELECT COUNT(*) FROM sessions c
     WHERE c.parent_no = s.no AND c.lineage = 'subagent' AND c.folder <> 'gone'
       AND (c.folder <> 'trash' OR s.folder = 'trash')),
    (SELECT t.state FROM turns t WHERE t.session_no = s.no ORDER BY t.no DESC LIMIT 1)
FROM sessions s WHERE s.no {{among_numbers}};

-- name: before_by_activity
(s.last_active_at, s.no) < (:before_at, :before_no) AND s.last_active_at >= :since AND {{list_filters}}
ORDER BY s.last_active_at DESC, s.no DESC LIMIT :limit

-- name: list_by_activity
SELECT {{head_columns}} FROM {{head_tables}}
WHERE s.profile = :profile AND s.folder = :folder
  AND {{before_by_activity}};

-- name: list_by_platform
SELECT {{head_columns}} FROM {{head_tables}}
WHERE s.profile = :profile AND s.platform = :only_platform AND s.folder = :folder
  AND {{before_by_activity}};

-- name: list_by_project
SELECT {{head_columns}} FROM {{head_tables}}
WHERE s.project_no = :only_project AND s.profile = :profile AND s.folder = :folder
  AND {{before_by_activity}};

-- name: list_pinned
-- Few are pinned, whatever their folder: it is no help in finding them.
SELECT {{head_columns}} FROM {{head_tables}}
WHERE s.profile = :profile AND s.pinned = 1 AND s.folder || '' = :folder
  AND {{before_by_activity}};

-- name: ordered_tables
session_orders o JOIN sessions s ON s.no = o.session_no LEFT JOIN projects p ON p.no = s.project_no LEFT JOIN sessions parent ON parent.no = s.parent_no

-- name: list_by_creation
SELECT {{head_columns}} FROM {{ordered_tables}}
WHERE o.profile = :profile AND o.folder = :folder AND (o.began_at, o.session_no) < (:at, :no)
ORDER BY o.began_at DESC, o.session_no DESC LIMIT :limit;

-- name: list_by_cost
SELECT {{head_columns}} FROM {{ordered_tables}}
WHERE o.profile = :profile AND o.folder = :folder AND (o.cost_microusd, o.session_no) < (:at, :no)
ORDER BY o.cost_microusd DESC, o.session_no DESC LIMIT :limit;

-- name: list_by_title
SELECT {{head_columns}} FROM {{ordered_tables}}
WHERE o.profile = :profile AND o.folder = :folder AND (o.name, o.session_no) > (:at, :no)
ORDER BY o.name, o.session_no LIMIT :limit;

-- name: out_of_order
-- Whether a session does not stand in the lists where its row says.
SELECT 1 FROM sessions s LEFT JOIN session_orders o ON o.session_no = s.no
WHERE s.no = :no AND (o.session_no IS NULL OR o.profile <> s.profile OR o.folder <> s.folder OR o.began_at <> s.began_at
    OR o.name <> {{listed_name}} OR o.cost_microusd <> s.cost_microusd);

-- name: put_in_order
INSERT INTO session_orders (session_no, profile, folder, began_at, name, cost_microusd)
SELECT s.no, s.profile, s.folder, s.began_at, {{listed_name}}, s.cost_microusd FROM sessions s WHERE s.no = :no
ON CONFLICT (session_no) DO UPDATE SET profile = excluded.profile, folder = excluded.folder,
    began_at = excluded.began_at, name = excluded.name, cost_microusd = excluded.cost_microusd;

-- name: stray_orders
-- Places of sessions that are not there. The next session with that number could not be opened.
SELECT o.session_no FROM session_orders o
WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = o.session_no) LIMIT 20;

-- name: delete_stray_orders
DELETE FROM session_orders WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = session_no);

-- name: list_filters
-- What narrows any list; a null asks for nothing.
(CAST(:kind AS TEXT) IS NULL OR s.kind = :kind)
  AND (CAST(:model AS TEXT) IS NULL OR s.model = :model)
  AND (CAST(:only_platform AS TEXT) IS NULL OR s.platform = :only_platform)
  AND (CAST(:only_open AS BIGINT) IS NULL OR (s.ended_at IS NULL) = (:only_open = 1))
  AND (CAST(:only_project AS BIGINT) IS NULL OR s.project_no = :only_project)

-- name: platforms_in_folder
-- The platforms of a folder, one step through the index for each: few, however many sessions there are.
WITH RECURSIVE place (platform) AS (
    SELECT * FROM (
        SELECT platform FROM sessions WHERE profile = :profile AND folder = :folder
        ORDER BY platform LIMIT 1
    ) AS first_place
    UNION ALL
    SELECT (SELECT s.platform FROM sessions s
            WHERE s.profile = :profile AND s.folder = :folder AND s.platform > place.platform
            ORDER BY s.platform LIMIT 1)
    FROM place WHERE place.platform IS NOT NULL
)
SELECT platform FROM place WHERE platform IS NOT NULL LIMIT :limit;

-- name: models_of_profile
-- Every model that a session of the profile has, one step through the index for each.
WITH RECURSIVE used (model) AS (
    SELECT * FROM (
        SELECT model FROM sessions WHERE profile = :profile AND model IS NOT NULL AND folder <> 'gone'
        ORDER BY model LIMIT 1
    ) AS first_model
    UNION ALL
    SELECT (SELECT s.model FROM sessions s
            WHERE s.profile = :profile AND s.model IS NOT NULL AND s.folder <> 'gone' AND s.model > used.model
            ORDER BY s.model LIMIT 1)
    FROM used WHERE used.model IS NOT NULL
)
SELECT model FROM used WHERE model IS NOT NULL LIMIT :limit;

-- name: count_platform
SELECT COUNT(*) FROM (
    SELECT 1 FROM sessions WHERE profile = :profile AND folder = :folder AND platform = :platform LIMIT :limit
) AS counted;

-- name: count_folder
-- Never counts further than it was asked to.
SELECT COUNT(*) FROM (SELECT 1 FROM sessions WHERE profile = :profile AND folder = :folder LIMIT :limit) AS counted;

-- name: newest_in_folder
-- The newest sessions of a folder, up to a number: what a count may look at.
(SELECT kind, model, platform, ended_at, pinned, read_only, project_no, title, preview, labels FROM sessions
 WHERE profile = :profile AND folder = :folder AND last_active_at >= :since AND last_active_at < :before
 ORDER BY last_active_at DESC LIMIT :scanned) AS s

-- name: count_filters
{{list_filters}}
  AND (CAST(:only_pinned AS BIGINT) IS NULL OR s.pinned = 1)
  AND (CAST(:only_read_only AS BIGINT) IS NULL OR s.read_only = :only_read_only)

-- name: count_in_folder
-- How many of a folder's newest sessions fit a list's filters, up to a limit.
SELECT COUNT(*) FROM (SELECT 1 FROM {{newest_in_folder}} WHERE {{count_filters}} LIMIT :limit) AS counted;

-- name: texts_in_folder
-- What the other filters of a list look at, of the sessions that fit those above.
SELECT s.title, s.preview, s.labels FROM {{newest_in_folder}} WHERE {{count_filters}};

-- name: page_of_sessions
-- Every session of a profile in the order of opening, a page at a time; tombstones too.
SELECT no, id, folder FROM sessions WHERE profile = :profile AND no > :after ORDER BY no LIMIT :limit;

-- name: page_of_all_sessions
SELECT no, id, folder FROM sessions WHERE no > :after ORDER BY no LIMIT :limit;

-- name: prunable
SELECT no, id FROM sessions
WHERE profile = :profile AND ended_at < :before AND pinned = 0 AND folder <> 'gone' AND no > :after
  AND (CAST(:platform AS TEXT) IS NULL OR platform = :platform)
ORDER BY no LIMIT :limit;

-- name: expired_trash
SELECT no, id FROM sessions
WHERE trashed_at < :before AND purged_at IS NULL ORDER BY trashed_at LIMIT :limit;

-- name: set_project_for_all
UPDATE sessions SET project_no = NULL WHERE project_no = :project_no;

-- name: bury_session
-- What stays of a purged session: that it was, when, what it cost. Its words and names go.
UPDATE sessions SET folder = 'gone', purged_at = :at, title = NULL, title_by = NULL, preview = NULL, key = NULL,
    source = :source, chat_id = NULL, person_id = NULL, settings = NULL, prompt_hash = NULL, workspace = NULL,
    labels = '[]', extra = '{}', project_no = NULL, pinned = 0, message_count = 0, tool_call_count = 0,
    last_reply_seq = 0, compacted_seq = 0,
    trashed_at = COALESCE(trashed_at, :at), ended_at = COALESCE(ended_at, CASE WHEN :at > began_at THEN :at ELSE began_at END), end_reason = COALESCE(end_reason, 'purge'),
    finalized_at = COALESCE(finalized_at, :at)
WHERE no = :no;

-- name: session_bytes
SELECT COUNT(*), CAST(COALESCE(SUM(LENGTH(body)), 0) AS BIGINT) FROM entries WHERE entry_no BETWEEN :first AND :last;

-- name: purged_at
-- When a session was purged; one that an import is still filling was not.
SELECT purged_at FROM sessions
WHERE id = :id AND profile = :profile AND folder = 'gone' AND end_reason <> 'import';

-- name: profile_of
SELECT profile FROM sessions WHERE id = :id;
