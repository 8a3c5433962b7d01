-- A new file with the tables of Hermes' state.db, for programs that read them by SQL.

-- name: state_schema
PRAGMA page_size = 4096;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    origin_json TEXT,
    archived INTEGER DEFAULT 0,
    pinned INTEGER DEFAULT 0,
    cwd TEXT,
    git_branch TEXT,
    git_repo_root TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    platform_message_id TEXT,
    observed INTEGER DEFAULT 0
);
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    model TEXT NOT NULL DEFAULT '',
    billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    first_seen REAL
);
CREATE VIRTUAL TABLE messages_fts USING fts5(content);
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tokenize = 'trigram');
INSERT INTO schema_version VALUES (14);
BEGIN;

-- name: insert_state_session
INSERT INTO sessions VALUES (
    :id, :source, :user_id, :model, :model_config, :system_prompt, :parent_session_id, :started_at,
    :ended_at, :end_reason, :message_count, :tool_call_count, :input_tokens, :output_tokens,
    :cache_read_tokens, :cache_write_tokens, :reasoning_tokens, :billing_provider,
    :billing_base_url, :billing_mode, :estimated_cost_usd, :actual_cost_usd, :cost_status,
    :cost_source, :pricing_version, :title, :api_call_count, :handoff_state, :handoff_platform,
    :handoff_error, :origin_json, :archived, :pinned, :cwd, :git_branch, :git_repo_root
);

-- name: insert_state_message
INSERT INTO messages VALUES (
    NULL, :session_id, :role, :content, :tool_call_id, :tool_calls, :tool_name, :timestamp,
    :token_count, :finish_reason, :reasoning, :reasoning_content, :reasoning_details,
    :codex_reasoning_items, :codex_message_items, :platform_message_id, :observed
);

-- name: insert_state_usage
INSERT INTO session_model_usage VALUES (
    :session_id, :model, :billing_provider, :billing_base_url, :billing_mode, :task,
    :input_tokens, :output_tokens, :cache_read_tokens, :cache_write_tokens, :reasoning_tokens,
    :estimated_cost_usd, :actual_cost_usd, :cost_status, :cost_source, :first_seen
);

-- name: insert_state_words
INSERT INTO messages_fts (rowid, content) VALUES (?, ?);

-- name: insert_state_trigrams
INSERT INTO messages_fts_trigram (rowid, content) VALUES (?, ?);

-- name: finish_state_file
UPDATE sessions SET parent_session_id = NULL
WHERE parent_session_id NOT IN (SELECT id FROM sessions);
CREATE INDEX idx_sessions_source ON sessions (source);
CREATE INDEX idx_sessions_parent ON sessions (parent_session_id);
CREATE INDEX idx_sessions_started ON sessions (started_at DESC);
CREATE INDEX idx_messages_session ON messages (session_id, timestamp);
COMMIT;
