-- The words of one range of documents, and the list of them.
CREATE VIRTUAL TABLE search_words USING fts5(
    words, content = '', contentless_delete = 1, tokenize = 'ascii'
);
INSERT INTO search_words (search_words, rank) VALUES ('automerge', 8);
CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab(search_words, row);
