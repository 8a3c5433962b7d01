-- Other tools' records.

-- name: find_import
SELECT stamp, place, note FROM imports WHERE profile = :profile AND tool = :tool AND name = :name;

-- name: put_import
INSERT INTO imports (profile, tool, name, stamp, place, note, read_at)
VALUES (:profile, :tool, :name, :stamp, :place, :note, :at)
ON CONFLICT (profile, tool, name)
DO UPDATE SET stamp = excluded.stamp, place = excluded.place, note = excluded.note, read_at = excluded.read_at;

-- name: find_imported
-- The session that another tool knows by a name. It may be hidden (not whole yet) or purged.
SELECT s.no, s.id, s.folder, s.end_reason, s.base_seq, s.last_seq, s.extra
FROM imported i JOIN sessions s ON s.no = i.session_no
WHERE i.profile = :profile AND i.tool = :tool AND i.native_id = :native_id;

-- name: put_imported
INSERT INTO imported (profile, tool, native_id, session_no)
VALUES (:profile, :tool, :native_id, :session_no)
ON CONFLICT (profile, tool, native_id) DO NOTHING;

-- name: add_counts
-- What new entries at the end of a log add to its head.
UPDATE sessions SET last_seq = :last_seq, message_count = message_count + :messages,
    tool_call_count = tool_call_count + :tool_calls,
    last_reply_seq = CASE WHEN :last_reply_seq > last_reply_seq THEN :last_reply_seq ELSE last_reply_seq END,
    compacted_seq = CASE WHEN :compacted_seq > 0 THEN :compacted_seq ELSE compacted_seq END,
    preview = COALESCE(preview, :preview),
    last_active_at = CASE WHEN :active_at > last_active_at THEN :active_at ELSE last_active_at END
WHERE no = :no;

-- name: find_call
SELECT u.session_no, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens,
    u.reasoning_tokens, u.cost_microusd
FROM usage u WHERE u.profile = :profile AND u.call_id = :call_id;

-- name: find_calls
SELECT u.call_id, u.session_no, u.input_tokens, u.output_tokens, u.cache_read_tokens,
    u.cache_write_tokens, u.reasoning_tokens
FROM usage u WHERE u.profile = :profile AND u.call_id {{among_names}};

-- name: set_imported_facts
-- Update what the tool knows of an imported session; changes that people made stay.
UPDATE sessions SET model = COALESCE(:model, model), extra = :extra WHERE no = :no;
