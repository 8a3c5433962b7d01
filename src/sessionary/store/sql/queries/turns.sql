-- Turns: begun durably, one running per session, fenced by their lease.

-- name: never
-- When the lease of a turn ends that waits for people: `sessionary.model.turn.NEVER`.
253402300799999999

-- name: insert_turn
INSERT INTO turns (id, session_no, agent, state, epoch, holder, lease_until, began_at, first_seq, resumable)
VALUES (:id, :session_no, :agent, 'running', :epoch, :holder, :lease_until, :at, :first_seq, :resumable);

-- name: holds_lease
-- Whether this turn is the caller's: a turn that was taken over has a higher epoch. Without a turn the epoch is 0.
(:epoch = 0 OR EXISTS (SELECT 1 FROM turns t WHERE t.id = :turn_id AND t.epoch = :epoch))

-- name: take_over_turn
-- Continue a turn in this process; its epoch fences the process before.
UPDATE turns SET epoch = :epoch, holder = :holder, lease_until = :lease_until, resumed = resumed + 1, crashes = :crashes,
    resume_reason = :reason, partial = NULL
WHERE id = :id AND state = 'running';

-- name: set_crash_seq
UPDATE turns SET crash_seq = :seq WHERE id = :id;

-- name: release_turn
-- Another process may take the turn over at once: it has no holder, and its lease has run out.
UPDATE turns SET holder = '', lease_until = 0, resume_reason = :reason
WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: released_turns
SELECT t.id FROM turns t JOIN sessions s ON s.no = t.session_no
WHERE t.state = 'running' AND t.lease_until = 0 AND t.holder = '' AND s.profile = :profile ORDER BY t.no LIMIT :limit;

-- name: set_request
UPDATE turns SET request_hash = :hash WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: take_session
-- Mark a session as running this turn; the epoch only grows.
UPDATE sessions SET running_turn = :turn_id, epoch = epoch + 1
WHERE no = :no AND running_turn IS NULL AND ended_at IS NULL
RETURNING epoch, last_seq, settings;

-- name: raise_epoch
-- Stored entries were replaced: what anyone has made of them is out of date, as after another process's turn.
UPDATE sessions SET epoch = epoch + 1 WHERE no = :no RETURNING epoch;

-- name: set_running_turn
-- What the turns say, after the head said otherwise.
UPDATE sessions SET running_turn = :turn_id,
    epoch = (SELECT CASE WHEN COALESCE(MAX(t.epoch), 0) > sessions.epoch THEN MAX(t.epoch)
                         ELSE sessions.epoch END FROM turns t WHERE t.session_no = :no)
WHERE no = :no;

-- name: free_session
UPDATE sessions SET running_turn = NULL WHERE no = :no AND running_turn = :turn_id;

-- name: turn_columns
t.id, s.id, t.state, t.epoch, t.holder, t.lease_until, t.began_at, t.ended_at, t.first_seq, t.agent, t.reason, t.partial,
t.resumable, t.resumed, t.resume_reason, t.crashes, t.crash_seq, t.stop, t.request_hash

-- name: get_turn
SELECT {{turn_columns}}, s.no, s.profile FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.id = :id;

-- name: turn_ids_by_prefix
SELECT t.id FROM turns t JOIN sessions s ON s.no = t.session_no
WHERE t.id >= :first AND t.id < :beyond AND s.profile = :profile ORDER BY t.id LIMIT :limit;

-- name: turns_of_session
SELECT {{turn_columns}} FROM turns t JOIN sessions s ON s.no = t.session_no
WHERE t.session_no = :no ORDER BY t.no;

-- name: page_of_turns
-- The newest first, each with the number of its answers: those are between its first entry and the next turn's.
SELECT {{turn_columns}}, (
    SELECT COUNT(*) FROM entries e
    WHERE e.entry_no BETWEEN (s.no << 24) + t.first_seq AND (s.no << 24) + COALESCE(
        (SELECT n.first_seq - 1 FROM turns n WHERE n.session_no = t.session_no AND n.no > t.no ORDER BY n.no LIMIT 1),
        s.last_seq
    ) AND e.role = 'assistant' AND e.turn_id = t.id
), t.no FROM turns t JOIN sessions s ON s.no = t.session_no
WHERE t.session_no = :no AND t.no < :before ORDER BY t.no DESC LIMIT :limit;

-- name: renew_lease
UPDATE turns SET lease_until = :lease_until WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: checkpoint_turn
UPDATE turns SET partial = :partial WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: end_turn
UPDATE turns SET state = :state, ended_at = CASE WHEN :at > began_at THEN :at ELSE began_at END,
    reason = :reason, partial = CASE WHEN :keep_partial = 1 THEN partial ELSE NULL END,
    request_hash = COALESCE(:request_hash, request_hash)
WHERE id = :id AND state = 'running' AND epoch = :epoch
RETURNING session_no, resumable;

-- name: expired_turns
-- Those that may be continued are left to a process of their profile.
SELECT t.id FROM turns t JOIN sessions s ON s.no = t.session_no
WHERE t.state = 'running' AND t.lease_until < :now AND (t.resumable = 0 OR s.profile = :profile)
ORDER BY t.lease_until LIMIT :limit;

-- name: holders
-- The processes that hold a lease of a turn or of a scheduled run.
SELECT holder FROM turns WHERE state = 'running' AND lease_until < {{never}} AND holder <> ''
UNION SELECT holder FROM runs WHERE state = 'running';

-- name: senders
-- The processes that are sending a delivery.
SELECT DISTINCT holder FROM deliveries WHERE state IN ('waiting', 'sending') AND state = 'sending';

-- name: expire_turns_of
UPDATE turns SET lease_until = 0 WHERE state = 'running' AND holder = :holder RETURNING id;

-- name: expire_runs_of
UPDATE runs SET lease_until = 0 WHERE state = 'running' AND holder = :holder;

-- name: expire_sending_of
UPDATE deliveries SET lease_until = 0 WHERE state IN ('waiting', 'sending') AND state = 'sending' AND holder = :holder;

-- name: expire_turn
UPDATE turns SET lease_until = 0 WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: shorten_leases
-- No lease is that long: the clock was set back since. A live holder renews it.
-- One that waits for people or for its program has no holder.
UPDATE turns SET lease_until = :until
WHERE state = 'running' AND lease_until > :horizon AND lease_until < {{never}} AND holder <> '';

-- name: delete_turns
DELETE FROM turns WHERE session_no = :no;

-- name: ask_to_stop
UPDATE turns SET stop = :reason WHERE session_no = :session_no AND state = 'running';

-- name: stop_asked
SELECT stop FROM turns WHERE id = :id AND state = 'running' AND epoch = :epoch;
