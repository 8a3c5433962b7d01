--@ postgres
-- Words that wait to be sorted into the index are read by every search: let them be few.
ALTER INDEX search_docs_by_words SET (gin_pending_list_limit = 128);
-- Long texts are looked for in another way, and are few.
CREATE INDEX search_docs_long ON search_docs USING gin (words) WITH (gin_pending_list_limit = 128) WHERE is_long = 1;
