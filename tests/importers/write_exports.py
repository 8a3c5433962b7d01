"""Writes the exports of ChatGPT and Claude.ai as their users get them."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"


class ChatGptTalk:
    """One conversation as ChatGPT keeps it: a tree."""

    def __init__(self, id: str = "conv-1", **facts: Any) -> None:
        self.data: Json = {
            "title": "Capitals",
            "create_time": NOON.timestamp(),
            "update_time": NOON.timestamp() + 60,
            "mapping": {"root": {"id": "root", "message": None, "parent": None, "children": []}},
            "current_node": "root",
            "default_model_slug": "gpt-5",
            "conversation_id": id,
            "id": id,
            "is_archived": False,
            **facts,
        }

    def say(
        self, id: str, role: str, content: Any, *, after: str | None = None, **more: Any
    ) -> "ChatGptTalk":
        """A message behind another one, by itself the current one."""
        mapping = self.data["mapping"]
        parent = after or self.data["current_node"]
        if isinstance(content, str):
            content = {"content_type": "text", "parts": [content]}
        name = more.pop("name", None)
        message = {
            "id": id,
            "author": {"role": role, "name": name, "metadata": {}},
            "create_time": NOON.timestamp() + len(mapping),
            "content": content,
            "status": "finished_successfully",
            "metadata": {"model_slug": "gpt-5"} if role == "assistant" else {},
            "recipient": "all",
            **more,
        }
        mapping[id] = {"id": id, "message": message, "parent": parent, "children": []}
        mapping[parent]["children"].append(id)
        self.data["current_node"] = id
        return self


def chatgpt_talk() -> ChatGptTalk:
    """A conversation with everything in it."""
    picture = {
        "content_type": "image_asset_pointer",
        "asset_pointer": "file-service://file-ABC123",
        "width": 10,
    }
    code = {"content_type": "code", "language": "python", "text": "print(6 * 7)"}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Sum", "content": "6*7=42"}]}
    hidden: Json = {"metadata": {"is_visually_hidden_from_conversation": True}}
    context = {"content_type": "user_editable_context", "user_profile": "I am Anna."}
    return (
        ChatGptTalk()
        .say("sys", "system", "", **hidden)
        .say("ctx", "user", context, **hidden)
        .say("q1", "user", {"content_type": "multimodal_text", "parts": [picture, "What is it?"]})
        .say("t1", "assistant", thoughts)
        .say("c1", "assistant", code, recipient="python")
        .say("o1", "tool", {"content_type": "execution_output", "text": "42\n"}, name="python")
        .say("a1", "assistant", "A pixel; and 42.")
    )


def claude_talk(uuid: str = "5f2a", texts: Sequence[str] = ("Hello", "Hi"), **facts: Any) -> Json:
    """One conversation as Claude.ai exports it."""
    messages = [
        claude_message(f"{uuid}-m{n}", "human" if n % 2 == 0 else "assistant", text, n)
        for n, text in enumerate(texts)
    ]
    return {
        "uuid": uuid,
        "name": "Greetings",
        "created_at": NOON.isoformat().replace("+00:00", "Z"),
        "updated_at": NOON.isoformat().replace("+00:00", "Z"),
        "account": {"uuid": "acc"},
        "chat_messages": messages,
        **facts,
    }


def claude_message(uuid: str, sender: str, text: str, second: int = 0, **more: Any) -> Json:
    """One message of it."""
    at = (NOON + timedelta(seconds=second)).isoformat()
    return {
        "uuid": uuid,
        "text": text,
        "content": [{"type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": at,
        "updated_at": at,
        "attachments": [],
        "files": [],
        **more,
    }


def zipped(path: Path, lists: Mapping[str, Sequence[Json]], more: Mapping[str, bytes]) -> Path:
    """An export as it is sent."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, talks in lists.items():
            made.writestr(name, json.dumps(talks))
        for name, data in more.items():
            made.writestr(name, data)
    return path
