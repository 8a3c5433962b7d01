-- Turns: begun durably, one running per session, fenced by their lease.

-- name: insert_turn
INSERT INTO turns (id, session_no, agent, state, epoch, holder, lease_until, began_at, first_seq)
VALUES (:id, :session_no, :agent, 'running', :epoch, :holder, :lease_until, :at, :first_seq);

-- name: take_session
-- Mark a session as running this turn; the epoch only grows.
UPDATE sessions SET running_turn = :turn_id, epoch = epoch + 1
WHERE no = :no AND running_turn IS NULL AND ended_at IS NULL
RETURNING epoch, last_seq;

-- name: raise_epoch
-- Stored entries were replaced: what anyone has made of them is out of date, as after another process's turn.
UPDATE sessions SET epoch = epoch + 1 WHERE no = :no;

-- name: set_running_turn
-- What the turns say, after the head said otherwise.
UPDATE sessions SET running_turn = :turn_id,
    epoch = (SELECT CASE WHEN COALESCE(MAX(t.epoch), 0) > sessions.epoch THEN MAX(t.epoch)
                         ELSE sessions.epoch END FROM turns t WHERE t.session_no = :no)
WHERE no = :no;

-- name: free_session
UPDATE sessions SET running_turn = NULL WHERE no = :no AND running_turn = :turn_id;

-- name: turn_columns
t.id, s.id, t.state, t.epoch, t.holder, t.lease_until, t.began_at, t.ended_at, t.first_seq, t.agent, t.reason, t.partial

-- name: get_turn
SELECT {{turn_columns}}, s.no, s.profile FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.id = :id;

-- name: turns_of_session
SELECT {{turn_columns}} FROM turns t JOIN sessions s ON s.no = t.session_no
WHERE t.session_no = :no ORDER BY t.no;

-- name: renew_lease
UPDATE turns SET lease_until = :lease_until WHERE id = :id AND state = 'running' AND holder = :holder;

-- name: checkpoint_turn
UPDATE turns SET partial = :partial WHERE id = :id AND state = 'running' AND holder = :holder;

-- name: end_turn
UPDATE turns SET state = :state, ended_at = CASE WHEN :at > began_at THEN :at ELSE began_at END,
    reason = :reason, partial = CASE WHEN :keep_partial = 1 THEN partial ELSE NULL END
WHERE id = :id AND state = 'running'
RETURNING session_no;

-- name: expired_turns
SELECT id FROM turns WHERE state = 'running' AND lease_until < :now ORDER BY lease_until LIMIT :limit;

-- name: shorten_leases
-- No lease is that long: the clock was set back since. A live holder renews it.
UPDATE turns SET lease_until = :until WHERE state = 'running' AND lease_until > :horizon;

-- name: delete_turns
DELETE FROM turns WHERE session_no = :no;

-- name: ask_to_stop
UPDATE turns SET stop = :reason WHERE session_no = :session_no AND state = 'running';

-- name: stop_asked
SELECT stop FROM turns WHERE id = :id AND state = 'running' AND holder = :holder;
