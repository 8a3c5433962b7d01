"""The embedded database: one SQLite file, one writer thread, a few readers."""
