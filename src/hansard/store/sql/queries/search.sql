-- Search: what both databases share.

-- name: search_filters
s.profile = :profile AND s.shelf NOT IN ('trash', 'gone')
  AND d.at >= :after AND d.at < :before
  AND d.entry_no BETWEEN :first AND :last
  AND (CAST(:project_no AS BIGINT) IS NULL OR s.project_no = :project_no)
