-- A turn whose process has ended is continued by another one. The turn's epoch fences the process before.
ALTER TABLE turns ADD COLUMN resumable BIGINT NOT NULL DEFAULT 0;
-- How often it was continued, and why the last time.
ALTER TABLE turns ADD COLUMN resumed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN resume_reason TEXT;
-- How often its process died, and the last entry of the session when it was continued after that.
ALTER TABLE turns ADD COLUMN crashes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN crash_seq BIGINT;
-- What the model was sent besides the messages: system prompt, tools, model, settings. A blob.
ALTER TABLE turns ADD COLUMN request_hash TEXT COLLATE "C";
-- How many tokens the last model call had, as its provider counted them, and the last entry that it covers.
ALTER TABLE sessions ADD COLUMN context_tokens BIGINT NOT NULL DEFAULT 0 CHECK (context_tokens >= 0);
ALTER TABLE sessions ADD COLUMN context_seq BIGINT NOT NULL DEFAULT 0 CHECK (context_seq >= 0);
