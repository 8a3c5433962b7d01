-- Writing to the log, as each database does it with the fewest questions.

-- name: advance_with_entry
-- All that most appends need, at once: the server is asked one time.
WITH advanced AS ({{advance}}), logged AS (
    INSERT INTO entries (entry_no, kind, role, at, turn_id, body)
    SELECT no << 24 | last_seq, 'message', :role, :at, NULLIF(:turn_id, ''), :body FROM advanced
), told AS (
    INSERT INTO feed (session_no, seq, what) SELECT no, last_seq, 'entry' FROM advanced
)
SELECT no, last_seq, wants_preview FROM advanced;

-- name: wait_briefly
-- For the rest of this transaction no lock is waited for longer than this many milliseconds.
SET LOCAL lock_timeout = 100;

-- name: plan_by_index
-- Every query has its index. A young table has no statistics yet, a plan is kept, and reading the whole
-- table would go on when it has grown.
SET enable_seqscan = off;
