"""Writes Cursor's databases and transcripts, as several of its releases did."""

import base64
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1769936400000
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a cow"
TABS = "workbench.panel.aichat.view.aichat.chatdata"


class CursorUser:
    """The directory of a user."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / ".config" / "Cursor" / "User"
        self.path = self.root / "globalStorage" / "state.vscdb"

    def put(
        self, key: str, value: Any, *, path: Path | None = None, table: str | None = None
    ) -> None:
        base = self._open(path or self.path)
        with base:
            text = json.dumps(value)
            base.execute(
                f"INSERT OR REPLACE INTO {table or 'cursorDiskKV'} VALUES(?,?)", (key, text)
            )
        base.close()

    def head(self, id: str, name: str, folder: str, *, archived: int = 0) -> None:
        base = self._open(self.path)
        value = {"type": "head", "name": name, "workspaceIdentifier": {"uri": {"fsPath": folder}}}
        with base:
            base.execute(
                "CREATE TABLE IF NOT EXISTS composerHeaders(composerId TEXT PRIMARY KEY,"
                " isArchived INTEGER, value TEXT)"
            )
            row = (id, archived, json.dumps(value))
            base.execute("INSERT OR REPLACE INTO composerHeaders VALUES(?,?,?)", row)
        base.close()

    def composer(self, id: str, bubbles: list[Json], **more: Any) -> None:
        """A conversation whose messages stand each under its key."""
        heads = [{"bubbleId": bubble["bubbleId"], "type": bubble["type"]} for bubble in bubbles]
        data = {
            "composerId": id,
            "name": "The mill",
            "createdAt": BEGAN,
            "lastUpdatedAt": BEGAN + len(bubbles),
            "modelConfig": {"modelName": "default"},
            "fullConversationHeadersOnly": heads,
        }
        self.put(f"composerData:{id}", data | more)
        for bubble in bubbles:
            self.put(f"bubbleId:{id}:{bubble['bubbleId']}", bubble)

    def tabs(self, tabs: list[Json]) -> Path:
        """Conversations of the first releases, in a workspace's database."""
        path = self.root / "workspaceStorage" / "abc" / "state.vscdb"
        self.put(TABS, {"tabs": tabs}, path=path, table="ItemTable")
        return path

    def composers(self, composers: list[Json]) -> Path:
        """Conversations of 2024, whole, in a workspace's database."""
        path = self.root / "workspaceStorage" / "def" / "state.vscdb"
        value = {"allComposers": composers, "selectedComposerId": None}
        self.put("composer.composerData", value, path=path, table="ItemTable")
        workspace = json.dumps({"folder": "file:///home/ann/src/mill"})
        (path.parent / "workspace.json").write_text(workspace)
        return path

    def transcript(self, id: str, data: str, *, suffix: str = ".jsonl", parent: str = "") -> Path:
        folder = self.home / ".cursor" / "projects" / "home-ann-mill" / "agent-transcripts"
        folder = folder / parent / "subagents" if parent else folder / id
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{id}{suffix}"
        path.write_text(data)
        return path

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        base = sqlite3.connect(path)
        for table in ("ItemTable", "cursorDiskKV"):
            base.execute(
                f"CREATE TABLE IF NOT EXISTS {table}(key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"
            )
        return base


def user(id: str, text: str, **more: Any) -> Json:
    at = f"2026-02-01T09:00:0{len(id)}.000Z"
    return {"_v": 3, "type": 1, "bubbleId": id, "text": text, "createdAt": at} | more


def reply(id: str, text: str = "", **more: Any) -> Json:
    made = {
        "type": 2,
        "modelInfo": {"modelName": "claude-sonnet-4-5"},
        "tokenCount": {"inputTokens": 10, "outputTokens": 3},
    }
    return user(id, text) | made | more


def tool(id: str, status: str, result: str | None) -> Json:
    data = {
        "name": "read_file_v2",
        "toolCallId": "c1",
        "params": '{"path": "a.txt"}',
        "status": status,
        "result": result,
    }
    return reply(id, toolFormerData=data)


def lines(*messages: tuple[str, str]) -> str:
    made = [
        {"role": role, "message": {"content": [{"type": "text", "text": text}]}}
        for role, text in messages
    ]
    return "".join(json.dumps(each) + "\n" for each in made)


def a_day_at_the_mill() -> list[Json]:
    data = base64.b64encode(PICTURE).decode()
    return [
        user("b1", "What is in a.txt?", images=[{"data": data, "mimeType": "image/png"}]),
        reply("b2", thinking={"text": "I read it", "signature": "sig"}),
        tool("b3", "completed", "flour"),
        reply("b4", "Flour."),
        user("b5", "Grind it."),
        tool("b6", "error", "the mill is broken"),
        reply("b7", ""),
    ]


def a_day_on_the_line() -> list[Json]:
    """A conversation as the command line keeps it."""
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "Read", "args": {"path": "a.txt"}}
    result = {"type": "tool-result", "toolCallId": "c1", "toolName": "Read", "result": "flour"}
    thought = {"type": "reasoning", "text": "I read it", "signature": "sig"}
    return [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [_words("<user_info>\nOS: linux\n</user_info>")]},
        {"role": "user", "content": [_words("<user_query>\nWhat is in a.txt?\n</user_query>")]},
        {"role": "assistant", "id": "1", "content": [thought, call]},
        {"role": "tool", "id": "c1", "content": [result]},
        {"role": "assistant", "id": "2", "content": [_words("Flour.")]},
    ]


def write_store(home: Path, id: str, messages: list[Json], *, torn: bool = False) -> Path:
    """The database of a conversation of the command line; torn: one message is not there."""
    path = home / ".cursor" / "chats" / "0a1b2c" / id / "store.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE blobs(id TEXT PRIMARY KEY, data BLOB)")
    base.execute("CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT)")
    root = b""
    for number, message in enumerate(messages):
        data = json.dumps(message).encode()
        name = hashlib.sha256(data)
        root += b"\x0a\x20" + name.digest()
        if not (torn and number == 3):
            base.execute("INSERT INTO blobs VALUES(?,?)", (name.hexdigest(), data))
    folder = b"/home/ann/src/mill"
    root += b"\x10\x07" + b"\x4a" + bytes([len(folder)]) + folder
    name = hashlib.sha256(root)
    base.execute("INSERT INTO blobs VALUES(?,?)", (name.hexdigest(), root))
    meta = {
        "agentId": id,
        "latestRootBlobId": name.hexdigest(),
        "name": "The mill",
        "createdAt": BEGAN,
        "lastUsedModel": "claude-4.5-sonnet",
    }
    base.execute("INSERT INTO meta VALUES('0', ?)", (json.dumps(meta).encode().hex(),))
    base.commit()
    base.close()
    return path


def _words(text: str) -> Json:
    return {"type": "text", "text": text}
