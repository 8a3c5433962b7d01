-- The words of one range of documents, and the list of them.
CREATE VIRTUAL TABLE search_words USING fts5(
    words, content = '', contentless_delete = 1, tokenize = 'ascii'
);
-- A piece fits on a page beside its checksum; fewer merges until the range is full.
INSERT INTO search_words (search_words, rank) VALUES ('pgsz', 4000);
INSERT INTO search_words (search_words, rank) VALUES ('automerge', 8);
INSERT INTO search_words (search_words, rank) VALUES ('hashsize', 8388608);
CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab(search_words, row);
