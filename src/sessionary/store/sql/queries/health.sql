-- What waits, and what is stuck.

-- name: health
SELECT
    (SELECT COUNT(*) FROM turns WHERE state = 'running' AND lease_until < :now),
    (SELECT COUNT(*) FROM arrivals WHERE state = 'waiting'),
    (SELECT COUNT(*) FROM deliveries WHERE state IN ('waiting', 'sending')),
    (SELECT COUNT(*) FROM deliveries WHERE state = 'abandoned');
