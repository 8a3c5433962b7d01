-- The floor: the least that a log of sessions can do.

-- name: floor_tables
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE sessions (no INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL, last_active_at INTEGER NOT NULL, title TEXT);
CREATE INDEX by_activity ON sessions (last_active_at, no);
CREATE TABLE entries (entry_no INTEGER PRIMARY KEY, role TEXT, at INTEGER, body TEXT NOT NULL);

-- name: floor_session
INSERT INTO sessions (no, last_seq, last_active_at, title) VALUES (?, 0, ?, ?);

-- name: floor_advance
UPDATE sessions SET last_seq = last_seq + 1 WHERE no = ? RETURNING last_seq;

-- name: floor_entry
INSERT INTO entries (entry_no, role, at, body) VALUES (?, ?, ?, ?);

-- name: floor_list
SELECT no, last_seq, last_active_at, title FROM sessions ORDER BY last_active_at DESC, no DESC LIMIT 50;

-- name: floor_load
SELECT role, at, body FROM entries WHERE entry_no BETWEEN ? AND ? ORDER BY entry_no;

-- name: floor_end
SELECT MAX(entry_no) FROM entries;

-- A store as it is known: one connection, one commit per message, the full-text index in the insert.

-- name: peer_tables
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, title TEXT, started_at REAL, message_count INTEGER DEFAULT 0);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT, content TEXT, timestamp REAL
);
CREATE INDEX messages_session ON messages (session_id, timestamp);
CREATE VIRTUAL TABLE messages_fts USING fts5 (content, content = messages, content_rowid = id);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts (rowid, content) VALUES (new.id, new.content);
END;

-- name: peer_session
INSERT INTO sessions (id, source, title, started_at) VALUES (?, 'telegram', ?, ?);

-- name: peer_message
INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?);

-- name: peer_count
UPDATE sessions SET message_count = message_count + 1 WHERE id = ?;

-- name: peer_list
-- Activity and preview are made from the messages each time.
SELECT s.id, s.title, s.message_count, COALESCE(MAX(m.timestamp), s.started_at) AS last_active,
    (SELECT content FROM messages f WHERE f.session_id = s.id AND f.role = 'user' ORDER BY timestamp LIMIT 1)
FROM sessions s LEFT JOIN messages m ON m.session_id = s.id
GROUP BY s.id ORDER BY last_active DESC LIMIT 50;

-- name: peer_load
SELECT role, content, timestamp FROM messages WHERE session_id = ? ORDER BY timestamp, id;

-- PostgreSQL: a bare insert loop.

-- name: bare_table
CREATE TABLE IF NOT EXISTS bare (no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session BIGINT, body TEXT);

-- name: bare_insert
INSERT INTO bare (session, body) VALUES (%s, %s);

-- What a server of PostgreSQL has written to its log, and how large a database is.

-- name: server_written
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0');

-- name: server_size
SELECT pg_database_size(current_database()),
    COALESCE(SUM(pg_total_relation_size(oid)), 0)
FROM pg_class WHERE relkind = 'r' AND relname LIKE 'search%';

-- name: file_size
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size;

-- Search as it is known: FTS5 over the messages, the default tokenizer, every match ranked.

-- name: known_search_tables
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT, content TEXT);
CREATE VIRTUAL TABLE messages_fts USING fts5 (content, content = messages, content_rowid = id);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts (rowid, content) VALUES (new.id, new.content);
END;

-- name: known_search_message
INSERT INTO messages (session_id, role, content) VALUES (?, ?, ?);

-- name: known_search
SELECT m.id, m.session_id, m.role, snippet(messages_fts, 0, '>>>', '<<<', '...', 40)
FROM messages_fts JOIN messages m ON m.id = messages_fts.rowid
WHERE messages_fts MATCH ? ORDER BY rank LIMIT 20;

-- name: known_search_of_source
SELECT m.id, m.session_id, m.role, snippet(messages_fts, 0, '>>>', '<<<', '...', 40)
FROM messages_fts JOIN messages m ON m.id = messages_fts.rowid
WHERE messages_fts MATCH ? AND m.session_id % 5 = 1 ORDER BY rank LIMIT 20;

-- name: known_scan
-- Such stores order by the time of a message, which has no index: every message is read. Here the id stands for the time,
-- with a sign, because in the order of ids the scan would end at the twentieth match.
SELECT id, session_id, role, content FROM messages WHERE content LIKE ? ORDER BY +id DESC LIMIT 20;

-- name: floor_search
SELECT rowid FROM search_words WHERE search_words MATCH ? ORDER BY rowid DESC LIMIT 20;

-- name: floor_shards
SELECT no FROM search_shards ORDER BY no DESC;

-- name: unindexed_tables
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT, content TEXT);

-- A store's tables, from a file to a server.

-- name: rows_of_file
SELECT some_columns FROM some_table;

-- name: copy_in
COPY some_table (some_columns) FROM STDIN;

-- name: vacuum
VACUUM (ANALYZE);

-- name: checkpoint
CHECKPOINT;
