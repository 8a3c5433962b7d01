-- Where a conversation is that a client without a memory sends again with each request: by a hash of its beginning.
-- If two conversations of one client begin in the same way, the later one counts.
CREATE TABLE conversation_prefixes (
    profile    TEXT COLLATE "C" NOT NULL,
    -- Whose conversations are compared: those of one client are not continued by another.
    client     TEXT COLLATE "C" NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    session_no BIGINT NOT NULL REFERENCES sessions (no),
    -- The last entry of the beginning.
    seq        BIGINT NOT NULL,
    PRIMARY KEY (profile, client, digest)
);
CREATE INDEX conversation_prefixes_by_session ON conversation_prefixes (session_no, seq);
