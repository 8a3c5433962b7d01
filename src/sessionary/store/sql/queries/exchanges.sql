-- Exchanges of the recording proxy that are not in the log yet.

-- name: exchange_columns
id, profile, state, holder, began_at, done_at, person_id, facts, request, response

-- name: put_exchange
-- What is done stays done: a request that is written late, or again, does not open it again. One that was believed to
-- have been abandoned, and is not in the log yet, gets the response that came after all.
INSERT INTO proxy_exchanges (id, profile, state, holder, expires_at, began_at, done_at, person_id, facts, request, response)
VALUES (:id, :profile, :state, :holder, :expires_at, :began_at, :done_at, :person_id, :facts, :request, :response)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, expires_at = excluded.expires_at, done_at = excluded.done_at, person_id = excluded.person_id,
    facts = excluded.facts, response = excluded.response
WHERE proxy_exchanges.state = 'open' OR excluded.state = 'done';

-- name: next_exchange_sizes
SELECT LENGTH(request) + LENGTH(response) FROM proxy_exchanges WHERE state = 'done' ORDER BY done_at, id LIMIT :limit;

-- name: next_exchanges
SELECT {{exchange_columns}} FROM proxy_exchanges WHERE state = 'done' ORDER BY done_at, id LIMIT :limit;

-- name: lock_exchange
SELECT state FROM proxy_exchanges WHERE id = :id {{for_update}};

-- name: fail_exchange
UPDATE proxy_exchanges SET state = 'failed', facts = :facts WHERE id = :id;

-- name: retry_failed_exchanges
UPDATE proxy_exchanges SET state = 'done' WHERE state = 'failed';

-- name: delete_exchange
DELETE FROM proxy_exchanges WHERE id = :id;

-- name: renew_exchanges
UPDATE proxy_exchanges SET expires_at = :expires_at WHERE holder = :holder AND state = 'open';

-- name: list_open_exchanges
-- Those of other processes: whether one has ended is not known to the database.
SELECT id, holder, expires_at FROM proxy_exchanges WHERE state = 'open' AND holder <> :holder
ORDER BY done_at, id LIMIT :limit;

-- name: abandon_exchange
-- Its process ended before the response did. If it was only frozen, it has renewed the time since, or is too late.
UPDATE proxy_exchanges SET state = 'done', done_at = :now
WHERE id = :id AND state = 'open' AND holder = :holder AND expires_at = :expires_at;

-- name: count_exchanges
SELECT state, COUNT(*) FROM proxy_exchanges GROUP BY state;

-- name: delete_exchanges_of_person
DELETE FROM proxy_exchanges WHERE profile = :profile AND person_id = :person_id;
