-- The spine: inbox, log and outbox, and what describes them.
-- Times are microseconds since 1970 in UTC. JSON is text that we wrote.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE projects (
    no         INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    profile    TEXT NOT NULL,
    name       TEXT NOT NULL,
    colour     TEXT,
    created_at INTEGER NOT NULL,
    UNIQUE (profile, name)
);

-- One row per conversation: facts, how a person has put it away, and its head
-- (from last_seq on), which is a fold of the log that `verify` checks.
CREATE TABLE sessions (
    no                 INTEGER PRIMARY KEY,
    id                 TEXT NOT NULL UNIQUE,
    profile            TEXT NOT NULL,
    key                TEXT,
    source             TEXT NOT NULL,
    platform           TEXT NOT NULL,
    chat_type          TEXT NOT NULL,
    chat_id            TEXT,
    person_id          TEXT,
    kind               TEXT NOT NULL CHECK (kind IN ('chat', 'job', 'subagent', 'import')),
    shelf              TEXT NOT NULL CHECK (shelf IN ('chats', 'automation', 'archive', 'trash', 'gone')),
    title              TEXT,
    title_by           TEXT CHECK (title_by IN ('person', 'agent', 'import')),
    model              TEXT,
    settings           TEXT,
    prompt_hash        TEXT,
    workspace          TEXT,
    project_no         INTEGER REFERENCES projects (no),
    pinned             INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    archived           INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
    read_only          INTEGER NOT NULL DEFAULT 0 CHECK (read_only IN (0, 1)),
    labels             TEXT NOT NULL DEFAULT '[]',
    extra              TEXT NOT NULL DEFAULT '{}',
    read_through       INTEGER NOT NULL DEFAULT 0 CHECK (read_through >= 0),
    parent_no          INTEGER REFERENCES sessions (no),
    lineage            TEXT CHECK (lineage IN ('fork', 'reset', 'continuation', 'subagent')),
    base_seq           INTEGER NOT NULL DEFAULT 0 CHECK (base_seq >= 0),
    began_at           INTEGER NOT NULL,
    ended_at           INTEGER,
    end_reason         TEXT,
    trashed_at         INTEGER,
    purged_at          INTEGER,
    finalized_at       INTEGER,
    finalize_tries     INTEGER NOT NULL DEFAULT 0,
    finalize_error     TEXT,
    last_seq           INTEGER NOT NULL DEFAULT 0 CHECK (last_seq >= base_seq),
    last_reply_seq     INTEGER NOT NULL DEFAULT 0,
    last_active_at     INTEGER NOT NULL,
    preview            TEXT,
    message_count      INTEGER NOT NULL DEFAULT 0 CHECK (message_count >= 0),
    tool_call_count    INTEGER NOT NULL DEFAULT 0 CHECK (tool_call_count >= 0),
    compacted_seq      INTEGER NOT NULL DEFAULT 0,
    calls              INTEGER NOT NULL DEFAULT 0 CHECK (calls >= 0),
    unknown_cost_calls INTEGER NOT NULL DEFAULT 0 CHECK (unknown_cost_calls >= 0),
    estimated_calls    INTEGER NOT NULL DEFAULT 0 CHECK (estimated_calls >= 0),
    input_tokens       INTEGER NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
    output_tokens      INTEGER NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
    cache_read_tokens  INTEGER NOT NULL DEFAULT 0 CHECK (cache_read_tokens >= 0),
    cache_write_tokens INTEGER NOT NULL DEFAULT 0 CHECK (cache_write_tokens >= 0),
    reasoning_tokens   INTEGER NOT NULL DEFAULT 0 CHECK (reasoning_tokens >= 0),
    cost_microusd      INTEGER NOT NULL DEFAULT 0 CHECK (cost_microusd >= 0),
    running_turn       TEXT,
    epoch              INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CHECK (ended_at IS NULL OR ended_at >= began_at),
    CHECK ((parent_no IS NULL) = (lineage IS NULL)),
    CHECK (parent_no IS NULL OR parent_no <> no)
);
CREATE UNIQUE INDEX one_open_session_per_key ON sessions (profile, key) WHERE ended_at IS NULL AND key IS NOT NULL;
CREATE UNIQUE INDEX one_session_per_title ON sessions (profile, title) WHERE title IS NOT NULL;
CREATE INDEX sessions_by_activity ON sessions (profile, shelf, last_active_at, no);
CREATE INDEX sessions_by_platform ON sessions (profile, platform, last_active_at, no);
CREATE INDEX sessions_by_project ON sessions (project_no, last_active_at, no) WHERE project_no IS NOT NULL;
CREATE INDEX sessions_by_pin ON sessions (profile, last_active_at, no) WHERE pinned = 1;
CREATE INDEX sessions_by_parent ON sessions (parent_no) WHERE parent_no IS NOT NULL;
CREATE INDEX sessions_to_reset ON sessions (platform, chat_type, last_active_at) WHERE ended_at IS NULL AND key IS NOT NULL;
CREATE INDEX sessions_to_finalize ON sessions (ended_at) WHERE ended_at IS NOT NULL AND finalized_at IS NULL;
CREATE INDEX sessions_in_trash ON sessions (trashed_at) WHERE trashed_at IS NOT NULL AND purged_at IS NULL;
CREATE INDEX sessions_by_end ON sessions (profile, ended_at) WHERE ended_at IS NOT NULL;

