PRAGMA journal_mode = WAL;
PRAGMA application_id = 1213416260;
