-- Copying a store: what the two databases say differently.

-- name: restart_numbers
-- The rows came with their numbers; the next one is given from behind the highest.
SELECT setval(pg_get_serial_sequence('projects', 'no'), GREATEST((SELECT MAX(no) FROM projects), 1), EXISTS (SELECT 1 FROM projects)),
    setval(pg_get_serial_sequence('sessions', 'no'), GREATEST((SELECT MAX(no) FROM sessions), 1), EXISTS (SELECT 1 FROM sessions)),
    setval(pg_get_serial_sequence('turns', 'no'), GREATEST((SELECT MAX(no) FROM turns), 1), EXISTS (SELECT 1 FROM turns)),
    setval(pg_get_serial_sequence('arrivals', 'no'), GREATEST((SELECT MAX(no) FROM arrivals), 1), EXISTS (SELECT 1 FROM arrivals)),
    setval(pg_get_serial_sequence('feed', 'position'), GREATEST((SELECT MAX(position) FROM feed), 1), EXISTS (SELECT 1 FROM feed)),
    setval(pg_get_serial_sequence('usage', 'no'), GREATEST((SELECT MAX(no) FROM usage), 1), EXISTS (SELECT 1 FROM usage)),
    setval(pg_get_serial_sequence('deliveries', 'no'), GREATEST((SELECT MAX(no) FROM deliveries), 1), EXISTS (SELECT 1 FROM deliveries)),
    setval(pg_get_serial_sequence('schedules', 'no'), GREATEST((SELECT MAX(no) FROM schedules), 1), EXISTS (SELECT 1 FROM schedules)),
    setval(pg_get_serial_sequence('packs', 'no'), GREATEST((SELECT MAX(no) FROM packs), 1), EXISTS (SELECT 1 FROM packs));

-- name: list_columns
-- Every column of every table with its kind, and its place in the key.
SELECT c.table_name::text, c.column_name::text, c.data_type::text, COALESCE(k.ordinal_position, 0)::bigint
FROM information_schema.columns c
LEFT JOIN information_schema.table_constraints t
    ON t.table_schema = c.table_schema AND t.table_name = c.table_name AND t.constraint_type = 'PRIMARY KEY'
LEFT JOIN information_schema.key_column_usage k
    ON k.constraint_name = t.constraint_name AND k.table_schema = c.table_schema AND k.column_name = c.column_name
WHERE c.table_schema = current_schema() ORDER BY c.table_name, c.ordinal_position;

-- name: list_references
SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND connamespace = current_schema()::regnamespace;

-- name: numbered_columns
SELECT table_name::text, column_name::text FROM information_schema.columns
WHERE table_schema = current_schema() AND is_identity = 'YES' ORDER BY 1;
