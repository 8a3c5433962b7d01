-- Browsers that are notified of questions.

-- name: push_subscription_columns
id, profile, endpoint, p256dh, auth, label, language, origin, created_at, succeeded_at, failures, problem

-- name: put_push_subscription
-- A browser that subscribes again keeps its id, unless it is for another profile now: what waits for that is not for it.
INSERT INTO push_subscriptions (id, profile, endpoint, p256dh, auth, label, language, origin, login_id, created_at)
VALUES (:id, :profile, :endpoint, :p256dh, :auth, :label, :language, :origin, :login_id, :at)
ON CONFLICT (endpoint) DO UPDATE SET
    id = CASE WHEN push_subscriptions.profile = excluded.profile THEN push_subscriptions.id ELSE excluded.id END,
    profile = excluded.profile, p256dh = excluded.p256dh, auth = excluded.auth, label = excluded.label,
    language = excluded.language, origin = excluded.origin, login_id = excluded.login_id, failures = 0, problem = NULL
RETURNING {{push_subscription_columns}};

-- name: get_push_subscription
SELECT {{push_subscription_columns}} FROM push_subscriptions WHERE id = :id AND profile = :profile;

-- name: list_push_subscriptions
SELECT {{push_subscription_columns}} FROM push_subscriptions WHERE profile = :profile ORDER BY created_at, id;

-- name: push_subscription_ids
-- Without those that were subscribed with a token which was revoked since.
SELECT p.id FROM push_subscriptions p WHERE p.profile = :profile
  AND NOT EXISTS (SELECT 1 FROM tokens t WHERE t.id = p.login_id AND t.revoked_at IS NOT NULL)
ORDER BY p.created_at, p.id;

-- name: push_succeeded
UPDATE push_subscriptions SET succeeded_at = :at, failures = 0, problem = NULL WHERE id = :id;

-- name: push_failed
UPDATE push_subscriptions SET failures = failures + 1, problem = :problem WHERE id = :id;

-- name: delete_push_subscription
DELETE FROM push_subscriptions WHERE id = :id AND profile = :profile;

-- name: delete_push_of_login
DELETE FROM push_subscriptions WHERE profile = :profile AND login_id = :login_id;

-- name: delete_push_of_other_logins
DELETE FROM push_subscriptions WHERE profile = :profile AND login_id <> :but
  AND NOT EXISTS (SELECT 1 FROM tokens t WHERE t.id = push_subscriptions.login_id);
