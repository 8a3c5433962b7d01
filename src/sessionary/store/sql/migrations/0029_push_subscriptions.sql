-- Browsers that are notified of questions, by the push service that each of them uses.
CREATE TABLE push_subscriptions (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile      TEXT COLLATE "C" NOT NULL,
    -- Where its push service takes notifications for this browser. Whoever knows the address may send some.
    endpoint     TEXT COLLATE "C" NOT NULL UNIQUE,
    -- With which keys they are encrypted, so that the push service cannot read them.
    p256dh       TEXT COLLATE "C" NOT NULL,
    auth         TEXT COLLATE "C" NOT NULL,
    label        TEXT NOT NULL,
    language     TEXT COLLATE "C" NOT NULL,
    -- The address of the workbench at which the browser subscribed.
    origin       TEXT COLLATE "C" NOT NULL,
    -- The login, or the token of a program, that subscribed it, and with which it ends.
    login_id     TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,
    succeeded_at BIGINT,
    -- Attempts that failed since the last success, and why the last one did.
    failures     BIGINT NOT NULL DEFAULT 0,
    problem      TEXT
);
CREATE INDEX push_subscriptions_by_profile ON push_subscriptions (profile, created_at, id);
