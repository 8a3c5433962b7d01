-- The log: appending to it, reading it.

-- name: advance
-- Take the next number of a session for a message, and fold it into the head.
-- Only the lease holder passes while a turn runs; no one passes once the session has ended.
-- The profile is no help in finding it: without statistics PostgreSQL would walk through all of a profile.
UPDATE sessions SET
    last_seq = last_seq + 1,
    last_active_at = CASE WHEN :active_at > last_active_at THEN :active_at ELSE last_active_at END,
    last_reply_seq = CASE WHEN :is_reply = 1 THEN last_seq + 1 ELSE last_reply_seq END,
    message_count = message_count + 1,
    tool_call_count = tool_call_count + :tool_calls
WHERE id = :id AND profile || '' = :profile AND ended_at IS NULL AND read_only = 0 AND folder <> 'gone'
  AND COALESCE(running_turn, '') = :turn_id AND {{holds_lease}}
RETURNING no, last_seq, CASE WHEN preview IS NULL THEN 1 ELSE 0 END AS wants_preview;

-- name: set_preview
UPDATE sessions SET preview = :preview WHERE no = :no AND preview IS NULL;

-- name: advance_mark
-- Take the next number for a compaction or a retraction.
UPDATE sessions SET last_seq = last_seq + 1
WHERE no = :no AND COALESCE(running_turn, '') = :turn_id AND {{holds_lease}}
RETURNING last_seq;

-- name: insert_entry
INSERT INTO entries (entry_no, kind, role, at, turn_id, body)
VALUES (:entry_no, :kind, :role, :at, :turn_id, :body);

-- name: insert_feed
INSERT INTO feed (session_no, seq, what) VALUES (:session_no, :seq, :what);

-- name: find_receipt
SELECT r.session_no, r.seq, s.id FROM receipts r LEFT JOIN sessions s ON s.no = r.session_no
WHERE r.profile = :profile AND r.idem = :idempotency_key;

-- name: receipts_among
SELECT idem FROM receipts WHERE profile = :profile AND idem {{among_names}};

-- name: insert_receipt
INSERT INTO receipts (profile, idem, session_no, seq) VALUES (:profile, :idempotency_key, :session_no, :seq)
ON CONFLICT (profile, idem) DO NOTHING;

-- name: read_entries
SELECT entry_no, kind, role, at, turn_id, body FROM entries
WHERE entry_no BETWEEN :first AND :last ORDER BY entry_no LIMIT :limit;

-- name: read_entries_back
SELECT entry_no, kind, role, at, turn_id, body FROM entries
WHERE entry_no BETWEEN :first AND :last ORDER BY entry_no DESC LIMIT :limit;

-- name: read_marks
SELECT entry_no, kind, role, at, turn_id, body FROM entries
WHERE kind <> 'message' AND entry_no BETWEEN :first AND :last ORDER BY entry_no;

-- name: read_retractions
SELECT entry_no, kind, role, at, turn_id, body FROM entries
WHERE kind = 'retraction' AND entry_no BETWEEN :first AND :last ORDER BY entry_no;

-- name: read_last_compaction
SELECT entry_no, kind, role, at, turn_id, body FROM entries
WHERE kind <> 'message' AND kind = 'compaction' AND entry_no BETWEEN :first AND :last
ORDER BY entry_no DESC LIMIT 1;

-- name: last_entry_no
SELECT MAX(entry_no) FROM entries WHERE entry_no BETWEEN :first AND :last;

-- name: count_entries
SELECT COUNT(*), COALESCE(MIN(entry_no), 0), COALESCE(MAX(entry_no), 0),
    MAX(CASE WHEN role IN ('user', 'assistant') THEN at END)
FROM entries
WHERE entry_no BETWEEN :first AND :last;

-- name: count_rounds
-- How many messages of the assistant come directly after one of a user, and who wrote the last message. `before` is
-- who wrote the last message before this part of the log.
SELECT COUNT(CASE WHEN messages.role = 'assistant' AND messages.previous = 'user' THEN 1 END),
    (SELECT e.role FROM entries e WHERE e.entry_no BETWEEN :first AND :last AND e.role IN ('user', 'assistant')
     ORDER BY e.entry_no DESC LIMIT 1)
FROM (
    SELECT role, LAG(role, 1, CAST(:before AS TEXT)) OVER (ORDER BY entry_no) AS previous
    FROM entries WHERE entry_no BETWEEN :first AND :last AND role IN ('user', 'assistant')
) messages;

-- name: set_counts
-- The head's fold after entries were taken back, or when it is made again.
UPDATE sessions SET message_count = :message_count, tool_call_count = :tool_call_count,
    last_reply_seq = :last_reply_seq, preview = :preview, compacted_seq = :compacted_seq,
    context_tokens = 0, context_seq = 0
WHERE no = :no;

-- name: set_end_of_log
-- Where a session's log ends, and when someone last spoke in it.
UPDATE sessions SET last_seq = :last_seq, last_active_at = :last_active_at WHERE no = :no;

-- name: delete_entries
DELETE FROM entries WHERE entry_no BETWEEN :first AND :last;

-- name: set_compacted
-- What the last model call was sent says nothing of the new context.
UPDATE sessions SET compacted_seq = :compacted_seq, context_tokens = :context_tokens, context_seq = last_seq WHERE no = :no;
