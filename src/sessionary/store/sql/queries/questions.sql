-- Questions to people, and the rules that they make with their answers.

-- name: insert_question
INSERT INTO questions (id, profile, session_no, turn_id, name, code, token, body, state, asked_at, expires_at, due_at)
VALUES (:id, :profile, :session_no, :turn_id, :name, :code, :token, :body, 'open', :at, :expires_at, :due_at)
RETURNING no;

-- name: question_columns
q.no, q.id, q.profile, q.session_no, s.id, q.turn_id, q.name, q.code, q.token, q.body, q.state, q.asked_at, q.expires_at,
q.answered, q.started

-- name: get_question
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no WHERE q.id = :id;

-- name: get_question_by_token
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no WHERE q.token = :token;

-- name: question_ids_by_prefix
SELECT id FROM questions WHERE id >= :first AND id < :beyond AND profile = :profile ORDER BY id LIMIT :limit;

-- name: questions_of_turn
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no WHERE q.turn_id = :turn_id ORDER BY q.no;

-- name: page_of_open_questions
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no
WHERE q.profile = :profile AND q.state = 'open' AND q.no < :before ORDER BY q.no DESC LIMIT :limit;

-- name: has_open_questions
SELECT 1 FROM questions WHERE profile = :profile AND state = 'open' LIMIT 1;

-- name: page_of_questions
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no
WHERE q.profile = :profile AND q.no < :before ORDER BY q.no DESC LIMIT :limit;

-- name: page_of_session_questions
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no
WHERE q.session_no = :session_no AND q.no < :before AND (:only_open = 0 OR q.state = 'open') ORDER BY q.no DESC LIMIT :limit;

-- name: open_question_of_message
-- The open question that a message asks which was sent to a channel.
SELECT {{question_columns}} FROM question_cards c JOIN questions q ON q.no = c.question_no
JOIN sessions s ON s.no = q.session_no JOIN deliveries d ON d.id = c.delivery_id
WHERE c.channel IN (:channel, :chat) AND d.platform_message_id = :message_id AND q.profile = :profile AND q.state = 'open' LIMIT 1;

-- name: is_question_shown
-- Whether a question was sent to a channel before a time.
SELECT 1 FROM question_cards c JOIN deliveries d ON d.id = c.delivery_id
WHERE c.question_no = :no AND c.channel = :channel AND d.state = 'sent' AND d.sent_at <= :before LIMIT 1;

-- name: open_questions_by_code
SELECT {{question_columns}} FROM questions q JOIN sessions s ON s.no = q.session_no
WHERE q.profile = :profile AND q.state = 'open' AND q.code = :code LIMIT 2;

-- name: decide_question
-- The first decision counts.
UPDATE questions SET state = :state, decided_at = :at, answered = :answered WHERE no = :no AND state = 'open';

-- name: withdraw_questions
UPDATE questions SET state = 'withdrawn', decided_at = :at WHERE turn_id = :turn_id AND state = 'open' RETURNING id;

-- name: count_open_questions
SELECT COUNT(*) FROM questions WHERE turn_id = :turn_id AND state = 'open';

-- name: start_approved_call
UPDATE questions SET started = 1 WHERE turn_id = :turn_id AND name = :name AND state = 'answered' AND started = 0;

-- name: due_questions
SELECT q.id FROM questions q WHERE q.state = 'open' AND q.due_at <= :now AND q.profile = :profile
ORDER BY q.due_at LIMIT :limit;

-- name: put_question_off
-- It was reminded of: next it expires.
UPDATE questions SET due_at = expires_at WHERE no = :no AND state = 'open' AND due_at < expires_at;

-- name: insert_question_card
INSERT INTO question_cards (question_no, delivery_id, channel) VALUES (:question_no, :delivery_id, :channel);

-- name: move_question_cards
-- A chat has another id; its threads keep theirs.
UPDATE question_cards SET channel = :new || SUBSTR(channel, LENGTH(:old) + 1)
WHERE channel = :old OR (channel > :old || ':' AND channel < :old || ';');

