-- Search: what both databases share.

-- name: search_filters
-- A session in the trash is hidden, unless a fork still shows what is asked for. A document whose session is
-- missing passes: showing it reports that the store is damaged.
(s.no IS NULL OR s.profile = :profile AND d.at >= :after AND d.at < :before
  AND (:projects = '' OR :projects LIKE '%,' || s.project_no || ',%')
  AND (s.folder NOT IN ('trash', 'gone') OR EXISTS (
      SELECT 1 FROM sessions c WHERE c.parent_no = s.no AND c.lineage IN ('fork', 'continuation')
        AND c.base_seq >= d.entry_no & 16777215 AND d.entry_no & 16777215 > 0)))

-- name: doc_columns
d.no, d.entry_no, d.at, d.length, s.folder
FROM search_docs d LEFT JOIN sessions s ON s.no = d.entry_no >> 24

-- name: get_docs
SELECT {{doc_columns}} WHERE d.no {{among_numbers}};

-- name: hidden_sessions
-- Those in the trash that no fork continues. 0 stands for all of other profiles: when anyone else is here,
-- the profile is one of the words that are looked for.
SELECT no FROM (
    SELECT s.no FROM sessions s WHERE s.profile = :profile AND s.folder = 'trash' AND NOT EXISTS (
        SELECT 1 FROM sessions c WHERE c.parent_no = s.no AND c.lineage IN ('fork', 'continuation')
    ) LIMIT :limit
) AS hidden
UNION ALL SELECT 0 WHERE EXISTS (SELECT 1 FROM sessions WHERE profile < :profile)
    OR EXISTS (SELECT 1 FROM sessions WHERE profile > :profile);

-- name: projects_sessions
SELECT no FROM sessions WHERE project_no = :project_no LIMIT :limit;

-- name: get_heads_by_no
SELECT {{head_columns}} FROM {{head_tables}} WHERE s.no {{among_numbers}};

-- name: read_around
-- Entries, and what was said near them in the same session. What tools said may be long: it is passed over.
-- Sessions are compared by their difference: as an equation PostgreSQL would read the whole log to join by it.
SELECT w.value, e.entry_no, e.role, e.body
FROM {{these_numbers}} CROSS JOIN entries e
WHERE e.entry_no BETWEEN w.value - :distance AND w.value + :distance AND (e.entry_no >> 24) - (w.value >> 24) = 0
  AND (e.entry_no = w.value OR e.role IN ('user', 'assistant'));

-- name: delete_doc
DELETE FROM search_docs WHERE no = :no;

-- name: newest_position
SELECT COALESCE(MAX(position), 0) FROM feed;

-- name: indexed_titles
SELECT session_no, doc_no, title FROM search_titles WHERE session_no {{among_numbers}};

-- name: set_indexed_title
INSERT INTO search_titles (session_no, doc_no, title) VALUES (:session_no, :doc_no, :title)
ON CONFLICT (session_no) DO UPDATE SET doc_no = excluded.doc_no, title = excluded.title;

-- name: forget_title
DELETE FROM search_titles WHERE session_no = :session_no;

-- name: unindexed_entries
-- Entries that no document stands for, though the index has seen them. EXCEPT sorts: it costs the same at any size.
SELECT e.entry_no, e.role, e.at, e.body, s.profile, s.platform
FROM (
    SELECT entry_no FROM entries WHERE entry_no > :after
    EXCEPT SELECT entry_no FROM search_docs
    EXCEPT SELECT f.session_no << 24 | f.seq {{unseen_feed}}
) AS missing
JOIN entries e ON e.entry_no = missing.entry_no JOIN sessions s ON s.no = e.entry_no >> 24
WHERE s.folder <> 'gone' ORDER BY e.entry_no LIMIT :limit;

-- name: stray_docs
-- Documents of entries that are not there any more.
SELECT d.entry_no FROM search_docs d LEFT JOIN entries e ON e.entry_no = d.entry_no
WHERE e.entry_no IS NULL AND d.entry_no & 16777215 > 0 LIMIT 1;
