-- The index file: derived from the log, deletable at any time.
PRAGMA application_id = 1213416265;
PRAGMA user_version = 1;
CREATE TABLE search_state (
    no        INTEGER PRIMARY KEY CHECK (no = 1),
    watermark INTEGER NOT NULL,
    store_id  TEXT NOT NULL
);
CREATE TABLE search_docs (
    position   INTEGER PRIMARY KEY,
    entry_no   INTEGER NOT NULL,
    at         INTEGER NOT NULL
);
CREATE INDEX search_docs_by_entry ON search_docs (entry_no);
CREATE VIRTUAL TABLE search_words USING fts5(
    body, parts, steps, facets, content = '', contentless_delete = 1, tokenize = 'ascii'
);
