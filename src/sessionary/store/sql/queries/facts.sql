-- What programs that bring their own ids and facts need: the ends of sessions, lists by beginning, notes.

-- name: set_extra
UPDATE sessions SET extra = :extra WHERE no = :no;

-- name: set_prompt_hash
UPDATE sessions SET prompt_hash = :prompt_hash WHERE no = :no;

-- name: set_end
-- Put an end, or its absence, as it was; the key goes with it, because an open session owns its key alone.
UPDATE sessions SET ended_at = CAST(:ended_at AS BIGINT), end_reason = :reason, key = :key WHERE no = :no;

-- name: rename_tombstone
-- Free the id of a purged session for a session that is imported again.
UPDATE sessions SET id = :new_id WHERE id = :id AND folder = 'gone';

-- name: delete_binding
DELETE FROM bindings WHERE profile = :profile AND key = :key;

-- name: holds_of_session
SELECT name, expires_at FROM holds WHERE session_no = :no ORDER BY name;

-- name: delete_calls_from
-- The calls of a session whose names begin alike.
DELETE FROM usage WHERE session_no = :no AND call_id >= :first AND call_id < :beyond;

-- name: meta_from
SELECT name, value FROM meta WHERE name >= :first AND name < :beyond ORDER BY name;

-- name: child_heads
SELECT {{head_columns}} FROM {{head_tables}}
WHERE s.parent_no = :no AND s.folder NOT IN ('trash', 'gone') ORDER BY s.began_at DESC, s.no DESC;

-- name: list_by_beginning
SELECT {{head_columns}} FROM {{head_tables}}
WHERE {{beginning_filters}}
ORDER BY s.began_at DESC, s.no DESC LIMIT :limit OFFSET :skip;

-- name: list_by_last_active
SELECT {{head_columns}} FROM {{head_tables}}
WHERE {{beginning_filters}}
ORDER BY s.last_active_at DESC, s.no DESC LIMIT :limit OFFSET :skip;

-- name: beginning_filters
-- Platforms come between line feeds, which none of them holds; a null asks for nothing.
s.profile = :profile AND s.folder NOT IN ('trash', 'gone')
  AND (CAST(:platform AS TEXT) IS NULL OR s.platform = :platform)
  AND (CAST(:without AS TEXT) IS NULL OR REPLACE(CAST(:without AS TEXT), {{line_of_platform}}, '') = :without)
  AND (CAST(:roots AS BIGINT) IS NULL OR s.parent_no IS NULL OR s.lineage IN ('fork', 'reset')
       OR parent.folder = 'gone')

-- name: line_of_platform
'
' || s.platform || '
'

-- name: count_sessions
SELECT COUNT(*) FROM sessions
WHERE profile = :profile AND folder NOT IN ('trash', 'gone')
  AND (CAST(:platform AS TEXT) IS NULL OR platform = :platform);

-- name: sum_messages
SELECT CAST(COALESCE(SUM(message_count), 0) AS BIGINT) FROM sessions
WHERE profile = :profile AND folder NOT IN ('trash', 'gone');