-- name: cards_of_question
SELECT c.delivery_id, c.channel FROM question_cards c WHERE c.question_no = :no ORDER BY c.delivery_id;

-- name: delete_cards_of_question
DELETE FROM question_cards WHERE question_no = :no;

-- name: delete_question_cards
DELETE FROM question_cards WHERE question_no IN (SELECT no FROM questions WHERE session_no = :no);

-- name: delete_questions
DELETE FROM questions WHERE session_no = :no;

-- name: delete_session_approvals
DELETE FROM standing_approvals WHERE session_no = :no;

-- name: delete_person_approvals
DELETE FROM standing_approvals WHERE profile = :profile AND person = :person;

-- name: insert_standing_approval
INSERT INTO standing_approvals (id, profile, tool, session_no, person, given_by, by_owner, given_at, agent)
VALUES (:id, :profile, :tool, :session_no, :person, :given_by, :by_owner, :at, :agent)
ON CONFLICT DO NOTHING;

-- name: standing_approval_columns
a.no, a.id, a.tool, (SELECT s.id FROM sessions s WHERE s.no = a.session_no), a.person, a.given_by, a.by_owner, a.given_at, a.agent

-- name: find_session_approval
SELECT {{standing_approval_columns}} FROM standing_approvals a
WHERE a.session_no = :session_no AND a.tool = :tool AND COALESCE(a.agent, :agent) = :agent AND a.by_owner >= :by_owner
ORDER BY a.by_owner DESC LIMIT 1;

-- name: find_person_approval
SELECT {{standing_approval_columns}} FROM standing_approvals a
WHERE a.profile = :profile AND a.person = :person AND a.tool = :tool AND COALESCE(a.agent, :agent) = :agent
  AND a.by_owner >= :by_owner
ORDER BY a.by_owner DESC LIMIT 1;

-- name: list_standing_approvals
SELECT {{standing_approval_columns}} FROM standing_approvals a WHERE a.profile = :profile AND a.no < :before
ORDER BY a.no DESC LIMIT :limit;

-- name: delete_standing_approval
DELETE FROM standing_approvals WHERE profile = :profile AND id = :id;

-- name: park_turn
-- The turn waits for people: no process holds it, and no sweep finds it, because its lease ends never.
UPDATE turns SET holder = '', lease_until = {{never}}, partial = NULL, resumable = resumable | 2
WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: note_asking
-- The turn asks people something and keeps running.
UPDATE turns SET resumable = resumable | 2 WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: park_run
-- The scheduled run of a turn that waits for people waits with it.
UPDATE runs SET holder = '', lease_until = {{never}} WHERE session_no = :session_no AND state = 'running';

-- name: wake_run
UPDATE runs SET lease_until = 0 WHERE state = 'running' AND lease_until = {{never}}
  AND session_no = (SELECT t.session_no FROM turns t WHERE t.id = :turn_id);

-- name: wake_turn
-- Any process may continue the turn now that waits for people. One that a program has parked is left to the program,
-- unless it is to stop.
UPDATE turns SET lease_until = 0, resume_reason = :reason
WHERE id = :id AND state = 'running' AND holder = '' AND lease_until > 0 AND ((resumable & 4) = 0 OR stop IS NOT NULL);

-- name: give_program_time
-- The turn that a program has parked can go on: whoever looks for dead turns ends it if the program does not come back.
UPDATE turns SET lease_until = :until
WHERE id = :id AND state = 'running' AND lease_until = {{never}} AND (resumable & 4) = 4;

-- name: keep_program_state
-- Only a program goes on with the turn from now on. The new epoch fences a renewal of the lease that is still on its way.
UPDATE turns SET program_state = :state, resumable = resumable | 4, epoch = :new_epoch
WHERE id = :id AND state = 'running' AND epoch = :epoch;

-- name: get_program_state
SELECT program_state FROM turns WHERE id = :id AND (resumable & 4) = 4;

-- name: delete_program_state
UPDATE turns SET program_state = NULL WHERE id = :id;
