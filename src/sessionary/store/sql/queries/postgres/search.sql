-- Search on PostgreSQL: the index is tables of its own.

-- name: handed_out
-- The last position that was handed out. It is read before the feeder has a transaction id of its own: every
-- transaction that holds a position up to this one then has a smaller id than the feeder.
SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('feed', 'position')), 0);

-- name: lock_index
-- One feeder at a time; the row lock gives it a transaction id. Says whether every transaction of the last
-- round's time has ended.
SELECT CASE WHEN horizon < pg_snapshot_xmin(pg_current_snapshot()) THEN 1 ELSE 0 END
FROM search_state, pg_advisory_xact_lock(hashtextextended('sessionary/index', 0)) FOR UPDATE OF search_state;

-- name: index_state
-- What is missing is counted up to a thousand. Of a long backlog the positions tell how many they are, or somewhat more:
-- a transaction that was rolled back has used some up. Counting a million would take longer than indexing a batch.
WITH state AS MATERIALIZED (
    SELECT s.watermark, (SELECT COALESCE(MAX(position), 0) FROM feed) AS newest, (SELECT COUNT(*) FROM (
        SELECT 1 FROM feed f WHERE f.position > s.watermark
          AND NOT EXISTS (SELECT 1 FROM search_taken t WHERE t.position = f.position) LIMIT 1000
    ) AS missing) AS counted
    FROM (SELECT COALESCE(MAX(watermark), 0) AS watermark FROM search_state) s
)
SELECT watermark, CASE WHEN counted < 1000 THEN counted ELSE GREATEST(counted, newest - watermark - (
    SELECT COUNT(*) FROM search_taken WHERE position > watermark
)) END, newest - watermark
FROM state;

-- name: newest_taken
SELECT COALESCE(MAX(position), 0) FROM search_taken;

-- name: feed_to_index
-- A transaction that began earlier may commit later, below what was seen: whatever is above the watermark
-- and was not taken is new. What is settled lies below the next watermark and needs no mark. The feed
-- is limited before the marks are compared: while the tables are young, the planner would read the whole backlog
-- for each batch.
WITH state AS (
    SELECT GREATEST(watermark, :after) AS first, CASE WHEN :settled = 1 THEN seen ELSE 0 END AS settled FROM search_state
), new AS (
    SELECT f.position, f.session_no, f.seq, f.what FROM (
        SELECT position, session_no, seq, what FROM feed WHERE position > (SELECT first FROM state) ORDER BY position
        LIMIT :limit + (SELECT COUNT(*) FROM search_taken WHERE position > (SELECT first FROM state))
    ) AS f
    WHERE NOT EXISTS (SELECT 1 FROM search_taken t WHERE t.position = f.position)
    ORDER BY f.position LIMIT :limit
), taken AS (
    INSERT INTO search_taken (position) SELECT position FROM new WHERE position > (SELECT settled FROM state)
)
SELECT new.position, new.session_no, new.seq, new.what, e.role, COALESCE(e.at, s.began_at), e.body, s.profile,
    s.platform, s.title, s.purged_at, new.seq > s.base_seq AND new.seq <= s.last_seq
FROM new LEFT JOIN sessions s ON s.no = new.session_no
LEFT JOIN entries e ON e.entry_no = (new.session_no << 24 | new.seq) AND new.seq > 0
ORDER BY new.position;

-- name: advance_watermark
-- What had been handed out when the round began is settled once every transaction of that time has ended. The
-- watermark follows the batches up to there; then a new round begins.
WITH moved AS (
    UPDATE search_state SET
        watermark = CASE WHEN :complete = 1 THEN seen ELSE LEAST(seen, :last) END,
        seen = CASE WHEN :complete = 1 OR :last >= seen THEN GREATEST(seen, :handed_out) ELSE seen END,
        -- Not the snapshot's xmax: that is one past the last transaction that ended, and others with larger
        -- ids may be running.
        horizon = CASE WHEN :complete = 1 OR :last >= seen THEN pg_current_xact_id() ELSE horizon END
    WHERE :settled = 1
    RETURNING watermark
)
DELETE FROM search_taken WHERE position <= (SELECT watermark FROM moved);

-- name: insert_doc
-- A whole batch in one statement; the words come as vectors.
WITH new AS (
    SELECT no, entry_no, at, length, is_long, words FROM json_to_recordset(CAST(:rows AS JSON))
        AS d (no BIGINT, entry_no BIGINT, at BIGINT, length BIGINT, is_long BIGINT, words TEXT)
), blocks AS (
    INSERT INTO search_blocks (no, first_at, last_at)
    SELECT no >> 14, MIN(at), MAX(at) FROM new GROUP BY no >> 14
    ON CONFLICT (no) DO UPDATE SET
        first_at = LEAST(search_blocks.first_at, excluded.first_at),
        last_at = GREATEST(search_blocks.last_at, excluded.last_at)
), places AS (
    INSERT INTO search_places (session_no, block) SELECT DISTINCT entry_no >> 24, no >> 14 FROM new
    ON CONFLICT (session_no, block) DO NOTHING
)
INSERT INTO search_docs (no, entry_no, at, length, is_long, words)
SELECT no, entry_no, at, length, is_long, CAST(words AS TSVECTOR) FROM new
ON CONFLICT (no) DO NOTHING;

