"""Writes sessions as Pi does."""

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = datetime(2026, 2, 1, 9, tzinfo=UTC)
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a cat"


@dataclass
class PiSession:
    """One session that grows."""

    id: str
    header: Json = field(default_factory=dict)
    lines: list[Json] = field(default_factory=list)
    leaf: str | None = None
    count: int = 0

    def __post_init__(self) -> None:
        self.lines.append(
            {
                "type": "session",
                "version": 3,
                "id": self.id,
                "timestamp": iso(BEGAN),
                "cwd": "/home/ann/src/mill",
                **self.header,
            }
        )

    def entry(self, kind: str, **fields: Any) -> str:
        """One line; it answers to the last one."""
        self.count += 1
        id = f"{self.id[:4]}{self.count:04x}"
        at = BEGAN + timedelta(seconds=self.count)
        line = {"type": kind, "id": id, "parentId": self.leaf, "timestamp": iso(at), **fields}
        self.lines.append(line)
        self.leaf = id
        return id

    def user(self, content: Any) -> str:
        return self.entry("message", message={"role": "user", "content": content})

    def reply(self, *blocks: Json, **more: Any) -> str:
        message = {
            "role": "assistant",
            "content": list(blocks),
            "api": "anthropic-messages",
            "provider": "anthropic",
            "model": "claude-sonnet-4-5",
            "usage": {
                "input": 100 + self.count,
                "output": 10 + self.count,
                "cacheRead": 5,
                "cacheWrite": 2,
                "totalTokens": 0,
                "cost": {"total": 0.001},
            },
            "stopReason": "stop",
            "timestamp": 1769936400000 + self.count,
        }
        return self.entry("message", message=message | more)

    def result(self, call: str, *blocks: Json, **more: Any) -> str:
        message = {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "read",
            "content": list(blocks),
            "isError": False,
        }
        return self.entry("message", message=message | more)

    def text(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def write(self, folder: Path, stamp: str = "2026-02-01T09-00-00-000Z") -> Path:
        path = folder / "--home-ann-src-mill--" / f"{stamp}_{self.id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text())
        return path


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def thought(text: str) -> Json:
    return {"type": "thinking", "thinking": text, "thinkingSignature": "sig"}


def call(id: str, name: str, arguments: Json) -> Json:
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def picture() -> Json:
    data = base64.b64encode(PICTURE).decode()
    return {"type": "image", "data": data, "mimeType": "image/png"}


def a_day_at_the_mill(session: PiSession) -> None:
    """Everything that a session may hold, on one branch and another."""
    session.entry("model_change", provider="anthropic", modelId="claude-sonnet-4-5")
    session.entry("thinking_level_change", thinkingLevel="high")
    asked = session.user([words("What is in a.txt?"), picture()])
    session.reply(thought("I read it"), call("c1", "read", {"path": "a.txt"}), stopReason="toolUse")
    session.result("c1", words("flour"), picture(), details={"lines": 1})
    session.reply(words("Flour."))
    session.user("Grind it.")
    session.reply(words("No."), stopReason="error", errorMessage="the mill is broken")
    session.leaf = asked
    session.entry("branch_summary", fromId=asked, summary="We tried to grind.")
    session.user("Buy bread instead.")
    kept = session.reply(words("Bought."))
    session.entry("compaction", summary="Bread was bought.", firstKeptEntryId=kept, tokensBefore=9)
    session.entry("session_info", name="The mill")
    session.entry("label", targetId=kept, label="here")
    session.entry("custom", customType="ext", data={"a": 1})
    session.entry(
        "message",
        message={"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0},
    )
    session.entry("custom_message", customType="note", content="Mind the stairs.", display=True)
