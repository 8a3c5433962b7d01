-- What passed the recording proxy and is not in the log yet: a request, and its response as far as it came.
CREATE TABLE proxy_exchanges (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile    TEXT COLLATE "C" NOT NULL,
    -- open: the rest of the response is awaited; done: it waits to be recorded; failed: it could not be recorded.
    state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('open', 'done', 'failed')),
    -- The process that waits for the rest of the response, and until when it is believed to run.
    holder     TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL,
    began_at   BIGINT NOT NULL,
    done_at    BIGINT NOT NULL,
    -- The person that the request names.
    person_id  TEXT COLLATE "C",
    -- What is known of it besides the bodies: upstream, client, path, status.
    facts      TEXT NOT NULL,
    -- Compressed.
    request    BYTEA NOT NULL,
    response   BYTEA NOT NULL
);
CREATE INDEX proxy_exchanges_by_state ON proxy_exchanges (state, done_at, id);
CREATE INDEX proxy_exchanges_by_holder ON proxy_exchanges (holder, state);
