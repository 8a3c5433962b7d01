-- Writing to the log, as each database does it with the fewest questions.

-- name: advance_with_entry
-- All that most appends need; each statement does nothing when the one before it did nothing.
{{advance}};
INSERT INTO entries (entry_no, kind, role, at, turn_id, body)
SELECT no << 24 | last_seq, 'message', :role, :at, NULLIF(:turn_id, ''), :body FROM sessions
WHERE id = :id AND changes() = 1;
INSERT INTO feed (session_no, seq, what)
SELECT no, last_seq, 'entry' FROM sessions WHERE id = :id AND changes() = 1;
