--@ sqlite name 0010_numbers
-- The last number of a title is found by how many digits it has: a name that thousands have costs no more than another.
CREATE INDEX sessions_by_number ON sessions (profile, length(title), title) WHERE title <> replace(title, ' #', '');
