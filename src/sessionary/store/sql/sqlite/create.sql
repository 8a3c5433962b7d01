PRAGMA application_id = 1213416260;
PRAGMA journal_mode = WAL;
