"""Writes sessions as Goose does."""

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1769936400
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a goose"
SCHEMA = """
CREATE TABLE schema_version(version INTEGER);
CREATE TABLE sessions(id TEXT PRIMARY KEY, name TEXT, description TEXT, session_type TEXT,
  working_dir TEXT, created_at TIMESTAMP, updated_at TIMESTAMP, provider_name TEXT,
  model_config_json TEXT, parent_session_id TEXT, accumulated_input_tokens INTEGER,
  accumulated_output_tokens INTEGER, accumulated_cost REAL);
CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT, role TEXT,
  content_json TEXT, created_timestamp INTEGER, tokens INTEGER, metadata_json TEXT);
"""
LEDGER = """
CREATE TABLE usage_ledger(id INTEGER PRIMARY KEY, session_id TEXT, model TEXT, input_tokens INTEGER,
  output_tokens INTEGER, cache_read_tokens INTEGER, cost REAL, created_at TIMESTAMP);
"""


class GooseBase:
    """A database of sessions."""

    def __init__(self, folder: Path, *, ledger: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "sessions.db"
        self._base = sqlite3.connect(self.path)
        self._base.executescript(SCHEMA + (LEDGER if ledger else ""))

    def session(self, id: str, *, parent: str | None = None) -> None:
        config = json.dumps({"model_name": "gpt-5"})
        at = "2026-02-01 09:00:00"
        row = (id, "x", "The mill", "user", "/home/ann/src/mill", at, at, "openai", config, parent)
        self._run("INSERT INTO sessions VALUES(?,?,?,?,?,?,?,?,?,?,1000,50,0.01)", *row)

    def say(self, session: str, role: str, *content: Json, shown: bool = True) -> None:
        (count,) = self._base.execute("SELECT COUNT(*) FROM messages").fetchone()
        metadata = json.dumps({"userVisible": shown, "agentVisible": True})
        row = (f"msg_{count}", session, role, json.dumps(content), BEGAN + count, metadata)
        self._run(
            "INSERT INTO messages(message_id, session_id, role, content_json, created_timestamp,"
            " metadata_json) VALUES(?,?,?,?,?,?)",
            *row,
        )

    def paid(self, session: str, sent: int, made: int, cost: float) -> None:
        at = "2026-02-01 09:00:00"
        self._run(
            "INSERT INTO usage_ledger(session_id, model, input_tokens, output_tokens, cost, created_at)"
            " VALUES(?,'gpt-5',?,?,?,?)",
            session,
            sent,
            made,
            cost,
            at,
        )

    def _run(self, statement: str, *values: Any) -> None:
        with self._base:
            self._base.execute(statement, values)

    def close(self) -> None:
        self._base.close()


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def a_day_at_the_mill(base: GooseBase, session: str) -> None:
    data = base64.b64encode(PICTURE).decode()
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    call = {"status": "success", "value": {"name": "read", "arguments": {"path": "a.txt"}}}
    answer = {"status": "success", "value": [words("flour"), image]}
    base.say(session, "user", words("What is in a.txt?"), image)
    thought = {"type": "thinking", "thinking": "I read it", "signature": "sig"}
    base.say(session, "assistant", thought, {"type": "toolRequest", "id": "c1", "toolCall": call})
    base.say(session, "user", {"type": "toolResponse", "id": "c1", "toolResult": answer})
    base.say(session, "assistant", words("Flour."))
    base.say(session, "user", words("Flour was found."), shown=False)
    broken = {"status": "error", "error": "the mill is broken"}
    base.say(session, "user", {"type": "toolResponse", "id": "c2", "toolResult": broken})
