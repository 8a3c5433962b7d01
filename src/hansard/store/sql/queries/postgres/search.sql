-- Search on PostgreSQL: the index is tables of its own.

-- name: lock_index
-- One feeder at a time. Says whether every transaction of the last round's time has ended.
SELECT CASE WHEN horizon < pg_snapshot_xmin(pg_current_snapshot()) THEN 1 ELSE 0 END
FROM search_state, pg_advisory_xact_lock(hashtextextended('hansard/index', 0)) FOR UPDATE OF search_state;

-- name: index_state
SELECT s.watermark, (SELECT COUNT(*) FROM (
    SELECT 1 FROM feed f WHERE f.position > s.watermark
      AND NOT EXISTS (SELECT 1 FROM search_taken t WHERE t.position = f.position) LIMIT 1000000
) AS missing)
FROM search_state s;

-- name: feed_to_index
-- A transaction that began earlier may commit later, below what was seen: whatever is above the
-- watermark and was not taken is new.
WITH new AS (
    SELECT f.position, f.session_no, f.seq, f.what FROM feed f
    WHERE f.position > (SELECT watermark FROM search_state)
      AND NOT EXISTS (SELECT 1 FROM search_taken t WHERE t.position = f.position)
    ORDER BY f.position LIMIT :limit
), taken AS (
    INSERT INTO search_taken (position) SELECT position FROM new
)
SELECT new.position, new.session_no, new.seq, new.what, e.role, COALESCE(e.at, s.began_at), e.body, s.profile,
    s.platform, s.title, s.purged_at
FROM new JOIN sessions s ON s.no = new.session_no
LEFT JOIN entries e ON e.entry_no = (new.session_no << 24 | new.seq) AND new.seq > 0
ORDER BY new.position;

-- name: advance_watermark
-- What had been handed out when the last round began is settled once every transaction of that time has
-- ended and everything was taken; then a new round begins.
WITH moved AS (
    UPDATE search_state SET
        watermark = seen,
        seen = COALESCE(pg_sequence_last_value(pg_get_serial_sequence('feed', 'position')), 0),
        horizon = pg_snapshot_xmax(pg_current_snapshot())
    WHERE :settled = 1 AND :complete = 1 AND :seen >= 0
    RETURNING watermark
)
DELETE FROM search_taken WHERE position <= (SELECT watermark FROM moved);

-- name: insert_doc
INSERT INTO search_docs (position, entry_no, at, is_long, body, steps)
VALUES (:position, :entry_no, :at, :is_long,
    hansard_vector(CASE WHEN :is_long = 1 THEN '' ELSE :body END,
        concat_ws(' ', CASE WHEN :is_long = 1 THEN :body ELSE '' END, CAST(:parts AS TEXT), CAST(:facets AS TEXT))),
    hansard_vector(CASE WHEN :is_long = 1 THEN '' ELSE :steps END,
        concat_ws(' ', CASE WHEN :is_long = 1 THEN :steps ELSE '' END, CAST(:facets AS TEXT))))
ON CONFLICT (position) DO NOTHING;

-- name: insert_words
-- The words went in with the document.
SELECT :position;

-- name: delete_words
SELECT :first, :last;

-- name: delete_docs
DELETE FROM search_docs WHERE entry_no BETWEEN :first AND :last;

-- name: newest_matches
-- Only SQLite has one text for both.
SELECT 1

-- name: find_in_body
-- Everything that matches, then the newest of it: a walk down the primary key would take seconds for a rare word.
WITH found AS MATERIALIZED (
    SELECT position, entry_no, at, is_long, body FROM search_docs
    WHERE (body @@ CAST(:match AS TSQUERY) AND is_long = 0) OR (body @@ CAST(:loose AS TSQUERY) AND is_long = 1)
)
SELECT d.position, d.entry_no, d.at, ts_rank(d.body, CAST(:match AS TSQUERY), 1), d.is_long
FROM found d JOIN sessions s ON s.no = d.entry_no >> 24
WHERE d.position < :below AND {{search_filters}}
ORDER BY d.position DESC LIMIT :limit;

-- name: find_in_steps
WITH found AS MATERIALIZED (
    SELECT position, entry_no, at, is_long, steps FROM search_docs
    WHERE (steps @@ CAST(:match AS TSQUERY) AND is_long = 0) OR (steps @@ CAST(:loose AS TSQUERY) AND is_long = 1)
)
SELECT d.position, d.entry_no, d.at, ts_rank(d.steps, CAST(:match AS TSQUERY), 1), d.is_long
FROM found d JOIN sessions s ON s.no = d.entry_no >> 24
WHERE d.position < :below AND {{search_filters}}
ORDER BY d.position DESC LIMIT :limit;

-- name: near_words
-- Words of the newest documents that begin alike: candidates for another spelling.
SELECT word, CAST(ndoc AS BIGINT) FROM ts_stat(
    'SELECT body FROM search_docs WHERE position > (SELECT COALESCE(MAX(position), 0) - 5000 FROM search_docs)'
) WHERE word COLLATE "C" >= :first AND word COLLATE "C" < :beyond ORDER BY ndoc DESC LIMIT :limit;

-- name: clear_index
TRUNCATE search_docs, search_taken;

-- name: reset_watermark
UPDATE search_state SET watermark = 0, seen = 0, horizon = '0';

-- name: begin_index
-- The state came with the tables.
SELECT :store_id;

-- name: index_identity
SELECT '', s.watermark, (SELECT COALESCE(MAX(position), 0) FROM feed) FROM search_state s;

-- name: has_index
SELECT 1;
