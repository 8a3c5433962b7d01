-- The inbox: arrivals.

-- name: insert_arrival
INSERT INTO arrivals (id, profile, idem, key, source, message, received_at, state)
VALUES (:id, :profile, :idempotency_key, :key, :source, :message, :received_at, 'waiting')
ON CONFLICT (profile, idem) DO NOTHING RETURNING no;

-- name: arrival_columns
a.no, a.id, a.key, a.source, a.message, a.received_at, a.state, s.id, a.turn_id, a.seq, a.reason

-- name: get_arrival
SELECT {{arrival_columns}} FROM arrivals a LEFT JOIN sessions s ON s.no = a.session_no
WHERE a.id = :id AND a.profile = :profile;

-- name: get_arrival_by_idempotency_key
SELECT {{arrival_columns}} FROM arrivals a LEFT JOIN sessions s ON s.no = a.session_no
WHERE a.profile = :profile AND a.idem = :idempotency_key;

-- name: arrival_of_entry
SELECT id FROM arrivals WHERE session_no = :session_no AND seq = :seq ORDER BY no LIMIT 1;

-- name: set_arrival_source
UPDATE arrivals SET source = :source WHERE no = :no;

-- name: waiting_arrivals
SELECT {{arrival_columns}} FROM arrivals a LEFT JOIN sessions s ON s.no = a.session_no
WHERE a.profile = :profile AND a.key = :key AND a.state = 'waiting' ORDER BY a.no LIMIT :limit;

-- name: last_source_of_turn
-- Where the last message of a turn came from.
SELECT source FROM arrivals WHERE session_no = :session_no AND turn_id = :turn_id ORDER BY no DESC LIMIT 1;

-- name: sources_of_turn
-- Where the messages of a turn came from.
SELECT source FROM arrivals WHERE session_no = :session_no AND turn_id = :turn_id ORDER BY no;

-- name: take_arrival
UPDATE arrivals SET state = 'taken', session_no = :session_no, turn_id = :turn_id, seq = :seq
WHERE no = :no AND state = 'waiting';

-- name: rewrite_arrival
UPDATE arrivals SET message = :message WHERE no = :no AND state = 'waiting';

-- name: rename_arrivals
-- What waits for a key waits for another one from now on.
UPDATE arrivals SET key = :new WHERE profile = :profile AND key = :old AND state = 'waiting';

-- name: refuse_arrival
UPDATE arrivals SET state = 'refused', reason = :reason WHERE no = :no AND state = 'waiting';

-- name: keys_with_arrivals
-- Keys that have something waiting, oldest first.
SELECT key, MIN(no) FROM arrivals WHERE profile = :profile AND state = 'waiting'
GROUP BY key ORDER BY MIN(no) LIMIT :limit;

-- name: forget_arrivals
-- A purged session's words leave the inbox too; that they came once stays known.
UPDATE arrivals SET source = '{}', message = '{}', session_no = NULL WHERE session_no = :no;

-- name: answer_arrival
-- A command was carried out; it does not become an entry.
UPDATE arrivals SET state = 'taken', reason = :reason WHERE no = :no AND state = 'waiting';
