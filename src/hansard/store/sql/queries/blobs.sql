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

-- name: delete_blob_if_unused
DELETE FROM blobs WHERE hash = :hash AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE hash = :hash);

-- name: entry_has_blob
SELECT 1 FROM blob_refs WHERE hash = :hash AND entry_no BETWEEN :first AND :last LIMIT 1;
