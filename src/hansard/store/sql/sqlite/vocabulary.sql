CREATE VIRTUAL TABLE temp.search_vocabulary USING fts5vocab(main, search_words, row);