-- Which session a key is on. Several keys may point at one session.
CREATE TABLE bindings (
    profile    TEXT NOT NULL,
    key        TEXT NOT NULL,
    session_no INTEGER NOT NULL REFERENCES sessions (no),
    bound_at   INTEGER NOT NULL,
    PRIMARY KEY (profile, key)
);
CREATE INDEX bindings_by_session ON bindings (session_no);

CREATE TABLE drafts (
    session_no INTEGER PRIMARY KEY REFERENCES sessions (no),
    text       TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE holds (
    session_no INTEGER NOT NULL REFERENCES sessions (no),
    name       TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (session_no, name)
);

CREATE TABLE turns (
    no          INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    session_no  INTEGER NOT NULL REFERENCES sessions (no),
    agent       TEXT,
    state       TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'interrupted')),
    epoch       INTEGER NOT NULL CHECK (epoch > 0),
    holder      TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    began_at    INTEGER NOT NULL,
    ended_at    INTEGER,
    first_seq   INTEGER NOT NULL,
    reason      TEXT,
    partial     TEXT,
    stop        TEXT,
    CHECK ((ended_at IS NULL) = (state = 'running'))
);
CREATE UNIQUE INDEX one_running_turn_per_session ON turns (session_no) WHERE state = 'running';
CREATE INDEX turns_by_session ON turns (session_no, no);
CREATE INDEX turns_by_lease ON turns (lease_until) WHERE state = 'running';

-- The inbox: each message as received, once for ever.
CREATE TABLE arrivals (
    no          INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    profile     TEXT NOT NULL,
    idem        TEXT NOT NULL,
    key         TEXT NOT NULL,
    source      TEXT NOT NULL,
    message     TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'taken', 'refused')),
    session_no  INTEGER REFERENCES sessions (no),
    turn_id     TEXT,
    seq         INTEGER,
    reason      TEXT,
    UNIQUE (profile, idem)
);
CREATE INDEX arrivals_waiting ON arrivals (profile, key, no) WHERE state = 'waiting';
CREATE INDEX arrivals_by_session ON arrivals (session_no) WHERE session_no IS NOT NULL;

-- The log. entry_no is session.no * 2^24 + seq: a transcript is one range.
-- Append-only by trigger; only the purge of a session deletes.
CREATE TABLE entries (
    entry_no INTEGER PRIMARY KEY,
    kind     TEXT NOT NULL CHECK (kind IN ('message', 'compaction', 'retraction')),
    role     TEXT CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    at       INTEGER NOT NULL,
    turn_id  TEXT,
    body     TEXT NOT NULL,
    CHECK ((kind = 'message') = (role IS NOT NULL))
);
CREATE INDEX marks ON entries (entry_no) WHERE kind <> 'message';

