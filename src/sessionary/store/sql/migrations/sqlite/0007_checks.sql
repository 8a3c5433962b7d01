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
