"""Writes sessions as Gemini CLI does."""

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = datetime(2026, 2, 1, 9, tzinfo=UTC)
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a dog"


@dataclass
class GeminiSession:
    """One session that grows, line by line."""

    id: str
    kind: str = "main"
    lines: list[Json] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.lines.append(
            {
                "sessionId": self.id,
                "projectHash": "mill",
                "startTime": iso(BEGAN),
                "lastUpdated": iso(BEGAN),
                "kind": self.kind,
                "directories": ["/home/ann/src/mill"],
            }
        )

    def message(self, kind: str, content: Any, **more: Any) -> Json:
        self.count += 1
        at = BEGAN + timedelta(seconds=self.count)
        made = {"id": f"m{self.count}", "timestamp": iso(at), "type": kind, "content": content}
        self.lines.append(made | more)
        return self.lines[-1]

    def reply(self, content: Any, **more: Any) -> Json:
        tokens = {"input": 100, "output": 20, "cached": 30, "thoughts": 5, "tool": 1, "total": 126}
        return self.message("gemini", content, model="gemini-2.5-pro", tokens=tokens, **more)

    def again(self, message: Json, **more: Any) -> None:
        """The same message, with what has become of it."""
        self.lines.append(message | more)

    def control(self, **record: Any) -> None:
        self.lines.append({f"${name}": value for name, value in record.items()})

    def path(self, root: Path, parent: str | None = None) -> Path:
        chats = root / "mill" / "chats"
        if parent is not None:
            return chats / parent / f"{self.id}.jsonl"
        return chats / f"session-2026-02-01T09-00-{self.id[:8]}.jsonl"

    def write(self, root: Path, parent: str | None = None) -> Path:
        path = self.path(root, parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path

    def write_document(self, root: Path) -> Path:
        """As older releases wrote it."""
        path = self.path(root).with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.lines[0] | {"messages": self.lines[1:]}, indent=2))
        return path


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def picture() -> Json:
    data = base64.b64encode(PICTURE).decode()
    return {"inlineData": {"mimeType": "image/png", "data": data}}


def tool_call(status: str, result: Any = None) -> Json:
    return {
        "id": "c1",
        "name": "read_file",
        "args": {"path": "a.txt"},
        "status": status,
        "timestamp": iso(BEGAN),
        "result": result,
    }


def answer(words: str) -> list[Json]:
    response = {"id": "c1", "name": "read_file", "response": {"output": words}}
    return [{"functionResponse": response}]


def a_day_at_the_mill(session: GeminiSession) -> None:
    session.message("info", "Signed in.")
    session.message("user", [{"text": "What is in a.txt?"}, picture()], displayContent="a.txt?")
    thoughts = [{"subject": "Reading", "description": "I read it."}]
    asked = session.reply("", thoughts=thoughts, toolCalls=[tool_call("executing")])
    session.again(asked, toolCalls=[tool_call("success", answer("flour"))])
    session.reply("Flour.")
    grind = session.message("user", "Grind it.")
    session.reply("No.")
    session.control(rewindTo=grind["id"])
    session.message("user", "Buy bread.")
    session.reply("Bought.")
    session.control(set={"summary": "The mill", "lastUpdated": iso(BEGAN)})
