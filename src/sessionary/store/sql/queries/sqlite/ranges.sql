-- Where in the index what is asked for can be: the times of its blocks, the sessions of its tables.

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
