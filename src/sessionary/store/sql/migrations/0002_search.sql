--@ postgres
-- The search index: derived from the log, kept apart from it, made again at any time.
CREATE TABLE search_state (
    no        BIGINT PRIMARY KEY CHECK (no = 1),
    watermark BIGINT NOT NULL,
    -- The newest position handed out when the last round began, and the transactions of that time.
    seen      BIGINT NOT NULL,
    horizon   XID8 NOT NULL
);
INSERT INTO search_state (no, watermark, seen, horizon) VALUES (1, 0, 0, '0');

-- Positions above the watermark that are in the index already.
CREATE TABLE search_taken (
    position BIGINT PRIMARY KEY
);

-- A document: a message's words are one, its steps another. `no` grows with the feed.
CREATE TABLE search_docs (
    no       BIGINT PRIMARY KEY,
    entry_no BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    length   BIGINT NOT NULL,
    is_long  BIGINT NOT NULL,
    words    TSVECTOR NOT NULL
);
CREATE INDEX search_docs_by_words ON search_docs USING gin (words);

CREATE TABLE search_titles (
    session_no BIGINT PRIMARY KEY,
    doc_no     BIGINT NOT NULL,
    title      TEXT NOT NULL
);

-- Words that stand in order, and words without a place, as a vector. The words are ours: letters and digits only.
-- One more says in which block of documents this one is: the newest matches of a common word are found by it.
CREATE FUNCTION hansard_vector(ordered TEXT, loose TEXT, no BIGINT) RETURNS TSVECTOR
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (
        COALESCE((SELECT string_agg('''' || word || ''':' || place, ' ')
                  FROM unnest(string_to_array(ordered, ' ')) WITH ORDINALITY AS given (word, place)), '')
        || ' ' ||
        COALESCE((SELECT string_agg('''' || word || '''', ' ')
                  FROM unnest(string_to_array(loose, ' ')) AS given (word)), '')
        || ' ''' || U&'\E000' || 'block' || (no >> 14) || ''''
    )::tsvector
$$;
