-- The beginning and the end of most turns: see actions/turn_scripts.py.

-- name: find_session_of_key
-- The session of a key, locked; whether messages wait for the key; whether this message came before.
SELECT {{head_columns}}, s.epoch,
    (SELECT 1 FROM arrivals a WHERE a.profile = :profile AND a.key = :key AND a.state = 'waiting' LIMIT 1),
    (SELECT 1 FROM arrivals a WHERE a.profile = :profile AND a.idem = :idempotency_key)
FROM bindings b JOIN sessions s ON s.no = b.session_no LEFT JOIN projects p ON p.no = s.project_no
    LEFT JOIN sessions parent ON parent.no = s.parent_no
WHERE b.profile = :profile AND b.key = :key {{for_no_key_update_of_session}};

-- name: insert_taken_arrival
INSERT INTO arrivals (id, profile, idem, key, source, message, received_at, state, session_no, turn_id, seq)
VALUES (:id, :profile, :idempotency_key, :key, :source, :message, :received_at, 'taken', :session_no, :turn_id, :seq);

-- name: begin_with_prompt
-- `take_session` and `advance` at once, for a session that is locked.
UPDATE sessions SET running_turn = :turn_id, epoch = :epoch, last_seq = :seq, message_count = message_count + 1,
    last_active_at = CASE WHEN :at > last_active_at THEN :at ELSE last_active_at END
WHERE no = :no;

-- name: end_with_reply
-- `advance` and `free_session` at once. Nothing changes if the lease is lost or someone else has appended.
-- Returns whether something is to be sent to the channel already, and whether messages wait for the key.
UPDATE sessions SET running_turn = NULL, last_seq = :seq, last_reply_seq = :seq, message_count = message_count + 1,
    last_active_at = CASE WHEN :at > last_active_at THEN :at ELSE last_active_at END
WHERE no = :no AND running_turn = :turn_id AND last_seq = :seq - 1 AND {{holds_lease}}
  AND ended_at IS NULL AND read_only = 0 AND folder <> 'gone'
RETURNING (SELECT 1 FROM deliveries d WHERE d.channel = :channel AND d.profile = :profile
             AND d.state IN ('waiting', 'sending') LIMIT 1),
    (SELECT 1 FROM arrivals a WHERE a.profile = :profile AND a.key = :key AND a.state = 'waiting' LIMIT 1);
