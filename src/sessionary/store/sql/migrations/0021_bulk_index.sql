--@ postgres
-- How long the list of words may be that wait to be sorted in depends on whether a backlog is indexed: connections set it.
ALTER INDEX search_docs_by_words RESET (gin_pending_list_limit);
ALTER INDEX search_docs_long RESET (gin_pending_list_limit);
