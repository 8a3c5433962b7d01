-- A code is looked up among the open questions only.
CREATE INDEX questions_by_code ON questions (profile, code) WHERE state = 'open';

CREATE INDEX questions_by_id ON questions (profile, id);
CREATE INDEX runs_by_session ON runs (session_no) WHERE state = 'running';

-- Only open questions have cards from now on.
DELETE FROM question_cards WHERE question_no IN (SELECT no FROM questions WHERE state <> 'open');

-- A rule counts for the agent whose call was approved; those of before count for every agent.
ALTER TABLE standing_approvals ADD COLUMN agent TEXT COLLATE "C";
DROP INDEX standing_approvals_by_session;
DROP INDEX standing_approvals_by_person;
CREATE UNIQUE INDEX standing_approvals_by_session ON standing_approvals (session_no, tool, COALESCE(agent, ''), by_owner)
    WHERE session_no IS NOT NULL;
CREATE UNIQUE INDEX standing_approvals_by_person ON standing_approvals (profile, person, tool, COALESCE(agent, ''), by_owner)
    WHERE person IS NOT NULL;

-- Whether a program made the task with a token that may write but not approve: its runs have no owner's rights.
ALTER TABLE schedules ADD COLUMN by_program BIGINT NOT NULL DEFAULT 0 CHECK (by_program IN (0, 1));

-- Whether a person was told that their message waits is seen from the messages that wait already.
ALTER TABLE questions DROP COLUMN told_to_wait;

-- A message that has answered a question looked like a command.
UPDATE arrivals SET reason = 'answers question ' || SUBSTR(reason, 11) WHERE reason LIKE '/question %';
