-- Copying a store: what the two databases say differently.

-- name: list_columns
-- Every column of every table with its kind, and its place in the key.
SELECT t.name, c.name, c.type, c.pk FROM sqlite_master t JOIN pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY t.name, c.cid;

-- name: list_references
SELECT t.name, f."table" FROM sqlite_master t JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table';
