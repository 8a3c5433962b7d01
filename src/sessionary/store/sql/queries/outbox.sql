-- The outbox: deliveries.

-- name: insert_delivery
INSERT INTO deliveries (
    id, profile, platform, chat_id, thread_id, channel, session_no, turn_id, parts, state, not_before, created_at
) VALUES (
    :id, :profile, :platform, :chat_id, :thread_id, :channel, :session_no, :turn_id, :parts, 'waiting', :at, :at
);

-- name: insert_claimed_delivery
-- The process that writes it also sends it: nobody has to claim it.
INSERT INTO deliveries (
    id, profile, platform, chat_id, thread_id, channel, session_no, turn_id, parts, state, not_before, created_at,
    attempts, holder, lease_until
) VALUES (
    :id, :profile, :platform, :chat_id, :thread_id, :channel, :session_no, :turn_id, :parts, 'sending', :at, :at,
    1, :holder, :lease_until
) RETURNING no;

-- name: delivery_columns
d.no, d.id, d.profile, d.platform, d.chat_id, d.thread_id, s.id, d.turn_id, d.parts, d.state, d.attempts,
d.unclear_attempts, d.not_before, d.created_at, d.sent_at, d.reason, d.platform_message_id, d.redirected_to

-- name: get_delivery
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no
WHERE d.id = :id AND d.profile = :profile;

-- name: get_delivery_by_no
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no WHERE d.no = :no;

-- name: deliveries_of_session
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no
WHERE d.session_no = :no ORDER BY d.no;

-- name: claim_deliveries
-- The first open delivery of each channel whose time has come; a sender that died is overtaken.
UPDATE deliveries SET state = 'sending', attempts = attempts + 1, holder = :holder, lease_until = :lease_until,
    unclear_attempts = unclear_attempts + CASE WHEN state = 'sending' THEN 1 ELSE 0 END
WHERE no IN (
    SELECT d.no FROM deliveries d
    WHERE d.state IN ('waiting', 'sending') AND d.not_before <= :now
      AND (CAST(:platform AS TEXT) IS NULL OR d.platform = :platform)
      AND (CAST(:profile AS TEXT) IS NULL OR d.profile = :profile)
      AND (d.state = 'waiting' OR d.lease_until < :now)
      AND NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.channel = d.channel AND e.profile = d.profile
                        AND e.state IN ('waiting', 'sending') AND e.no < d.no)
    -- In the order of `deliveries_due`, so that only what is taken is looked at, however much waits.
    ORDER BY d.not_before, d.no LIMIT :limit
) AND (state = 'waiting' OR lease_until < :now)
RETURNING no, id;

-- name: mark_sent
-- Returns whether more is to be sent to its channel.
UPDATE deliveries SET state = 'sent', sent_at = :at, platform_message_id = :platform_message_id, holder = NULL,
    lease_until = NULL, reason = NULL
WHERE id = :id AND state = 'sending' AND holder = :holder
RETURNING (SELECT 1 FROM deliveries e WHERE e.channel = deliveries.channel AND e.profile = deliveries.profile
             AND e.state IN ('waiting', 'sending') AND e.no > deliveries.no LIMIT 1);

-- name: mark_failed
-- Try again not before the given time.
UPDATE deliveries SET state = 'waiting', not_before = :not_before, reason = :reason, holder = NULL, lease_until = NULL,
    unclear_attempts = unclear_attempts + :unclear, attempts = attempts - :uncounted
WHERE id = :id AND state = 'sending' AND holder = :holder;

-- name: mark_abandoned
-- A sender abandons only what it still holds; without a holder's name any delivery is abandoned.
UPDATE deliveries SET state = 'abandoned', reason = :reason, holder = NULL, lease_until = NULL
WHERE id = :id AND state IN ('waiting', 'sending')
  AND (CAST(:holder AS TEXT) IS NULL OR (state = 'sending' AND holder = :holder));

-- name: mark_bounced
-- The platform had taken it; a sender that is still at it finds that out when it marks.
UPDATE deliveries SET state = 'abandoned', reason = :reason, holder = NULL, lease_until = NULL
WHERE id = :id AND profile = :profile AND platform = :platform AND state IN ('sending', 'sent');

