--@ postgres
-- The index now also holds compaction summaries, names of tools and who wrote: it is made again from the log.
TRUNCATE search_docs, search_titles, search_taken;
UPDATE search_state SET watermark = 0, seen = 0, horizon = '0';
