"""Writes sessions as Qwen Code does."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = datetime(2026, 2, 1, 9, tzinfo=UTC)
NOISE = {"uiEvent": {"event.name": "qwen-code.api_response"}}


class QwenSession:
    """One session that grows, line by line."""

    def __init__(self, id: str, agent: str | None = None) -> None:
        self.id, self.agent = id, agent
        self.lines: list[Json] = []
        self.tip: str | None = None

    def line(self, kind: str, **more: Any) -> str:
        """A line behind the last one; `parentUuid` in `more` names another."""
        number = len(self.lines) + 1
        at = BEGAN + timedelta(seconds=number)
        made = {
            "uuid": f"{self.agent or ''}u{number}",
            "parentUuid": self.tip,
            "sessionId": self.id,
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "type": kind,
            "cwd": "/home/ann/src/mill",
            "version": "0.15.10",
            **more,
        }
        self.lines.append(made)
        self.tip = str(made["uuid"])
        return self.tip

    def user(self, *parts: Json, **more: Any) -> str:
        return self.line("user", message={"role": "user", "parts": list(parts)}, **more)

    def reply(self, *parts: Json) -> str:
        self.line("system", subtype="ui_telemetry", systemPayload=NOISE)
        used = {
            "promptTokenCount": 100,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 120,
            "cachedContentTokenCount": 30,
        }
        message = {"role": "model", "parts": list(parts)}
        return self.line("assistant", model="qwen3-coder-plus", message=message, usageMetadata=used)

    def result(self, id: str, words: str, status: str = "success") -> str:
        name = "output" if status == "success" else "error"
        given = {"id": id, "name": "read_file", "response": {name: words}}
        return self.line(
            "tool_result",
            message={"role": "user", "parts": [{"functionResponse": given}]},
            toolCallResult={"callId": id, "status": status, "resultDisplay": words},
        )

    def system(self, subtype: str, **payload: Any) -> str:
        return self.line("system", subtype=subtype, systemPayload=payload)

    def write(self, root: Path) -> Path:
        project = root / "projects" / "-home-ann-src-mill"
        path = project / "chats" / f"{self.id}.jsonl"
        if self.agent is not None:
            path = project / "subagents" / self.id / f"agent-{self.agent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def text(words: str) -> Json:
    return {"text": words}


def call(id: str, **arguments: Any) -> Json:
    return {"functionCall": {"id": id, "name": "read_file", "args": arguments}}


def a_day_at_the_mill(session: QwenSession) -> None:
    session.user(text("What is in a.txt?"))
    session.reply({"text": "I read it", "thought": True}, call("c1", path="a.txt"))
    session.result("c1", "flour")
    session.reply(text("Flour."))
    asked = session.tip
    session.user(text("Grind it."))
    session.reply(call("c2", path="mill"))
    session.result("c2", "The mill is broken.", "error")
    session.reply(text("No."))
    session.line("system", subtype="rewind", systemPayload={}, parentUuid=asked)
    session.user(text("Buy bread."))
    session.reply(text("Bought."))
    session.system("custom_title", customTitle="The mill", titleSource="manual")
