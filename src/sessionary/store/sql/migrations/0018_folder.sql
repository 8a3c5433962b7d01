-- The column that says in which list a session is had a private name.
ALTER TABLE sessions RENAME COLUMN shelf TO folder;
ALTER TABLE session_orders RENAME COLUMN shelf TO folder;
DROP INDEX sessions_by_shelf;
CREATE INDEX sessions_by_folder ON sessions (profile, folder, platform);

--@ postgres
CREATE OR REPLACE FUNCTION begin_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_orders VALUES (NEW.no, NEW.profile, NEW.folder, NEW.began_at,
        lower(COALESCE(NEW.title, NEW.preview, '') COLLATE "C"), NEW.cost_microusd);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION stay_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE session_orders SET profile = NEW.profile, folder = NEW.folder, began_at = NEW.began_at,
        name = lower(COALESCE(NEW.title, NEW.preview, '') COLLATE "C"), cost_microusd = NEW.cost_microusd
    WHERE session_no = NEW.no;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION sessions_hold_together() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind IN ('chat', 'job', 'subagent', 'import')
        AND NEW.folder IN ('chats', 'automation', 'archive', 'trash', 'gone')
        AND NEW.title_by IN ('person', 'agent', 'import')
        AND NEW.lineage IN ('fork', 'reset', 'continuation', 'subagent')
        AND NEW.pinned IN (0, 1) AND NEW.archived IN (0, 1) AND NEW.read_only IN (0, 1)
        AND NEW.read_through >= 0 AND NEW.base_seq >= 0 AND NEW.epoch >= 0
        AND NEW.calls >= 0 AND NEW.unknown_cost_calls >= 0 AND NEW.estimated_calls >= 0
        AND NEW.input_tokens >= 0 AND NEW.output_tokens >= 0 AND NEW.reasoning_tokens >= 0
        AND NEW.cache_read_tokens >= 0 AND NEW.cache_write_tokens >= 0 AND NEW.cost_microusd >= 0
        AND (NEW.ended_at IS NULL) = (NEW.end_reason IS NULL)
        AND (NEW.ended_at IS NULL OR NEW.ended_at >= NEW.began_at)
        AND (NEW.parent_no IS NULL) = (NEW.lineage IS NULL)
        AND (NEW.parent_no IS NULL OR NEW.parent_no <> NEW.no)) IS FALSE THEN
        RAISE EXCEPTION 'new row for relation "sessions" breaks a rule of the schema' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