-- name: places_of_sessions
SELECT block, session_no FROM search_places WHERE session_no {{among_numbers}};

-- name: blocks_between
-- The blocks that may have documents of these times, newest first, and whether all of theirs are.
SELECT no, CASE WHEN first_at >= :after AND last_at < :before THEN 1 ELSE 0 END FROM search_blocks
WHERE first_at < :before AND last_at >= :after ORDER BY no DESC;

-- name: index_in_bulk
-- New words wait in a list before they are sorted into the index. Every search reads the list, so it is short; while
-- a backlog is indexed nobody searches, and a long one takes 40 % less time.
SET LOCAL gin_pending_list_limit = 4096;

-- name: sort_words
-- Sort in the words that wait; only the index's owner may.
SELECT gin_clean_pending_list(oid) FROM pg_class
WHERE oid = CAST('search_docs_by_words' AS REGCLASS) AND pg_has_role(relowner, 'USAGE');

-- name: docs_without_entry
SELECT d.no FROM search_docs d
WHERE d.words @@ CAST(:match AS TSQUERY)
  AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.entry_no = d.entry_no);

-- name: matching_docs
-- Everything that matches, then the newest of it: a walk down the primary key would take seconds for a rare word.
-- Two halves: with OR between them every text would be unpacked and looked at again.
SELECT no, entry_no, at, is_long, ctid AS place FROM search_docs
WHERE words @@ CAST(:match AS TSQUERY) AND is_long = 0
UNION ALL
SELECT no, entry_no, at, is_long, ctid FROM search_docs
WHERE words @@ CAST(:loose AS TSQUERY) AND is_long = 1

-- name: session_of_doc
-- Looked up for each match: joined plainly, all sessions of the store would be read, whatever there are.
LEFT JOIN LATERAL (
    SELECT no, profile, project_no, folder FROM sessions WHERE no = d.entry_no >> 24 OFFSET 0
) s ON TRUE

-- name: among_sessions
-- Very many sessions are compared here: as words of the query, all of them would be looked at for each match.
(:sessions = '{}' OR d.entry_no >> 24 IN (SELECT unnest(CAST(:sessions AS BIGINT[]))))

-- name: ranked
-- The row is read again where it was found a moment ago: its words would have been carried along in vain.
-- What is only counted, because its area is not asked for, needs no score.
SELECT n.no, CASE WHEN n.no & 1 <= :last_area THEN ts_rank(w.words, CAST(:rank AS TSQUERY)) ELSE 0 END, n.is_long
FROM newest n JOIN search_docs w ON w.ctid = n.place ORDER BY n.no DESC

-- name: find_newest
WITH found AS MATERIALIZED ({{matching_docs}})
SELECT d.no, 0.0, d.is_long FROM found d
WHERE d.no >= :above AND d.no < :below ORDER BY d.no DESC LIMIT :limit;

-- name: find_scored
WITH found AS MATERIALIZED ({{matching_docs}}), newest AS (
    SELECT no, is_long, place FROM found WHERE no >= :above AND no < :below ORDER BY no DESC LIMIT :limit
)
{{ranked}};

-- name: find_newest_filtered
WITH found AS MATERIALIZED ({{matching_docs}})
SELECT d.no, 0.0, d.is_long
FROM found d {{session_of_doc}}
WHERE d.no >= :above AND d.no < :below AND {{among_sessions}} AND {{search_filters}}
ORDER BY d.no DESC LIMIT :limit;

-- name: find_scored_filtered
WITH found AS MATERIALIZED ({{matching_docs}}), newest AS (
    SELECT d.no, d.is_long, d.place
    FROM found d {{session_of_doc}}
    WHERE d.no >= :above AND d.no < :below AND {{among_sessions}} AND {{search_filters}}
    ORDER BY d.no DESC LIMIT :limit
)
{{ranked}};

-- name: these_numbers
unnest(CAST(:numbers AS BIGINT[])) AS w (value)

-- name: near_words
-- Words of the newest documents that begin alike: candidates for another spelling.
SELECT word, CAST(ndoc AS BIGINT) FROM ts_stat(
    'SELECT words FROM search_docs WHERE no > (SELECT COALESCE(MAX(no), 0) - 20000 FROM search_docs)'
) WHERE word COLLATE "C" >= :first AND word COLLATE "C" < :beyond ORDER BY ndoc DESC LIMIT :limit;

-- name: clear_index
WITH state AS (UPDATE search_state SET watermark = 0, seen = 0, horizon = '0'),
    taken AS (DELETE FROM search_taken), titles AS (DELETE FROM search_titles), blocks AS (DELETE FROM search_blocks),
    places AS (DELETE FROM search_places)
DELETE FROM search_docs;

-- name: add_index_state
-- The state came with the tables, unless someone emptied them.
INSERT INTO search_state (no, watermark, seen, horizon) VALUES (1, 0, 0, '0')
ON CONFLICT (no) DO NOTHING;

-- name: unseen_feed
FROM feed f WHERE f.position > (SELECT COALESCE(MAX(watermark), 0) FROM search_state)
    AND NOT EXISTS (SELECT 1 FROM search_taken t WHERE t.position = f.position)

-- name: docs_without_words
SELECT no FROM search_docs WHERE no >= :first AND no < :beyond AND length > 0 AND words = CAST('' AS TSVECTOR) LIMIT 1;
