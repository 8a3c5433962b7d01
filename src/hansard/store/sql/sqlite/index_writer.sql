PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 2000;
PRAGMA cache_size = -16384;
PRAGMA temp_store = MEMORY;
PRAGMA trusted_schema = OFF;
