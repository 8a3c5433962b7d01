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

CREATE TABLE search_docs (
    position BIGINT PRIMARY KEY,
    entry_no BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    is_long  BIGINT NOT NULL,
    body     TSVECTOR NOT NULL,
    steps    TSVECTOR NOT NULL
);
CREATE INDEX search_docs_by_entry ON search_docs (entry_no);
CREATE INDEX search_docs_by_body ON search_docs USING gin (body);
CREATE INDEX search_docs_by_steps ON search_docs USING gin (steps);

-- Words that stand in order, and words without a place, as a vector. The words are ours: letters and digits only.
CREATE FUNCTION hansard_vector(ordered TEXT, loose TEXT) RETURNS TSVECTOR LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (
        COALESCE((SELECT string_agg('''' || word || ''':' || place, ' ')
                  FROM unnest(string_to_array(ordered, ' ')) WITH ORDINALITY AS given (word, place)
                  WHERE word <> ''), '')
        || ' ' ||
        COALESCE((SELECT string_agg('''' || word || '''', ' ')
                  FROM (SELECT DISTINCT word FROM unnest(string_to_array(loose, ' ')) AS given (word)
                        WHERE word <> '' LIMIT 15000) AS distinct_words), '')
    )::tsvector
$$;
