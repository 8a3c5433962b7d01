"""Writes what Hermes writes: its database in every layout it has had, transcripts, web sessions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

Json = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
VERSIONS = (1, 2, 3, 4, 5, 6, 8, 10, 11, 13, 16, 22, 26)
_PIXEL = "data:image/png;base64,iVBORw0KGgo="

_SESSIONS: list[tuple[int, str]] = [
    (1, "id TEXT PRIMARY KEY"),
    (1, "source TEXT NOT NULL"),
    (1, "user_id TEXT"),
    (1, "model TEXT"),
    (1, "model_config TEXT"),
    (1, "system_prompt TEXT"),
    (1, "parent_session_id TEXT"),
    (1, "started_at REAL NOT NULL"),
    (1, "ended_at REAL"),
    (1, "end_reason TEXT"),
    (1, "message_count INTEGER DEFAULT 0"),
    (1, "tool_call_count INTEGER DEFAULT 0"),
    (1, "input_tokens INTEGER DEFAULT 0"),
    (1, "output_tokens INTEGER DEFAULT 0"),
    (3, "title TEXT"),
    *[
        (5, f"{name} INTEGER DEFAULT 0")
        for name in ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    ],
    *[(5, f"billing_{name} TEXT") for name in ("provider", "base_url", "mode")],
    (5, "estimated_cost_usd REAL"),
    (5, "actual_cost_usd REAL"),
    *[(5, f"{name} TEXT") for name in ("cost_status", "cost_source", "pricing_version")],
    (8, "api_call_count INTEGER DEFAULT 0"),
    (10, "handoff_state TEXT"),
    (16, "session_key TEXT"),
    (16, "chat_id TEXT"),
    (16, "thread_id TEXT"),
    (16, "origin_json TEXT"),
    (16, "archived INTEGER DEFAULT 0"),
    (22, "pinned INTEGER DEFAULT 0"),
    (22, "cwd TEXT"),
    (22, "git_branch TEXT"),
    (26, "system_prompt_hash TEXT"),
]
_MESSAGES: list[tuple[int, str]] = [
    (1, "id INTEGER PRIMARY KEY AUTOINCREMENT"),
    (1, "session_id TEXT NOT NULL"),
    (1, "role TEXT NOT NULL"),
    (1, "content TEXT"),
    (1, "tool_call_id TEXT"),
    (1, "tool_calls TEXT"),
    (1, "tool_name TEXT"),
    (1, "timestamp REAL NOT NULL"),
    (1, "token_count INTEGER"),
    (2, "finish_reason TEXT"),
    (6, "reasoning TEXT"),
    (6, "reasoning_details TEXT"),
    (6, "codex_reasoning_items TEXT"),
    (11, "reasoning_content TEXT"),
    (11, "codex_message_items TEXT"),
    (13, "platform_message_id TEXT"),
    (13, "observed INTEGER DEFAULT 0"),
    (16, "active INTEGER NOT NULL DEFAULT 1"),
    (16, "compacted INTEGER NOT NULL DEFAULT 0"),
]
_MODEL_USAGE = (
    "session_id TEXT, model TEXT, billing_provider TEXT DEFAULT '', billing_base_url TEXT DEFAULT '', "
    "billing_mode TEXT DEFAULT '', task TEXT DEFAULT '', input_tokens INTEGER DEFAULT 0, "
    "output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, "
    "cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, "
    "estimated_cost_usd REAL DEFAULT 0, actual_cost_usd REAL DEFAULT 0, cost_status TEXT, "
    "first_seen REAL"
)


def message(role: str, content: Any = None, **more: Any) -> Json:
    """One message in Hermes' words."""
    return {"role": role, "content": content, **more}


