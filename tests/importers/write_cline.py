"""Writes tasks as Cline and Roo Code do."""

import base64
import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1769936400000
PICTURE = b"\x89PNG\r\n\x1a\n a picture of an owl"


class Task:
    """A directory with the files of a task."""

    def __init__(self, root: Path, id: str = str(BEGAN), *, parent: str | None = None) -> None:
        self.folder = root / "tasks" / id
        self.folder.mkdir(parents=True)
        self.id = id
        self.talk: list[Json] = []
        self.screen: list[Json] = [
            {"ts": BEGAN, "type": "say", "say": "text", "text": "Look\nwell"}
        ]
        self.item = {"id": id, "ts": BEGAN, "task": "Look\nwell", "workspace": "/home/ann/src/mill"}
        if parent:
            self.item |= {"parentTaskId": parent, "rootTaskId": parent}

    def say(self, role: str, *blocks: Json, **more: Any) -> None:
        at = BEGAN + 1000 * (len(self.talk) + 1)
        self.talk.append({"role": role, "content": list(blocks), "ts": at} | more)

    def paid(self, **tokens: Any) -> None:
        """A call of the model, as the person sees it."""
        at = BEGAN + 1000 * len(self.screen)
        text = json.dumps({"request": "…"} | tokens)
        message = {"ts": at, "type": "say", "say": "api_req_started", "text": text}
        self.screen += [message, message | {"ts": at + 1, "partial": True}]

    def write(self) -> Path:
        usage = [{"ts": BEGAN, "model_id": "claude-sonnet-4-5", "model_provider_id": "anthropic"}]
        for name, value in (
            ("api_conversation_history.json", self.talk),
            ("ui_messages.json", self.screen),
            ("history_item.json", self.item),
            ("task_metadata.json", {"model_usage": usage}),
        ):
            (self.folder / name).write_text(json.dumps(value))
        return self.folder


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def a_day_at_the_mill(task: Task) -> None:
    data = base64.b64encode(PICTURE).decode()
    image = {"type": "base64", "media_type": "image/png", "data": data}
    around = words("<environment_details>\n# Time\nnow\n</environment_details>")
    task.say(
        "user",
        words("<task>\nWhat is in a.txt?\n</task>"),
        around,
        {"type": "image", "source": image},
    )
    use = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a.txt"}}
    task.say("assistant", {"type": "thinking", "thinking": "I read it"}, use)
    task.say("user", {"type": "tool_result", "tool_use_id": "c1", "content": "flour"}, around)
    task.say("assistant", words("Flour."))
    task.say("assistant", words("Flour was found."), isSummary=True)
    task.say("user", words("Grind it."))
    task.paid(tokensIn=100, tokensOut=10, cacheReads=5, cacheWrites=2, cost=0.001)
    task.paid(tokensIn=200, tokensOut=20, cacheReads=5, cacheWrites=2, cost=0.002)


def write_session(root: Path, id: str = "1769936400000_ab") -> Path:
    """A session of the command line."""
    results = [
        {"query": "a.txt", "result": "flour", "success": True},
        {"query": "b.txt", "result": "no such file", "success": False},
    ]
    used = {"inputTokens": 100, "outputTokens": 9, "cacheReadTokens": 40, "cacheWriteTokens": 0}
    signed = {"modelInfo": {"id": "gpt-5", "provider": "openai"}, "metrics": used}
    call = {"type": "tool_use", "id": "c1", "name": "read_files"}
    result = {"type": "tool_result", "tool_use_id": "c1", "name": "read_files", "content": results}
    messages: list[Json] = [
        {
            "role": "user",
            "content": [words('<user_input mode="act">What is in a.txt?</user_input>')],
        },
        {
            "role": "assistant",
            "content": [call | {"input": {"files": [{"path": "a.txt"}]}}],
            **signed,
        },
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [words("Flour.")], **signed},
        {
            "role": "assistant",
            "content": [words("The connection was lost.")],
            "metadata": {"displayOnly": True, "displayRole": "error"},
        },
    ]
    for number, message in enumerate(messages):
        message |= {"id": f"m{number}", "ts": BEGAN + 1000 * number}
    path = root / "sessions" / id / f"{id}.messages.json"
    path.parent.mkdir(parents=True)
    origin = {"source": "cli", "sessionId": id}
    talk = {"version": 1, "agent": "lead", "sessionId": id, "origin": origin, "messages": messages}
    path.write_text(json.dumps(talk, indent=2))
    facts = {"session_id": id, "started_at": "2026-02-01T09:00:00.000Z", "cwd": "/home/ann/mill"}
    facts |= {"model": "gpt-5", "prompt": "What is in a.txt?"}
    written = facts | {"metadata": {"title": "The mill"}}
    path.with_name(f"{id}.json").write_text(json.dumps(written, indent=2))
    return path
