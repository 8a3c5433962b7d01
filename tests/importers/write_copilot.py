"""Writes conversations as Copilot does, in VS Code and on the command line."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1769936400000


def request(number: int, text: str, *response: Json, **more: Any) -> Json:
    return {
        "requestId": f"request_{number}",
        "message": {"text": text, "parts": [{"kind": "text", "text": text}]},
        "response": list(response),
        "modelId": "copilot/claude-sonnet-4.5",
        "timestamp": BEGAN + 1000 * number,
        "result": {
            "timings": {"totalElapsed": 5},
            "metadata": {
                "promptTokens": 100,
                "outputTokens": 7,
                "resolvedModel": "claude-sonnet-4-5",
            },
        },
    } | more


def words(text: str) -> Json:
    return {"value": text, "supportThemeIcons": False}


def tool(call: str, **more: Any) -> Json:
    return {
        "kind": "toolInvocationSerialized",
        "toolId": "copilot_readFile",
        "toolCallId": call,
        "invocationMessage": {"value": "Reading a.txt"},
        "pastTenseMessage": {"value": "Read a.txt"},
        "isComplete": True,
    } | more


def a_day_at_the_mill() -> list[Json]:
    metadata = {
        "promptTokens": 200,
        "outputTokens": 9,
        "resolvedModel": "claude-sonnet-4-5",
        "toolCallRounds": [
            {"toolCalls": [{"id": "c1", "name": "read_file", "arguments": '{"path": "a.txt"}'}]}
        ],
        "toolCallResults": {"c1": {"content": [{"$mid": 20, "value": "flour"}]}},
    }
    return [
        request(
            1,
            "What is in a.txt?",
            {"kind": "mcpServersStarting"},
            {"kind": "thinking", "value": "I read it"},
            tool("c1"),
            words("There is "),
            {"kind": "inlineReference", "name": "flour", "inlineReference": {"path": "/x"}},
            words("."),
            result={"metadata": metadata},
        ),
        request(2, "Grind it.", result={"errorDetails": {"message": "the mill is broken"}}),
    ]


class Chat:
    """A conversation of VS Code."""

    def __init__(self, user: Path, id: str = "chat-1") -> None:
        self.folder = user / "workspaceStorage" / "abc" / "chatSessions"
        self.folder.mkdir(parents=True, exist_ok=True)
        workspace = {"folder": "file:///home/ann/src/mill"}
        (self.folder.parent / "workspace.json").write_text(json.dumps(workspace))
        self.id = id
        self.head = {
            "version": 3,
            "sessionId": id,
            "creationDate": BEGAN,
            "lastMessageDate": BEGAN,
            "responderUsername": "GitHub Copilot",
        }
        self.log: list[Json] = [{"kind": 0, "v": self.head | {"requests": []}}]

    def write_document(self, requests: list[Json]) -> Path:
        path = self.folder / f"{self.id}.json"
        document = self.head | {"customTitle": "The mill", "requests": requests}
        path.write_text(json.dumps(document, indent=2))
        return path

    def push(self, *requests: Json, cut: int | None = None) -> None:
        change: Json = {"kind": 2, "k": ["requests"], "v": list(requests)}
        self.log.append(change if cut is None else change | {"i": cut})

    def put(self, *path: Any, value: Any) -> None:
        self.log.append({"kind": 1, "k": list(path), "v": value})

    def write_log(self) -> Path:
        path = self.folder / f"{self.id}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in self.log))
        return path


class Run:
    """A session of the command line."""

    def __init__(self, root: Path, id: str = "run-1") -> None:
        self.folder = root / "session-state" / id
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events: list[Json] = []
        context = {"cwd": "/home/ann/src/mill", "branch": "main"}
        self.event("session.start", sessionId=id, context=context, selectedModel="gpt-5")

    def event(self, kind: str, **data: Any) -> None:
        number = len(self.events)
        at = f"2026-02-01T09:00:{number:02}.000Z"
        self.events.append({"type": kind, "id": f"e{number}", "timestamp": at, "data": data})

    def text(self) -> str:
        return "".join(json.dumps(event) + "\n" for event in self.events)

    def write(self) -> Path:
        (self.folder / "workspace.yaml").write_text("id: x\nsummary: The mill\n")
        path = self.folder / "events.jsonl"
        path.write_text(self.text())
        return path


def a_day_on_the_line(run: Run) -> None:
    run.event(
        "user.message", content="What is in a.txt?", attachments=[{"type": "file", "path": "a"}]
    )
    run.event("assistant.turn_start", turnId="0")
    request = {"toolCallId": "c1", "name": "view", "arguments": {"path": "a.txt"}}
    run.event(
        "assistant.message",
        content="",
        reasoningText="I read it",
        toolRequests=[request],
        outputTokens=5,
    )
    run.event("tool.execution_start", toolCallId="c1", toolName="view", arguments={})
    run.event("tool.execution_complete", toolCallId="c1", success=True, result={"content": "flour"})
    run.event("session.model_change", newModel="claude-sonnet-4.5")
    run.event("assistant.reasoning", content="Easy")
    run.event("assistant.message", content="Flour.", toolRequests=[], outputTokens=3)
    run.event("session.compaction_complete", summaryContent="Flour was found.", success=True)
    run.event("session.error", message="The mill is broken.")
    usage = {
        "inputTokens": 100,
        "outputTokens": 8,
        "cacheReadTokens": 60,
        "cacheWriteTokens": 10,
        "reasoningTokens": 2,
    }
    run.event("session.shutdown", modelMetrics={"gpt-5": {"usage": usage}})
