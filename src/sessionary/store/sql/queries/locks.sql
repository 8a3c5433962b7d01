-- Row locks. SQLite has one writer, who holds every row already: there these queries only read.

-- name: lock_session
-- Hold a session's row until the transaction ends; the first statement of whatever depends on it.
SELECT no FROM sessions WHERE id = :id AND profile = :profile AND folder <> 'gone' {{for_no_key_update}};

-- name: lock_dead_turn
-- Lock a turn whose lease has run out: a holder that renews it waits, and then finds that it has ended.
SELECT id FROM turns WHERE id = :id AND state = 'running' AND lease_until < :now {{for_update}};
