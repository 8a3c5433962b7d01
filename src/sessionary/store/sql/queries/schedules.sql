-- Scheduled tasks and their runs.

-- name: schedule_columns
no, id, profile, name, timing, zone, prompt, agent, deliver_to, origin, grace_seconds, paused, created_at, next_at,
by_program

-- name: insert_schedule
INSERT INTO schedules (id, profile, name, timing, zone, prompt, agent, deliver_to, origin, grace_seconds, created_at, next_at,
    by_program)
VALUES (:id, :profile, :name, :timing, :zone, :prompt, :agent, :deliver_to, :origin, :grace_seconds, :at, :next_at,
    :by_program);

-- name: list_schedules
SELECT {{schedule_columns}} FROM schedules WHERE profile = :profile AND removed_at IS NULL ORDER BY name;

-- name: get_schedule
SELECT {{schedule_columns}} FROM schedules
WHERE profile = :profile AND (name = :name OR id = :name) AND removed_at IS NULL;

-- name: get_schedule_by_no
SELECT {{schedule_columns}} FROM schedules WHERE no = :no;

-- name: due_schedules
SELECT {{schedule_columns}} FROM schedules
WHERE profile = :profile AND removed_at IS NULL AND paused = 0 AND next_at <= :now ORDER BY next_at LIMIT :limit;

-- name: set_next_at
UPDATE schedules SET next_at = :next_at WHERE no = :no;

-- name: set_paused
UPDATE schedules SET paused = :paused, next_at = :next_at WHERE no = :no;

-- name: remove_schedule
UPDATE schedules SET removed_at = :at, next_at = NULL WHERE no = :no;

-- name: insert_run
INSERT INTO runs (schedule_no, due_at, state, holder, lease_until, began_at, ended_at, reason)
VALUES (:schedule_no, :due_at, :state, :holder, :lease_until, :at, :ended_at, :reason)
ON CONFLICT (schedule_no, due_at) DO NOTHING;

-- name: set_run_session
UPDATE runs SET session_no = :session_no WHERE schedule_no = :schedule_no AND due_at = :due_at;

-- name: end_run
-- Where a time is given, only if its lease had run out by then: it may have been renewed since someone looked.
UPDATE runs SET state = :state, ended_at = :at, reason = :reason
WHERE schedule_no = :schedule_no AND due_at = :due_at AND state = 'running'
  AND (CAST(:expired AS BIGINT) IS NULL OR lease_until < :expired);

-- name: renew_run
UPDATE runs SET lease_until = :lease_until
WHERE schedule_no = :schedule_no AND due_at = :due_at AND state = 'running' AND holder = :holder;

-- name: take_over_run
UPDATE runs SET lease_until = :lease_until, holder = :holder
WHERE schedule_no = :schedule_no AND due_at = :due_at AND state = 'running';

-- name: running_run
SELECT schedule_no, due_at, session_no FROM runs WHERE session_no = :session_no AND state = 'running';

-- name: expired_runs
SELECT schedule_no, due_at, session_no FROM runs
WHERE state = 'running' AND lease_until < :now ORDER BY lease_until LIMIT :limit;

-- name: shorten_run_leases
-- As `shorten_leases`.
UPDATE runs SET lease_until = :until
WHERE state = 'running' AND lease_until > :horizon AND lease_until < {{never}};

-- name: list_runs
SELECT r.due_at, r.state, r.began_at, r.ended_at, s.id, r.reason FROM runs r LEFT JOIN sessions s ON s.no = r.session_no
WHERE r.schedule_no = :schedule_no ORDER BY r.due_at DESC LIMIT :limit;
