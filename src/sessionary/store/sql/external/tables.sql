-- Queries for another program's file. Quoted names of tables and columns replace the braces.

-- name: guard
PRAGMA query_only = 1;

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table';

-- name: columns
SELECT name FROM pragma_table_info(?);

-- name: all
SELECT {columns} FROM {table} ORDER BY {order};

-- name: where
SELECT {columns} FROM {table} WHERE {column} IS ? ORDER BY {order};

-- name: between
SELECT {columns} FROM {table} WHERE {column} >= ? AND {column} < ? ORDER BY {order};

-- name: fingerprint
SELECT COUNT(*){columns} FROM {table};

-- name: largest
, MAX({column})

-- name: sizes
, TOTAL(OCTET_LENGTH({column}))

-- name: sums
, TOTAL({column})

-- name: groups
SELECT {by}, COUNT(*){columns} FROM {table} GROUP BY {by};

-- name: measure
SELECT COUNT(*), TOTAL(OCTET_LENGTH({value})) FROM {table} WHERE {column} >= ? AND {column} < ?;
