--@ postgres
-- The times of documents whose numbers follow each other: a search by time passes over those of other times.
CREATE TABLE search_blocks (
    no       BIGINT PRIMARY KEY,
    first_at BIGINT NOT NULL,
    last_at  BIGINT NOT NULL
);
INSERT INTO search_blocks (no, first_at, last_at)
SELECT no >> 14, MIN(at), MAX(at) FROM search_docs GROUP BY no >> 14;
