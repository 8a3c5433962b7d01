"""Writes chats as Open WebUI keeps and exports them."""

import base64
import html
import json
import sqlite3
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1769936400
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a pig"
SCHEMA = """
CREATE TABLE chat(id TEXT PRIMARY KEY, user_id TEXT, title TEXT, chat JSON, created_at INTEGER,
  updated_at INTEGER, archived INTEGER, pinned INTEGER, meta JSON, folder_id TEXT);
CREATE TABLE folder(id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE chat_message(id TEXT PRIMARY KEY, chat_id TEXT, role TEXT, parent_id TEXT, content JSON,
  model_id TEXT, usage JSON, error JSON, created_at INTEGER);
"""


class Tree:
    """The messages of a chat."""

    def __init__(self) -> None:
        self.messages: dict[str, Json] = {}
        self.current: str | None = None

    def say(self, role: str, content: str, parent: str | None, **more: Any) -> str:
        id = f"m{len(self.messages) + 1}"
        at = BEGAN + len(self.messages)
        made: Json = {
            "id": id,
            "parentId": parent,
            "childrenIds": [],
            "role": role,
            "content": content,
        }
        self.messages[id] = made | {"timestamp": at} | more
        if parent is not None:
            self.messages[parent]["childrenIds"].append(id)
        self.current = id
        return id

    def reply(self, content: str, parent: str, **more: Any) -> str:
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 40},
        }
        return self.say("assistant", content, parent, model="gpt-5", usage=usage, done=True, **more)

    def chat(self) -> Json:
        history = {"currentId": self.current, "messages": self.messages}
        return {"title": "The mill", "models": ["gpt-5"], "history": history}


def a_day_at_the_mill() -> Tree:
    tree = Tree()
    data = base64.b64encode(PICTURE).decode()
    files = [
        {"type": "image", "url": f"data:image/png;base64,{data}"},
        {"type": "file", "id": "f1"},
    ]
    asked = tree.say("user", "What is in a.txt?", None, files=files)
    call = html.escape(json.dumps(json.dumps({"path": "a.txt"})))
    result = html.escape(json.dumps("flour"))
    tree.reply(
        '<details type="reasoning" done="true" duration="3">\n'
        "<summary>Thought for 3 seconds</summary>\n> I read it\n> with care\n</details>\n"
        f'<details type="tool_calls" done="true" id="c1" name="read" arguments="{call}" '
        f'result="{result}">\n<summary>Tool Executed</summary>\n</details>\nFlour.',
        asked,
    )
    second = tree.reply("It is flour.", asked)
    grind = tree.say("user", "Grind it.", second)
    tree.reply("", grind, error={"content": "the mill is broken"})
    return tree


def row(id: str, tree: Tree, **more: Any) -> Json:
    made = {
        "id": id,
        "user_id": "u",
        "title": "The mill",
        "chat": tree.chat(),
        "created_at": BEGAN,
        "updated_at": BEGAN + len(tree.messages),
        "archived": 0,
        "pinned": 1,
        "meta": {"tags": ["food"]},
        "folder_id": "f",
    }
    return made | more


def put(path: Path, *rows: Json, apart: list[tuple[Any, ...]] | None = None) -> None:
    is_new = not path.exists()
    base = sqlite3.connect(path)
    if is_new:
        base.executescript(SCHEMA)
    with base:
        base.execute("INSERT OR REPLACE INTO folder VALUES('f', 'Village')")
        for each in rows:
            values = [json.dumps(v) if isinstance(v, dict) else v for v in each.values()]
            base.execute("INSERT OR REPLACE INTO chat VALUES(?,?,?,?,?,?,?,?,?,?)", values)
        for one in apart or []:
            base.execute("INSERT OR REPLACE INTO chat_message VALUES(?,?,?,?,?,?,?,?,?)", one)
    base.close()
