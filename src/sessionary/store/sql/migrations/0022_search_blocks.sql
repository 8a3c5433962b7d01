--@ postgres
-- The times of documents whose numbers follow each other: a search by time passes over those of other times.
CREATE TABLE search_blocks (
    no       BIGINT PRIMARY KEY,
    first_at BIGINT NOT NULL,
    last_at  BIGINT NOT NULL
);
INSERT INTO search_blocks (no, first_at, last_at)
SELECT no >> 14, MIN(at), MAX(at) FROM search_docs GROUP BY no >> 14;

-- Which blocks have documents of a session.
CREATE TABLE search_places (
    session_no BIGINT NOT NULL,
    block      BIGINT NOT NULL,
    PRIMARY KEY (session_no, block)
);
INSERT INTO search_places (session_no, block)
SELECT DISTINCT entry_no >> 24, no >> 14 FROM search_docs;

-- The indexer writes vectors itself now. An older program that still runs would index without blocks and places, and
-- searches would miss what it indexed: without this function it reports an error instead.
DROP FUNCTION search_vector(TEXT, TEXT, BIGINT);
