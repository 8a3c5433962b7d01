-- Erasing a person.

-- name: mark_erasing
INSERT INTO erasing (entry_no) VALUES (:entry_no);

-- name: unmark_erasing
DELETE FROM erasing WHERE entry_no = :entry_no;

-- name: page_of_platform
-- The sessions of a platform, tombstones left out, in the order of opening.
SELECT no, id FROM sessions
WHERE profile = :profile AND platform = :platform AND shelf <> 'gone' AND no > :after ORDER BY no LIMIT :limit;

-- name: forget_arrival_of_entry
UPDATE arrivals SET source = '{}', message = '{}' WHERE session_no = :session_no AND seq = :seq;

-- name: page_of_free_arrivals
-- Arrivals that belong to no session: refused ones, commands, and what waits.
SELECT no, source, state FROM arrivals
WHERE profile = :profile AND session_no IS NULL AND source <> '{}' AND no > :after ORDER BY no LIMIT :limit;

-- name: forget_arrival
UPDATE arrivals SET source = '{}', message = '{}', state = 'refused', reason = 'erased' WHERE no = :no;

-- name: delete_pairing_of
DELETE FROM pairings WHERE profile = :profile AND platform = :platform AND person_id = :person_id;

-- name: insert_erasure
INSERT INTO erasures (id, profile, at, receipt) VALUES (:id, :profile, :at, :receipt);

-- name: list_erasures
SELECT receipt FROM erasures WHERE profile = :profile ORDER BY at, id;
