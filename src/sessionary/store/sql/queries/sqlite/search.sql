-- Search on SQLite: the index is a file of its own, to which the log is attached.

-- name: index_state
SELECT s.watermark, MAX(0, (SELECT COALESCE(MAX(position), 0) FROM feed) - s.watermark), 0 FROM search_state s;

-- name: feed_to_index
SELECT f.position, f.session_no, f.seq, f.what, e.role, COALESCE(e.at, s.began_at), e.body, s.profile, s.platform,
    s.title, s.purged_at, f.seq > s.base_seq AND f.seq <= s.last_seq
FROM feed f LEFT JOIN sessions s ON s.no = f.session_no
LEFT JOIN entries e ON e.entry_no = (f.session_no << 24 | f.seq) AND f.seq > 0
WHERE f.position > (SELECT watermark FROM search_state)
ORDER BY f.position LIMIT :limit;

-- name: advance_watermark
UPDATE search_state SET watermark = :last WHERE :last > watermark;

-- name: insert_doc
INSERT OR REPLACE INTO search_docs (no, entry_no, at, length) VALUES (:no, :entry_no, :at, :length);

-- name: insert_words
INSERT OR REPLACE INTO search_words (rowid, words) VALUES (:no, :words);

-- name: delete_words
DELETE FROM search_words WHERE rowid = :no;

-- name: docs_without_entry
SELECT d.no FROM search_words JOIN search_docs d ON d.no = search_words.rowid
WHERE search_words MATCH :match
  AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.entry_no = d.entry_no);

-- name: found_words
-- Newest first, limited inside the index; nothing else is touched.
FROM search_words
WHERE search_words MATCH :match AND rowid >= :above AND rowid < :below
ORDER BY rowid DESC LIMIT :limit

-- name: found_words_filtered
-- What the index does not know is looked up as the matches come.
FROM search_words CROSS JOIN search_docs d ON d.no = search_words.rowid
LEFT JOIN sessions s ON s.no = d.entry_no >> 24
WHERE search_words MATCH :match AND search_words.rowid >= :above AND search_words.rowid < :below
  AND {{search_filters}}
ORDER BY search_words.rowid DESC LIMIT :limit

-- name: occurrences
-- What is only counted, because its area is not asked for, needs no score.
CASE WHEN search_words.rowid & 1 <= :last_area THEN sessionary_count(search_words) - :given ELSE 0 END

-- name: scored
CASE WHEN search_words.rowid & 1 <= :last_area THEN sessionary_score(search_words, :rank) ELSE 0.0 END

-- name: find_newest
SELECT rowid, 0.0 {{found_words}};

-- name: find_counted
SELECT rowid, {{occurrences}} {{found_words}};

-- name: find_scored
SELECT rowid, {{scored}} {{found_words}};

-- name: find_newest_filtered
SELECT d.no, 0.0 {{found_words_filtered}};

-- name: find_counted_filtered
SELECT d.no, {{occurrences}} {{found_words_filtered}};

-- name: find_scored_filtered
SELECT d.no, {{scored}} {{found_words_filtered}};

-- name: these_numbers
json_each('[' || TRIM(:numbers, '{}') || ']') w

-- name: index_shards
SELECT no, first_at, last_at FROM search_shards ORDER BY no DESC;

-- name: add_shard
INSERT INTO search_shards (no, first_at, last_at) VALUES (:no, 4611686018427387904, -4611686018427387904);

-- name: widen_shard
UPDATE search_shards SET first_at = MIN(first_at, :first_at), last_at = MAX(last_at, :last_at) WHERE no = :no;

-- name: near_words
-- Words of the vocabulary that begin alike: candidates for another spelling.
SELECT term FROM search_vocabulary
WHERE term >= :first AND term < :beyond AND LENGTH(term) BETWEEN :shortest AND :longest LIMIT :limit;

-- name: clear_index
DELETE FROM search_docs;
DELETE FROM search_shards;
DELETE FROM search_blocks;
DELETE FROM search_places;
DELETE FROM search_titles;
UPDATE search_state SET watermark = 0;

-- name: begin_index
INSERT INTO search_state (no, watermark, store_id) VALUES (1, 0, :store_id);

-- name: index_identity
SELECT s.store_id, s.watermark, (SELECT COALESCE(MAX(position), 0) FROM feed) FROM search_state s;

-- name: has_index
SELECT 1 FROM sqlite_master WHERE name = 'search_state';

-- name: unseen_feed
FROM feed f WHERE f.position > (SELECT watermark FROM search_state)

-- name: docs_without_words
SELECT d.no FROM search_docs d WHERE d.no >= :first AND d.no < :beyond
  AND NOT EXISTS (SELECT 1 FROM search_words_docsize w WHERE w.id = d.no) LIMIT 1;

-- name: index_blocks
SELECT no, first_at, last_at FROM search_blocks WHERE no >= :first AND no < :beyond;

-- name: widen_block
INSERT INTO search_blocks (no, first_at, last_at) VALUES (:no, :first_at, :last_at)
ON CONFLICT (no) DO UPDATE SET
    first_at = MIN(first_at, excluded.first_at), last_at = MAX(last_at, excluded.last_at);

-- name: add_place
INSERT OR IGNORE INTO search_places (session_no, shard) VALUES (:session_no, :shard);

-- name: places_of_sessions
SELECT shard, session_no FROM search_places WHERE session_no {{among_numbers}};
