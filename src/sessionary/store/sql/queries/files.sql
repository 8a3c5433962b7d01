-- Files that programs keep by an id.

-- name: file_columns
id, profile, hash, name, media_type, size, purpose, token_id, created_at, expires_at

-- name: insert_file
INSERT INTO files ({{file_columns}})
VALUES (:id, :profile, :hash, :name, :media_type, :size, :purpose, :token_id, :at, :expires_at);

-- name: get_file
SELECT {{file_columns}} FROM files WHERE id = :id AND profile = :profile;

-- name: count_files
SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM files WHERE profile = :profile;

-- name: list_files_up
SELECT {{file_columns}} FROM files
WHERE profile = :profile AND (purpose = :purpose OR :purpose = '')
  AND (created_at, id) > (:after_at, :after_id) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY created_at, id LIMIT :limit;

-- name: list_files_down
SELECT {{file_columns}} FROM files
WHERE profile = :profile AND (purpose = :purpose OR :purpose = '')
  AND (created_at, id) < (:after_at, :after_id) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: delete_file
DELETE FROM files WHERE id = :id AND profile = :profile;

-- name: delete_files_of_blob
DELETE FROM files WHERE hash = :hash AND profile = :profile;

-- name: expired_files
SELECT id, profile, hash FROM files WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit;
