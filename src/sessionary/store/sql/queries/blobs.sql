-- Large pieces of content, kept once.

-- name: insert_blob
INSERT INTO blobs (hash, size, data) VALUES (:hash, :size, :data) ON CONFLICT (hash) DO NOTHING;

-- name: insert_blob_ref
INSERT INTO blob_refs (hash, entry_no) VALUES (:hash, :entry_no) ON CONFLICT (hash, entry_no) DO NOTHING;

-- name: get_blob
SELECT data FROM blobs WHERE hash = :hash;

-- name: has_blob
SELECT size FROM blobs WHERE hash = :hash;

-- name: blobs_of_entries
SELECT hash FROM blob_refs WHERE entry_no BETWEEN :first AND :last ORDER BY hash;

-- name: delete_blob_refs
DELETE FROM blob_refs WHERE entry_no BETWEEN :first AND :last;

-- name: delete_blob_ref
DELETE FROM blob_refs WHERE hash = :hash AND entry_no = :entry_no;

-- name: delete_blob_if_unused
DELETE FROM blobs WHERE hash = :hash
  AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE hash = :hash)
  AND NOT EXISTS (SELECT 1 FROM uploads WHERE hash = :hash)
  AND NOT EXISTS (SELECT 1 FROM files WHERE hash = :hash);

-- name: entry_has_blob
SELECT 1 FROM blob_refs WHERE hash = :hash AND entry_no BETWEEN :first AND :last LIMIT 1;

-- name: note_upload
INSERT INTO uploads (profile, hash, uploaded_at) VALUES (:profile, :hash, :at)
ON CONFLICT (profile, hash) DO UPDATE SET uploaded_at = excluded.uploaded_at;

-- name: profile_has_blob
-- Brought in by the profile itself, or part of one of its sessions.
SELECT 1 FROM uploads WHERE hash = :hash AND profile = :profile
UNION ALL
SELECT 1 FROM files WHERE hash = :hash AND profile = :profile
UNION ALL
SELECT 1 FROM blob_refs r JOIN sessions s ON s.no = r.entry_no >> 24
WHERE r.hash = :hash AND s.profile = :profile
LIMIT 1;

-- name: old_uploads
SELECT profile, hash FROM uploads WHERE uploaded_at < :before ORDER BY uploaded_at LIMIT :limit;

-- name: delete_upload
-- What waits in the inbox still needs its files.
DELETE FROM uploads WHERE hash = :hash AND profile = :profile AND NOT EXISTS (
    SELECT 1 FROM arrivals a
    WHERE a.profile = :profile AND a.state = 'waiting' AND a.message LIKE '%' || :hash || '%'
);
