"""Writes conversations as LibreChat exports them."""

from typing import Any

Json = dict[str, Any]
ROOT = "00000000-0000-0000-0000-000000000000"


def message(id: str, parent: str, text: str, *, is_person: bool = False, **more: Any) -> Json:
    made = {
        "messageId": id,
        "parentMessageId": parent,
        "conversationId": "talk-1",
        "sender": "User" if is_person else "GPT",
        "text": text,
        "isCreatedByUser": is_person,
        "model": None if is_person else "gpt-5",
        "endpoint": "openAI",
        "tokenCount": 5,
        "createdAt": f"2026-02-01T09:00:{int(id[1:]):02}.000Z",
    }
    return made | more


def a_day_at_the_mill() -> list[Json]:
    call = {"id": "c1", "name": "read", "args": '{"path": "a.txt"}', "output": "flour"}
    content = [
        {"type": "think", "think": "I read it"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_call", "tool_call": call},
        {"type": "text", "text": {"value": "Flour."}},
    ]
    return [
        message("m1", ROOT, "What is in a.txt?", is_person=True, files=[{"file_id": "f1"}]),
        message("m2", "m1", "", content=content),
        message("m3", "m2", "Grind it.", is_person=True),
        message("m4", "m3", "the mill is broken", error=True),
        message("m5", "m2", "Buy bread.", is_person=True),
        message("m6", "m5", ":::thinking\nEasy\n:::\nBought."),
    ]


def export(messages: list[Json], *, is_tree: bool = False) -> Json:
    head = {
        "conversationId": "talk-1",
        "endpoint": "openAI",
        "title": "The mill",
        "exportAt": "10:00:00 GMT",
        "branches": True,
        "recursive": is_tree,
        "options": {"model": "gpt-5", "tags": ["food"]},
    }
    return head | {"messages": _tree(messages, ROOT) if is_tree else messages}


def _tree(messages: list[Json], parent: str) -> list[Json]:
    return [
        each | {"children": _tree(messages, each["messageId"])}
        for each in messages
        if each["parentMessageId"] == parent
    ]
