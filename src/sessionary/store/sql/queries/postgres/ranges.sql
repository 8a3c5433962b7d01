-- On PostgreSQL one table holds all words; there is nothing to note.

-- name: index_blocks
SELECT :first, :beyond;

-- name: widen_block
SELECT :no, :first_at, :last_at;

-- name: add_place
SELECT :session_no, :shard;

-- name: places_of_sessions
SELECT CAST(:numbers AS BIGINT[]);
