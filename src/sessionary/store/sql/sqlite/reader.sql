PRAGMA query_only = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cache_size = -8192;
PRAGMA temp_store = MEMORY;
