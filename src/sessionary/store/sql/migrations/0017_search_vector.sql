--@ postgres
-- The function had the program's former name.

ALTER FUNCTION hansard_vector(TEXT, TEXT, BIGINT) RENAME TO search_vector;
