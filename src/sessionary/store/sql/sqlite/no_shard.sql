-- The words of one range are forgotten.
DROP TABLE search_vocabulary;
DROP TABLE search_words;
