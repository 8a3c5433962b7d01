PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 2000;
PRAGMA journal_size_limit = 33554432;
PRAGMA cache_size = -16384;
PRAGMA temp_store = MEMORY;
PRAGMA trusted_schema = OFF;