-- Idempotency keys, for ever: a repeat finds what the first one wrote.
CREATE TABLE receipts (
    profile    TEXT NOT NULL,
    idem       TEXT NOT NULL,
    session_no INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (profile, idem)
) WITHOUT ROWID;

-- What changed, one row each; the index and live views read on from the last position they saw.
-- On SQLite positions are in the order of the commits, on PostgreSQL only nearly so.
CREATE TABLE feed (
    position   INTEGER PRIMARY KEY,
    session_no INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    what       TEXT NOT NULL
);

CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE blob_refs (
    hash     TEXT NOT NULL REFERENCES blobs (hash),
    entry_no INTEGER NOT NULL,
    PRIMARY KEY (hash, entry_no)
) WITHOUT ROWID;
CREATE INDEX blob_refs_by_entry ON blob_refs (entry_no);

-- One row per model call. Sums are views; cost is unknown when null.
CREATE TABLE usage (
    no                 INTEGER PRIMARY KEY,
    profile            TEXT NOT NULL,
    call_id            TEXT NOT NULL,
    session_no         INTEGER NOT NULL REFERENCES sessions (no),
    turn_id            TEXT,
    at                 INTEGER NOT NULL,
    model              TEXT,
    provider           TEXT,
    base_url           TEXT,
    billing_mode       TEXT,
    task               TEXT,
    input_tokens       INTEGER NOT NULL CHECK (input_tokens >= 0),
    output_tokens      INTEGER NOT NULL CHECK (output_tokens >= 0),
    cache_read_tokens  INTEGER NOT NULL CHECK (cache_read_tokens >= 0),
    cache_write_tokens INTEGER NOT NULL CHECK (cache_write_tokens >= 0),
    reasoning_tokens   INTEGER NOT NULL CHECK (reasoning_tokens >= 0),
    cost_microusd      INTEGER CHECK (cost_microusd >= 0),
    cost_status        TEXT NOT NULL CHECK (cost_status IN ('estimated', 'reported', 'included', 'unknown')),
    price_source       TEXT,
    price_version      TEXT,
    UNIQUE (profile, call_id),
    CHECK ((cost_microusd IS NULL) = (cost_status = 'unknown'))
);
CREATE INDEX usage_by_time ON usage (profile, at);
CREATE INDEX usage_by_session ON usage (session_no);

-- The outbox: each thing to send, durable before it is sent.
CREATE TABLE deliveries (
    no                  INTEGER PRIMARY KEY,
    id                  TEXT NOT NULL UNIQUE,
    profile             TEXT NOT NULL,
    platform            TEXT NOT NULL,
    chat_id             TEXT NOT NULL,
    thread_id           TEXT,
    channel             TEXT NOT NULL,
    session_no          INTEGER REFERENCES sessions (no),
    turn_id             TEXT,
    parts               TEXT NOT NULL,
    state               TEXT NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'abandoned', 'redirected')),
    attempts            INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    unclear_attempts    INTEGER NOT NULL DEFAULT 0 CHECK (unclear_attempts >= 0),
    not_before          INTEGER NOT NULL,
    holder              TEXT,
    lease_until         INTEGER,
    created_at          INTEGER NOT NULL,
    sent_at             INTEGER,
    reason              TEXT,
    platform_message_id TEXT,
    redirected_to       TEXT
);
CREATE INDEX deliveries_open ON deliveries (channel, no) WHERE state IN ('waiting', 'sending');
CREATE INDEX deliveries_by_session ON deliveries (session_no) WHERE session_no IS NOT NULL;

CREATE TRIGGER entries_never_change BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;
CREATE TRIGGER entries_leave_only_by_purge BEFORE DELETE ON entries
WHEN (SELECT purged_at FROM sessions WHERE no = OLD.entry_no >> 24) IS NULL
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;
