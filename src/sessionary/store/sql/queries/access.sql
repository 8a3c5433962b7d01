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
    expires_at = excluded.expires_at;

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

-- name: make_room_for_pairing
-- The oldest request that has had its time loses its place. Its row stays, so that it does not come back at once.
UPDATE pairings SET expires_at = :now WHERE profile = :profile AND platform = :platform AND person_id = (
    SELECT person_id FROM pairings
    WHERE profile = :profile AND platform = :platform AND expires_at > :now AND asked_at <= :before
    ORDER BY asked_at, person_id LIMIT 1
);

-- name: delete_old_pairings
DELETE FROM pairings WHERE expires_at <= :now AND asked_at <= :before;

-- name: get_pairing_guard
SELECT wrong_codes, locked_until FROM pairing_guards WHERE profile = :profile;

-- name: set_pairing_guard
INSERT INTO pairing_guards (profile, wrong_codes, locked_until) VALUES (:profile, :wrong, :locked_until)
ON CONFLICT (profile) DO UPDATE SET wrong_codes = excluded.wrong_codes, locked_until = excluded.locked_until;

-- name: get_spending
-- What was used in a period, and what running turns have reserved. One statement, so that a turn that ends meanwhile
-- is counted once: by its reservation or by its use.
SELECT COALESCE(MAX(tokens), 0), COALESCE(MAX(cost_microusd), 0),
    (SELECT CAST(COALESCE(SUM(tokens), 0) AS BIGINT) FROM reservations WHERE profile = :profile AND scope = :scope),
    (SELECT CAST(COALESCE(SUM(cost_microusd), 0) AS BIGINT) FROM reservations WHERE profile = :profile AND scope = :scope)
FROM spending WHERE profile = :profile AND scope = :scope AND period = :period;

-- name: add_spending
INSERT INTO spending (profile, scope, period, tokens, cost_microusd)
VALUES (:profile, :scope, :period, :tokens, :cost_microusd)
ON CONFLICT (profile, scope, period) DO UPDATE SET
    tokens = CASE WHEN spending.tokens > {{largest_sum}} - excluded.tokens THEN {{largest_sum}}
        ELSE spending.tokens + excluded.tokens END,
    cost_microusd = CASE WHEN spending.cost_microusd > {{largest_sum}} - excluded.cost_microusd THEN {{largest_sum}}
        ELSE spending.cost_microusd + excluded.cost_microusd END;

-- name: add_spending_and_get
{{add_spending}} RETURNING tokens, cost_microusd;

-- name: list_spending
-- The scopes between two names that have used or reserved something, the largest share of their budget first.
SELECT found.scope, COALESCE(s.tokens, 0) AS tokens, COALESCE(s.cost_microusd, 0) AS cost_microusd,
    (SELECT CAST(COALESCE(SUM(r.tokens), 0) AS BIGINT) FROM reservations r
     WHERE r.profile = :profile AND r.scope = found.scope),
    (SELECT CAST(COALESCE(SUM(r.cost_microusd), 0) AS BIGINT) FROM reservations r
     WHERE r.profile = :profile AND r.scope = found.scope)
FROM (
    SELECT scope FROM spending
    WHERE profile = :profile AND scope >= :first AND scope < :beyond AND period = :period
    UNION SELECT scope FROM reservations WHERE profile = :profile AND scope >= :first AND scope < :beyond
) found
LEFT JOIN spending s ON s.profile = :profile AND s.scope = found.scope AND s.period = :period
ORDER BY CASE
    WHEN COALESCE(s.tokens, 0) * 1.0 / :token_limit > COALESCE(s.cost_microusd, 0) * 1.0 / :microusd_limit
    THEN COALESCE(s.tokens, 0) * 1.0 / :token_limit
    ELSE COALESCE(s.cost_microusd, 0) * 1.0 / :microusd_limit END DESC, found.scope
LIMIT :limit;

-- name: insert_budget_warning
INSERT INTO budget_warnings (profile, scope, period, threshold, warned_at)
VALUES (:profile, :scope, :period, :threshold, :at) ON CONFLICT DO NOTHING;

-- name: list_budget_warnings
SELECT scope, threshold FROM budget_warnings
WHERE profile = :profile AND scope >= :first AND scope < :beyond AND period = :period ORDER BY scope, threshold;

-- name: delete_spending
DELETE FROM spending WHERE profile = :profile AND scope = :scope;

-- name: delete_budget_warnings
DELETE FROM budget_warnings WHERE profile = :profile AND scope = :scope;

-- name: insert_reservation
INSERT INTO reservations (turn_id, profile, scope, tokens, cost_microusd)
VALUES (:turn_id, :profile, :scope, :tokens, :cost_microusd);

-- name: use_reservations
-- What a turn has used is counted as spent; only the rest of its reservation stays reserved.
UPDATE reservations SET tokens = CASE WHEN tokens > :tokens THEN tokens - :tokens ELSE 0 END,
    cost_microusd = CASE WHEN cost_microusd > :cost_microusd THEN cost_microusd - :cost_microusd ELSE 0 END
WHERE turn_id = :turn_id;

-- name: stray_reservations
-- Reservations of turns that do not run: they would keep a part of a budget for ever.
SELECT r.turn_id, r.scope FROM reservations r
WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = r.turn_id AND t.state = 'running') LIMIT 20;

-- name: delete_stray_reservations
DELETE FROM reservations
WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = reservations.turn_id AND t.state = 'running');

-- name: release_reservations
DELETE FROM reservations WHERE turn_id = :turn_id;

-- name: set_home
INSERT INTO homes (profile, platform, chat_id, thread_id, name, set_at)
VALUES (:profile, :platform, :chat_id, :thread_id, :name, :at)
ON CONFLICT (profile, platform) DO UPDATE SET chat_id = excluded.chat_id, thread_id = excluded.thread_id,
    name = excluded.name, set_at = excluded.set_at;

-- name: list_homes
SELECT platform, chat_id, thread_id, name FROM homes WHERE profile = :profile ORDER BY platform;
