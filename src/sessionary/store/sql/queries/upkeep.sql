-- Erasing a person; packing what is old.

-- name: mark_rewriting
INSERT INTO rewriting (entry_no) VALUES (:entry_no);

-- name: unmark_rewriting
DELETE FROM rewriting WHERE entry_no = :entry_no;

-- name: page_of_platform
-- The sessions of a platform, and those that were spoken in from it, tombstones left out.
SELECT s.no, s.id FROM sessions s
WHERE s.profile = :profile AND s.folder <> 'gone' AND s.no > :after
  AND (s.platform = :platform OR (
    SELECT a.no FROM arrivals a WHERE a.session_no = s.no AND a.key >= :first_key AND a.key < :last_key LIMIT 1
  ) IS NOT NULL)
ORDER BY s.no LIMIT :limit;

-- name: forget_opener
-- Who opened a session that others go on with.
UPDATE sessions SET source = :source, person_id = NULL WHERE no = :no;

-- name: is_imported
SELECT 1 FROM imported WHERE session_no = :no LIMIT 1;

-- name: forget_partials
-- What an agent had begun to say when it was stopped, and what its model was sent besides the messages.
UPDATE turns SET partial = NULL, request_hash = NULL WHERE session_no = :no;

-- name: forget_requests_of_turns
UPDATE turns SET request_hash = NULL WHERE session_no = :no;

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

-- name: page_to_pack
-- Sessions that have been quiet since a time and have messages that are in no pack.
SELECT s.no, s.id FROM sessions s
WHERE s.profile = :profile AND s.last_active_at < :before AND s.folder NOT IN ('gone', 'trash')
  AND s.running_turn IS NULL AND s.no > :after
  AND EXISTS (
    SELECT 1 FROM entries e
    WHERE e.entry_no <= (s.no << 24) + s.last_seq AND e.kind = 'message' AND e.entry_no >
      (s.no << 24) + COALESCE((SELECT MAX(p.last_seq) FROM packs p WHERE p.session_no = s.no), s.base_seq)
  )
ORDER BY s.no LIMIT :limit;

-- name: packed_through
SELECT COALESCE(MAX(last_seq), 0) FROM packs WHERE session_no = :session_no;

-- name: insert_pack
INSERT INTO packs (session_no, first_seq, last_seq, size, data)
VALUES (:session_no, :first_seq, :last_seq, :size, :data) RETURNING no;

-- name: get_pack
SELECT data FROM packs WHERE no = :no;

-- name: packs_of_session
SELECT no, first_seq, last_seq FROM packs WHERE session_no = :session_no ORDER BY no;

-- name: delete_pack
DELETE FROM packs WHERE no = :no;

-- name: unmark_rewriting_between
DELETE FROM rewriting WHERE entry_no BETWEEN :first AND :last;

-- name: delete_packs
DELETE FROM packs WHERE session_no = :session_no;

-- name: size_of_packs
SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT), CAST(COALESCE(SUM(LENGTH(data)), 0) AS BIGINT) FROM packs;
