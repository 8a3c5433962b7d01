-- Who may speak, and how much they may use.

-- name: get_permit
SELECT name, given_at, given_by FROM permits
WHERE profile = :profile AND platform = :platform AND person_id = :person_id;

-- name: insert_permit
INSERT INTO permits (profile, platform, person_id, name, given_at, given_by)
VALUES (:profile, :platform, :person_id, :name, :at, :given_by)
ON CONFLICT (profile, platform, person_id) DO UPDATE SET name = excluded.name;

-- name: delete_permit
DELETE FROM permits WHERE profile = :profile AND platform = :platform AND person_id = :person_id;

-- name: list_permits
SELECT platform, person_id, name, given_at, given_by FROM permits WHERE profile = :profile ORDER BY platform, person_id;

-- name: insert_pairing
INSERT INTO pairings (profile, platform, person_id, name, code_hash, asked_at, expires_at)
VALUES (:profile, :platform, :person_id, :name, :code_hash, :at, :expires_at)
ON CONFLICT (profile, platform, person_id) DO UPDATE SET name = excluded.name, code_hash = excluded.code_hash,
    asked_at = excluded.asked_at, expires_at = excluded.expires_at;

-- name: get_pairing
SELECT asked_at, expires_at FROM pairings
WHERE profile = :profile AND platform = :platform AND person_id = :person_id;

-- name: count_pairings
SELECT COUNT(*) FROM pairings WHERE profile = :profile AND platform = :platform AND expires_at > :now;

-- name: list_pairings
SELECT platform, person_id, name, asked_at, expires_at FROM pairings
WHERE profile = :profile AND expires_at > :now ORDER BY asked_at;

-- name: take_pairing
DELETE FROM pairings WHERE profile = :profile AND code_hash = :code_hash AND expires_at > :now
RETURNING platform, person_id, name;

-- name: delete_old_pairings
DELETE FROM pairings WHERE expires_at <= :now;

-- name: get_guard
SELECT wrong_codes, locked_until FROM pairing_guards WHERE profile = :profile;

-- name: set_guard
INSERT INTO pairing_guards (profile, wrong_codes, locked_until) VALUES (:profile, :wrong_codes, :locked_until)
ON CONFLICT (profile) DO UPDATE SET wrong_codes = excluded.wrong_codes, locked_until = excluded.locked_until;

-- name: get_spending
SELECT tokens, cost_microusd FROM spending WHERE profile = :profile AND scope = :scope AND period = :period;

-- name: add_spending
INSERT INTO spending (profile, scope, period, tokens, cost_microusd)
VALUES (:profile, :scope, :period, :tokens, :cost_microusd)
ON CONFLICT (profile, scope, period) DO UPDATE SET tokens = spending.tokens + excluded.tokens,
    cost_microusd = spending.cost_microusd + excluded.cost_microusd;

-- name: set_home
INSERT INTO homes (profile, platform, chat_id, thread_id, name, set_at)
VALUES (:profile, :platform, :chat_id, :thread_id, :name, :at)
ON CONFLICT (profile, platform) DO UPDATE SET chat_id = excluded.chat_id, thread_id = excluded.thread_id,
    name = excluded.name, set_at = excluded.set_at;

-- name: list_homes
SELECT platform, chat_id, thread_id, name FROM homes WHERE profile = :profile ORDER BY platform;
