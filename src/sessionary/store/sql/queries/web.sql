-- Who may come in over HTTP, and what was answered to whom.

-- name: insert_token
INSERT INTO tokens (id, profile, name, hash, scope, created_at)
VALUES (:id, :profile, :name, :hash, :scope, :at);

-- name: token_columns
id, profile, name, scope, created_at, revoked_at

-- name: get_token_by_hash
SELECT {{token_columns}}, hash FROM tokens WHERE hash = :hash AND revoked_at IS NULL;

-- name: get_token
SELECT {{token_columns}} FROM tokens WHERE id = :id AND profile = :profile;

-- name: token_is_good
SELECT 1 FROM tokens WHERE id = :id AND revoked_at IS NULL;

-- name: list_tokens
SELECT {{token_columns}} FROM tokens WHERE profile = :profile ORDER BY created_at, id;

-- name: revoke_token
UPDATE tokens SET revoked_at = :at WHERE id = :id AND profile = :profile AND revoked_at IS NULL;

-- name: insert_login
INSERT INTO logins (id, profile, hash, began_at, expires_at)
VALUES (:id, :profile, :hash, :at, :expires_at);

-- name: login_columns
id, profile, began_at, expires_at, ended_at

-- name: get_login_by_hash
SELECT {{login_columns}}, hash FROM logins WHERE hash = :hash AND ended_at IS NULL AND expires_at > :now;

-- name: login_is_good
SELECT 1 FROM logins WHERE id = :id AND ended_at IS NULL AND expires_at > :now;

-- name: list_logins
SELECT {{login_columns}} FROM logins
WHERE profile = :profile AND ended_at IS NULL AND expires_at > :now ORDER BY began_at, id;

-- name: end_login
UPDATE logins SET ended_at = :at WHERE id = :id AND profile = :profile AND ended_at IS NULL;

-- name: end_other_logins
UPDATE logins SET ended_at = :at WHERE profile = :profile AND ended_at IS NULL AND id <> :but;

-- name: delete_old_logins
DELETE FROM logins WHERE expires_at <= :before;

-- name: insert_login_link
INSERT INTO login_links (hash, profile, expires_at) VALUES (:hash, :profile, :expires_at);

-- name: find_login_link
SELECT 1 FROM login_links WHERE hash = :hash AND expires_at > :now;

-- name: take_login_link
DELETE FROM login_links WHERE hash = :hash AND expires_at > :now RETURNING profile;

-- name: delete_old_login_links
DELETE FROM login_links WHERE expires_at <= :now;

-- name: get_password
SELECT hash FROM passwords WHERE profile = :profile;

-- name: set_password
INSERT INTO passwords (profile, hash, set_at) VALUES (:profile, :hash, :at)
ON CONFLICT (profile) DO UPDATE SET hash = excluded.hash, set_at = excluded.set_at;

-- name: delete_password
DELETE FROM passwords WHERE profile = :profile;

-- name: get_login_guard
SELECT wrong, locked_until FROM login_guards WHERE profile = :profile;

-- name: set_login_guard
INSERT INTO login_guards (profile, wrong, locked_until) VALUES (:profile, :wrong, :locked_until)
ON CONFLICT (profile) DO UPDATE SET wrong = excluded.wrong, locked_until = excluded.locked_until;

-- name: get_request
SELECT fingerprint, status, body FROM requests WHERE profile = :profile AND idem = :idempotency_key;

-- name: insert_request
INSERT INTO requests (profile, idem, fingerprint, status, body, session_id, answered_at)
VALUES (:profile, :idempotency_key, :fingerprint, :status, :body, :session_id, :at)
ON CONFLICT (profile, idem) DO NOTHING;

-- name: delete_old_requests
DELETE FROM requests WHERE answered_at < :before;

-- name: forget_requests
-- A purged session's words leave the answers that quoted them.
DELETE FROM requests WHERE session_id = :id;

-- name: last_position
SELECT COALESCE(MAX(position), 0) FROM feed;

-- name: read_feed
-- What changed after a position, of every profile: who reads on sees whether a number is missing.
SELECT f.position, f.session_no, f.seq, f.what, s.id, s.profile
FROM feed f LEFT JOIN sessions s ON s.no = f.session_no
WHERE f.position > :after ORDER BY f.position LIMIT :limit;

-- name: count_waiting
-- What a profile has in the inbox, in the outbox and running: each count reads a small index only.
SELECT (SELECT COUNT(*) FROM arrivals WHERE state = 'waiting' AND profile = :profile),
       (SELECT COUNT(*) FROM deliveries WHERE state IN ('waiting', 'sending') AND profile = :profile),
       (SELECT COUNT(*) FROM turns t
        WHERE t.state = 'running' AND t.lease_until < {{never}}
          AND (SELECT s.profile FROM sessions s WHERE s.no = t.session_no) = :profile);

-- name: reply_of_turn
-- The last words that a turn's agent said.
SELECT entry_no FROM entries
WHERE entry_no BETWEEN :first AND :last AND turn_id = :turn_id AND role = 'assistant'
ORDER BY entry_no DESC LIMIT 1;