-- name: bring_deliveries_back
-- No platform asks for so much patience: the clock was set back since. A sender may still be at it.
UPDATE deliveries SET not_before = :now, lease_until = CASE WHEN state = 'sending' THEN CAST(:until AS BIGINT) END
WHERE state IN ('waiting', 'sending') AND not_before > :horizon;

-- name: not_being_sent
-- Nobody is sending it: it waits, was given up, or its sender's claim has run out.
(state IN ('waiting', 'abandoned') OR (state = 'sending' AND lease_until < :now))

-- name: mark_redirected
-- A sender whose claim has run out may have sent it: that is counted.
UPDATE deliveries SET state = 'redirected', redirected_to = :to, holder = NULL, lease_until = NULL,
    unclear_attempts = unclear_attempts + CASE WHEN state = 'sending' THEN 1 ELSE 0 END
WHERE id = :id AND {{not_being_sent}};

-- name: mark_abandoned_by_owner
UPDATE deliveries SET state = 'abandoned', reason = :reason, holder = NULL, lease_until = NULL,
    unclear_attempts = unclear_attempts + CASE WHEN state = 'sending' THEN 1 ELSE 0 END
WHERE id = :id AND state IN ('waiting', 'sending') AND {{not_being_sent}};

-- name: retry_delivery
-- Due now. What had been given up has all its attempts again; its id, by which platforms know it, stays.
UPDATE deliveries SET state = 'waiting', not_before = :now, holder = NULL, lease_until = NULL,
    attempts = CASE WHEN state = 'abandoned' THEN 0 ELSE attempts END,
    unclear_attempts = unclear_attempts + CASE WHEN state = 'sending' THEN 1 ELSE 0 END
WHERE id = :id AND {{not_being_sent}};

-- name: deliveries_by_prefix
SELECT id FROM deliveries WHERE id >= :first AND id < :beyond AND profile = :profile ORDER BY id LIMIT :limit;

-- name: list_deliveries
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no WHERE {{listed_deliveries}};

-- name: list_open_deliveries
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no
WHERE d.state IN ('waiting', 'sending') AND {{listed_deliveries}};

-- name: list_abandoned_deliveries
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no
WHERE d.state = 'abandoned' AND {{listed_deliveries}};

-- name: list_done_deliveries_of_channel
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no
WHERE d.state <> 'waiting' AND d.state <> 'sending' AND d.channel = :channel AND {{listed_deliveries}};

-- name: list_done_deliveries_of_platform
SELECT {{delivery_columns}} FROM deliveries d LEFT JOIN sessions s ON s.no = d.session_no
WHERE d.state <> 'waiting' AND d.state <> 'sending' AND d.platform = :platform AND {{listed_deliveries}};

-- name: platforms_of_deliveries
-- Every platform that a profile has sent to, one step through the index for each.
WITH RECURSIVE used (platform) AS (
    SELECT * FROM (
        SELECT platform FROM deliveries WHERE profile = :profile AND state <> 'waiting' AND state <> 'sending'
        ORDER BY platform LIMIT 1
    ) AS first_platform
    UNION ALL
    SELECT (SELECT d.platform FROM deliveries d
            WHERE d.profile = :profile AND d.state <> 'waiting' AND d.state <> 'sending' AND d.platform > used.platform
            ORDER BY d.platform LIMIT 1)
    FROM used WHERE used.platform IS NOT NULL
)
SELECT platform FROM used WHERE platform IS NOT NULL LIMIT :limit;

-- name: listed_deliveries
d.profile = :profile AND d.no < :before AND (CAST(:state AS TEXT) IS NULL OR d.state = :state)
AND (CAST(:platform AS TEXT) IS NULL OR d.platform = :platform)
AND (CAST(:channel AS TEXT) IS NULL OR d.channel = :channel)
ORDER BY d.no DESC LIMIT :limit

-- name: forget_deliveries
-- A purged session's words leave the outbox too; what was not sent is not sent empty, but given up.
UPDATE deliveries SET parts = '[]', session_no = NULL, holder = NULL, lease_until = NULL,
    reason = CASE WHEN state IN ('waiting', 'sending') THEN 'its session was purged' ELSE reason END,
    state = CASE WHEN state IN ('waiting', 'sending') THEN 'abandoned' ELSE state END
WHERE session_no = :no;
