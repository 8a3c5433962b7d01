PRAGMA synchronous = FULL;
-- On macOS a plain fsync leaves what was written in the drive's own cache; elsewhere these say nothing.
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 33554432;
PRAGMA cache_size = -16384;
PRAGMA temp_store = MEMORY;
-- What is purged is not left in free pages either; FAST would leave long texts there.
PRAGMA secure_delete = ON;
