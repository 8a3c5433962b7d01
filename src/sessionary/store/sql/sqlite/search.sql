-- The index file: derived from the log, deletable at any time.
PRAGMA application_id = 1213416265;
PRAGMA user_version = 6;
CREATE TABLE search_state (
    no        INTEGER PRIMARY KEY CHECK (no = 1),
    watermark INTEGER NOT NULL,
    store_id  TEXT NOT NULL
);
-- A document: a message's words are one, its steps another. `no` grows with the feed.
CREATE TABLE search_docs (
    no       INTEGER PRIMARY KEY,
    entry_no INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    length   INTEGER NOT NULL
);
CREATE TABLE search_titles (
    session_no INTEGER PRIMARY KEY,
    doc_no     INTEGER NOT NULL,
    title      TEXT NOT NULL
);
-- The words are in several tables, the newest documents in the last.
CREATE TABLE search_shards (
    no       INTEGER PRIMARY KEY,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL
);
-- The times of documents whose numbers follow each other: those of other times are passed over.
CREATE TABLE search_blocks (
    no       INTEGER PRIMARY KEY,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL
);
-- Which of the tables have words of a session.
CREATE TABLE search_places (
    session_no INTEGER NOT NULL,
    shard      INTEGER NOT NULL,
    PRIMARY KEY (session_no, shard)
) WITHOUT ROWID;
