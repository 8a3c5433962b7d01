-- Which session a key is on.

-- name: get_binding
SELECT session_no, bound_at FROM bindings WHERE profile = :profile AND key = :key;

-- name: set_binding
INSERT INTO bindings (profile, key, session_no, bound_at) VALUES (:profile, :key, :session_no, :at)
ON CONFLICT (profile, key) DO UPDATE SET session_no = excluded.session_no, bound_at = excluded.bound_at;

-- name: list_bindings
-- Who only named a session stands in one stretch, which can be left out.
SELECT key, session_no, bound_at FROM bindings
WHERE profile = :profile AND key > :after AND NOT (key >= :named AND key < :beyond)
ORDER BY key LIMIT :limit;

-- name: bindings_between
SELECT key, session_no FROM bindings WHERE profile = :profile AND key >= :first AND key < :beyond ORDER BY key;

-- name: latest_bindings
SELECT b.key FROM bindings b JOIN sessions s ON s.no = b.session_no
WHERE b.profile = :profile AND b.key >= :first AND b.key < :beyond
ORDER BY s.last_active_at DESC, b.key LIMIT :limit;

-- name: rename_binding
UPDATE bindings SET key = :new WHERE profile = :profile AND key = :old;

-- name: keys_of_session
SELECT key FROM bindings WHERE session_no = :session_no ORDER BY key;

-- name: delete_bindings
DELETE FROM bindings WHERE session_no = :session_no;

-- name: insert_hold
INSERT INTO holds (session_no, name, expires_at) VALUES (:no, :name, :expires_at)
ON CONFLICT (session_no, name) DO UPDATE SET expires_at = excluded.expires_at;

-- name: delete_hold
DELETE FROM holds WHERE session_no = :no AND name = :name;

-- name: delete_expired_holds
DELETE FROM holds WHERE session_no = :no AND expires_at <= :now;

-- name: delete_holds
DELETE FROM holds WHERE session_no = :no;

-- name: is_held
SELECT name FROM holds WHERE session_no = :no AND expires_at > :now LIMIT 1;

-- name: due_for_reset
-- Sessions of one platform and chat type that nobody has spoken in since the cut-off.
SELECT s.no, s.id, s.profile, s.key, s.last_active_at FROM sessions s
WHERE s.platform = :platform AND s.chat_type = :chat_type AND s.ended_at IS NULL AND s.key IS NOT NULL
  AND s.last_active_at < :cutoff AND s.running_turn IS NULL
  AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.session_no = s.no AND h.expires_at > :now)
ORDER BY s.last_active_at LIMIT :limit;

-- name: places_with_open_sessions
-- The platforms and chat types that a sweep has to look at: few, however many sessions there are.
WITH RECURSIVE place (platform, chat_type) AS (
    SELECT * FROM (
        SELECT platform, chat_type FROM sessions WHERE ended_at IS NULL AND key IS NOT NULL
        ORDER BY platform, chat_type LIMIT 1
    ) AS first_place
    UNION ALL
    -- The next chat type of the platform, else the first of the next one. Not as a comparison of pairs:
    -- SQLite would walk through every session of the platform for it.
    -- Always by the first of an order: for EXISTS, PostgreSQL would walk so.
    SELECT CASE WHEN (SELECT s.chat_type FROM sessions s WHERE s.ended_at IS NULL AND s.key IS NOT NULL
                        AND s.platform = place.platform AND s.chat_type > place.chat_type
                      ORDER BY s.platform, s.chat_type LIMIT 1) IS NOT NULL
           THEN place.platform
           ELSE (SELECT s.platform FROM sessions s WHERE s.ended_at IS NULL AND s.key IS NOT NULL
                   AND s.platform > place.platform ORDER BY s.platform, s.chat_type LIMIT 1) END,
           COALESCE((SELECT s.chat_type FROM sessions s WHERE s.ended_at IS NULL AND s.key IS NOT NULL
                       AND s.platform = place.platform AND s.chat_type > place.chat_type
                     ORDER BY s.platform, s.chat_type LIMIT 1),
                    (SELECT s.chat_type FROM sessions s WHERE s.ended_at IS NULL AND s.key IS NOT NULL
                       AND s.platform > place.platform ORDER BY s.platform, s.chat_type LIMIT 1))
    FROM place WHERE place.platform IS NOT NULL
)
SELECT platform, chat_type FROM place WHERE platform IS NOT NULL;

-- name: due_for_finalizing
SELECT no, id, profile, end_reason, finalize_tries, ended_at FROM sessions
WHERE ended_at IS NOT NULL AND finalized_at IS NULL AND finalize_tries < :tries
ORDER BY ended_at LIMIT :limit;

-- name: mark_finalized
-- Only the end that was finalized: the session may have been reopened meanwhile, and be over again.
UPDATE sessions SET finalized_at = :at, finalize_error = NULL WHERE no = :no AND ended_at = :ended_at;

-- name: mark_finalize_failed
UPDATE sessions SET finalize_tries = finalize_tries + 1, finalize_error = :error,
    finalized_at = CASE WHEN finalize_tries + 1 >= :tries THEN CAST(:at AS BIGINT) ELSE NULL END
WHERE no = :no AND ended_at = :ended_at;

-- name: stray_bindings
SELECT b.key FROM bindings b JOIN sessions s ON s.no = b.session_no WHERE s.folder = 'gone' LIMIT 20;

-- name: set_next_session
INSERT INTO next_sessions (profile, key, title, chosen) VALUES (:profile, :key, :title, :chosen)
ON CONFLICT (profile, key) DO UPDATE SET title = excluded.title, chosen = excluded.chosen;

-- name: get_next_session
SELECT title, chosen FROM next_sessions WHERE profile = :profile AND key = :key;

-- name: take_next_session
DELETE FROM next_sessions WHERE profile = :profile AND key = :key RETURNING title, chosen;