def tool_call(id: str, name: str, arguments: Json) -> Json:
    """One call in Hermes' words."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def talk() -> list[Json]:
    """A conversation with everything in it that every version can hold."""
    call = tool_call("call_1", "shell", {"command": "ls"})
    return [
        message("user", "What is in this folder?"),
        message("assistant", "I look.", tool_calls=[call], finish_reason="tool_calls"),
        message("tool", "a.txt\nb.txt", tool_call_id="call_1", tool_name="shell"),
        message("assistant", "Two files: a.txt and b.txt.", finish_reason="stop"),
        message("user", "Thanks \U0001f600 \ud83d"),
        message("assistant", "You are welcome."),
    ]


def rich() -> list[Json]:
    """What newer versions hold besides."""
    parts = [
        {"type": "text", "text": "And this picture?"},
        {"type": "image_url", "image_url": {"url": _PIXEL}},
    ]
    return [
        message("user", parts, platform_message_id="tg-77"),
        message(
            "assistant",
            "A pixel.",
            reasoning="It is one pixel.",
            reasoning_details=[{"type": "reasoning.encrypted", "data": "xyz"}],
            codex_reasoning_items=[{"id": "rs_1"}],
        ),
    ]


@dataclass
class StateDb:
    """A `state.db` of one version."""

    path: Path
    version: int = 22
    clock: float = NOON
    connection: apsw.Connection = field(init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = apsw.Connection(str(self.path))
        run = self.connection.execute
        run("PRAGMA journal_mode = wal")
        run("CREATE TABLE schema_version (version INTEGER)")
        run("INSERT INTO schema_version VALUES (?)", (self.version,))
        for table, columns in (("sessions", _SESSIONS), ("messages", _MESSAGES)):
            there = ", ".join(text for since, text in columns if since <= self.version)
            run(f"CREATE TABLE {table} ({there})")
        run("CREATE INDEX idx_messages_session ON messages (session_id, timestamp)")
        run("CREATE VIRTUAL TABLE messages_fts USING fts5(content)")
        if self.version >= 22:
            run(f"CREATE TABLE session_model_usage ({_MODEL_USAGE})")
        if self.version >= 26:
            run("CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, content TEXT)")

    def session(self, id: str, messages: Sequence[Json] = (), **facts: Any) -> None:
        """One session with its messages, one a second."""
        begun = {"id": id, "source": "cli", "started_at": self.clock}
        self._insert("sessions", begun | facts)
        self.say(id, messages)

    def say(self, id: str, messages: Sequence[Json]) -> None:
        """Further messages of a session."""
        for each in messages:
            self.clock += 1
            row = {"timestamp": self.clock, **each, "session_id": id}
            content = row.get("content")
            if isinstance(content, list):
                row["content"] = "\x00json:" + json.dumps(content)
            elif isinstance(content, str):
                # SQLite has no lone surrogates: Hermes replaces them.
                row["content"] = content.encode("utf-8", "replace").decode()
            for name in ("tool_calls", "reasoning_details", "codex_reasoning_items"):
                if name in row:
                    row[name] = json.dumps(row[name])
            self._insert("messages", row)

    def change(self, id: str, **facts: Any) -> None:
        """Something else is true of a session."""
        for name, value in facts.items():
            self.connection.execute(f"UPDATE sessions SET {name} = ? WHERE id = ?", (value, id))

    def run(self, sql: str, *values: Any) -> None:
        """Whatever else Hermes does."""
        self.connection.execute(sql, values)

    def used(self, **facts: Any) -> None:
        """What a session used of one model."""
        self._insert("session_model_usage", facts)

    def close(self) -> Path:
        """Hermes is ended."""
        self.connection.close()
        return self.path

    def _insert(self, table: str, row: Json) -> None:
        rows = self.connection.execute(f"SELECT name FROM pragma_table_info('{table}')")
        there = {name for (name,) in rows}
        kept = {name: value for name, value in row.items() if name in there}
        names, marks = ", ".join(kept), ", ".join("?" * len(kept))
        self.connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(kept.values())
        )


def transcript(path: Path, messages: Sequence[Json], *, ends: str = "\n") -> Path:
    """A gateway's transcript, one message a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(each) for each in messages)
    path.write_text(text + ends)
    return path


def index(path: Path, entries: Json) -> Path:
    """A gateway's `sessions.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries))
    return path


def entry(key: str, id: str, **more: Any) -> Json:
    """One entry of it."""
    origin = {
        "platform": "telegram",
        "chat_id": "12345",
        "chat_name": "Anna",
        "chat_type": "dm",
        "user_id": "777",
        "user_name": "Anna",
        "thread_id": None,
        "chat_topic": None,
    }
    return {
        "session_key": key,
        "session_id": id,
        "created_at": "2026-03-01T12:00:00",
        "updated_at": "2026-03-01T13:00:00",
        "platform": "telegram",
        "chat_type": "dm",
        "input_tokens": 0,
        "output_tokens": 0,
        "estimated_cost_usd": 0.0,
        "cost_status": "unknown",
        "origin": origin,
        **more,
    }


def web_session(folder: Path, id: str, messages: Sequence[Json], **more: Any) -> Path:
    """A session of the web interface."""
    path = folder / "sessions" / f"{id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "session_id": id,
        "title": "Untitled",
        "workspace": "/home/anna/project",
        "model": "anthropic/claude-sonnet-4",
        "created_at": NOON,
        "updated_at": NOON + 60,
        "pinned": False,
        "archived": False,
        "project_id": None,
        "profile": None,
        "parent_session_id": None,
        **more,
        "messages": list(messages),
        "tool_calls": [],
    }
    path.write_text(json.dumps(data))
    return path
