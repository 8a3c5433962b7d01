--@ sqlite name 0007_checks
--@ sqlite
-- The same rules in words that SQLite checks faster: for `IN` with more than two values it makes a table
-- and fills it, for each row that is written, which takes longer than writing the row.
-- See https://sqlite.org/lang_altertable.html#otheralter: no row changes, so no table is made anew.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'kind IN (''message'', ''compaction'', ''retraction'')',
    'kind = ''message'' OR kind = ''compaction'' OR kind = ''retraction''')
WHERE type = 'table' AND name = 'entries';
UPDATE sqlite_schema SET sql = replace(sql,
    'role IN (''user'', ''assistant'', ''system'', ''tool'')',
    'role = ''user'' OR role = ''assistant'' OR role = ''system'' OR role = ''tool''')
WHERE type = 'table' AND name = 'entries';
UPDATE sqlite_schema SET sql = replace(sql,
    'cost_status IN (''estimated'', ''reported'', ''included'', ''unknown'')',
    'cost_status = ''estimated'' OR cost_status = ''reported'' OR cost_status = ''included'' OR cost_status = ''unknown''')
WHERE type = 'table' AND name = 'usage';
UPDATE sqlite_schema SET sql = replace(sql,
    'state IN (''running'', ''done'', ''failed'', ''interrupted'')',
    'state = ''running'' OR state = ''done'' OR state = ''failed'' OR state = ''interrupted''')
WHERE type = 'table' AND name = 'turns';
UPDATE sqlite_schema SET sql = replace(sql,
    'state IN (''waiting'', ''taken'', ''refused'')',
    'state = ''waiting'' OR state = ''taken'' OR state = ''refused''')
WHERE type = 'table' AND name = 'arrivals';
UPDATE sqlite_schema SET sql = replace(sql,
    'state IN (''waiting'', ''sending'', ''sent'', ''abandoned'', ''redirected'')',
    'state = ''waiting'' OR state = ''sending'' OR state = ''sent'' OR state = ''abandoned'' OR state = ''redirected''')
WHERE type = 'table' AND name = 'deliveries';
UPDATE sqlite_schema SET sql = replace(sql,
    'kind IN (''chat'', ''job'', ''subagent'', ''import'')',
    'kind = ''chat'' OR kind = ''job'' OR kind = ''subagent'' OR kind = ''import''')
WHERE type = 'table' AND name = 'sessions';
UPDATE sqlite_schema SET sql = replace(sql,
    'shelf IN (''chats'', ''automation'', ''archive'', ''trash'', ''gone'')',
    'shelf = ''chats'' OR shelf = ''automation'' OR shelf = ''archive'' OR shelf = ''trash'' OR shelf = ''gone''')
WHERE type = 'table' AND name = 'sessions';
UPDATE sqlite_schema SET sql = replace(sql,
    'title_by IN (''person'', ''agent'', ''import'')',
    'title_by = ''person'' OR title_by = ''agent'' OR title_by = ''import''')
WHERE type = 'table' AND name = 'sessions';
UPDATE sqlite_schema SET sql = replace(sql,
    'lineage IN (''fork'', ''reset'', ''continuation'', ''subagent'')',
    'lineage = ''fork'' OR lineage = ''reset'' OR lineage = ''continuation'' OR lineage = ''subagent''')
WHERE type = 'table' AND name = 'sessions';

-- A change that SQLite makes itself lets every other connection read the schema again.
DROP TRIGGER entries_leave_only_by_purge;
CREATE TRIGGER entries_leave_only_by_purge BEFORE DELETE ON entries
WHEN (SELECT purged_at FROM sessions WHERE no = OLD.entry_no >> 24) IS NULL
    AND NOT EXISTS (SELECT 1 FROM rewriting e WHERE e.entry_no = OLD.entry_no)
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;
PRAGMA writable_schema = RESET;
--@ postgres
-- The same rules in a form that an append does not pay for: PostgreSQL reads the text of every CHECK of a table
-- again for each statement that changes a row. What an append changes keeps its CHECKs.
ALTER TABLE sessions DROP CONSTRAINT sessions_kind_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_shelf_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_title_by_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_pinned_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_archived_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_read_only_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_read_through_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_lineage_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_base_seq_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_calls_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_unknown_cost_calls_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_estimated_calls_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_input_tokens_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_output_tokens_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_cache_read_tokens_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_cache_write_tokens_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_reasoning_tokens_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_cost_microusd_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_epoch_check;
ALTER TABLE sessions DROP CONSTRAINT sessions_check1;
ALTER TABLE sessions DROP CONSTRAINT sessions_check2;
ALTER TABLE sessions DROP CONSTRAINT sessions_check3;
ALTER TABLE sessions DROP CONSTRAINT sessions_check4;

CREATE FUNCTION sessions_hold_together() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind IN ('chat', 'job', 'subagent', 'import')
        AND NEW.shelf IN ('chats', 'automation', 'archive', 'trash', 'gone')
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
CREATE TRIGGER sessions_hold_together
BEFORE INSERT OR UPDATE OF no, kind, shelf, title_by, lineage, pinned, archived, read_only, read_through, base_seq, epoch,
    calls, unknown_cost_calls, estimated_calls, input_tokens, output_tokens, reasoning_tokens, cache_read_tokens,
    cache_write_tokens, cost_microusd, began_at, ended_at, end_reason, parent_no ON sessions
FOR EACH ROW EXECUTE FUNCTION sessions_hold_together();
