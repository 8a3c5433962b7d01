"""The only layer that knows SQL: SQLite and PostgreSQL, migrations, tables and the search index."""
