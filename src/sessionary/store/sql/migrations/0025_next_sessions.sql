-- What a person wants for the next session of a key: its title; its agent, model, persona and tools, and who chose them.
CREATE TABLE next_sessions (
    profile TEXT COLLATE "C" NOT NULL,
    key     TEXT COLLATE "C" NOT NULL,
    title   TEXT,
    chosen  TEXT,
    PRIMARY KEY (profile, key)
);
INSERT INTO next_sessions (profile, key, title) SELECT profile, key, title FROM next_titles;
DROP TABLE next_titles;
