PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 33554432;
PRAGMA cache_size = -16384;
PRAGMA temp_store = MEMORY;
PRAGMA secure_delete = FAST;
