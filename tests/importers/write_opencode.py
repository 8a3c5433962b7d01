"""Writes sessions as OpenCode does: into a database, or as a tree of files."""

import base64
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1769936400000
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a hen"
SCHEMA = """
CREATE TABLE project(id TEXT PRIMARY KEY, worktree TEXT);
CREATE TABLE session(id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, title TEXT,
  directory TEXT, time_created INTEGER, time_updated INTEGER);
CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER,
  time_updated INTEGER, data TEXT);
CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,
  time_updated INTEGER, data TEXT);
CREATE INDEX part_message_idx ON part(message_id);
"""


@dataclass
class OpenCodeSession:
    """One session: its messages, each with its parts."""

    id: str
    title: str = "The mill"
    parent: str | None = None
    messages: list[tuple[str, Json, list[Json]]] = field(default_factory=list)

    def say(self, role: str, *parts: Json, **more: Any) -> str:
        id = f"msg_{self.id}_{len(self.messages):04}"
        message = {"role": role, "time": {"created": BEGAN + 1000 * len(self.messages)}}
        self.messages.append((id, message | more, list(parts)))
        return id

    def reply(self, *parts: Json, **more: Any) -> str:
        return self.say(
            "assistant",
            {"type": "step-start"},
            *parts,
            {"type": "step-finish"},
            **{
                "modelID": "claude-sonnet-4-5",
                "providerID": "anthropic",
                "cost": 0.002,
                "tokens": {
                    "input": 100,
                    "output": 20,
                    "reasoning": 5,
                    "cache": {"read": 30, "write": 4},
                },
                "finish": "stop",
                **more,
            },
        )

    def put(self, path: Path) -> None:
        """Write into the database what is not there yet."""
        is_new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        base = sqlite3.connect(path)
        if is_new:
            base.executescript(SCHEMA)
        last = BEGAN + 1000 * len(self.messages)
        head = (self.id, "p1", self.parent, self.title, "/home/ann/src/mill", BEGAN, last)
        with base:
            base.execute("INSERT OR REPLACE INTO session VALUES(?,?,?,?,?,?,?)", head)
            for id, message, parts in self.messages:
                at = message["time"]["created"]
                row = (id, self.id, at, at, json.dumps(message))
                base.execute("INSERT OR REPLACE INTO message VALUES(?,?,?,?,?)", row)
                for number, part in enumerate(parts):
                    inner = (f"prt_{id}_{number:04}", id, self.id, at, at, json.dumps(part))
                    base.execute("INSERT OR REPLACE INTO part VALUES(?,?,?,?,?,?)", inner)
        base.close()

    def write(self, storage: Path) -> Path:
        """Write the tree of files."""
        head = {
            "id": self.id,
            "projectID": "p1",
            "directory": "/home/ann/src/mill",
            "title": self.title,
            "time": {"created": BEGAN, "updated": BEGAN + len(self.messages)},
        } | ({"parentID": self.parent} if self.parent else {})
        path = storage / "session" / "p1" / f"{self.id}.json"
        _write(path, head)
        for id, message, parts in self.messages:
            place = {"id": id, "sessionID": self.id}
            _write(storage / "message" / self.id / f"{id}.json", message | place)
            for number, part in enumerate(parts):
                name = f"prt_{id}_{number:04}"
                place = {"id": name, "sessionID": self.id, "messageID": id}
                _write(storage / "part" / id / f"{name}.json", part | place)
        return path


def _write(path: Path, value: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def words(text: str, **more: Any) -> Json:
    return {"type": "text", "text": text, **more}


def file() -> Json:
    data = base64.b64encode(PICTURE).decode()
    url = f"data:image/png;base64,{data}"
    return {"type": "file", "mime": "image/png", "filename": "hen.png", "url": url}


def tool(status: str, **state: Any) -> Json:
    inner = {"status": status, "input": {"path": "a.txt"}, **state}
    return {"type": "tool", "tool": "read", "callID": "c1", "state": inner}


def a_day_at_the_mill(session: OpenCodeSession) -> None:
    session.say("user", words("What is in a.txt?"), file(), words("a.txt: …", synthetic=True))
    session.reply(
        {"type": "reasoning", "text": "I read it"},
        tool("completed", output="flour", attachments=[file()]),
        words("Flour."),
    )
    session.say("user", words("Grind it."))
    session.reply(tool("error", error="the mill is broken"), error={"name": "Broken"})
    session.say("user", {"type": "compaction", "auto": True})
    session.reply(words("Flour was found."), summary=True)
    session.say("user", words("Buy bread."), {"type": "subtask", "prompt": "buy"})
    session.reply(words("Bought."), {"type": "patch", "hash": "x"})
