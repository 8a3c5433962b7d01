"""For Hermes: a session as `hermes sessions export` writes it and `hermes sessions import` reads."""

from collections.abc import Iterator
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover import openai
from sessionary.model.handover.excerpt import HandoverExcerpt, HandoverLine
from sessionary.model.message import Reasoning

Json = dict[str, Any]


def pieces(excerpt: HandoverExcerpt) -> Iterator[str]:
    """The file: one line, a message at a time."""
    yield codec.encode(_row(excerpt))[:-1] + ',"messages":['
    for number, each in enumerate(_messages(excerpt)):
        yield ("," if number else "") + codec.encode(each)
    yield "]}\n"


def advice(excerpt: HandoverExcerpt, file: str) -> str:
    """How to continue in that tool."""
    return f"hermes sessions import --from hermes {quote(file)} && hermes --resume {session_id(excerpt)}"


def session_id(excerpt: HandoverExcerpt) -> str:
    """A name of the form that Hermes gives its sessions."""
    return excerpt.began_at.strftime("%Y%m%d_%H%M%S_") + excerpt.uuid[:8]


def _row(excerpt: HandoverExcerpt) -> Json:
    return {
        "id": session_id(excerpt),
        "source": "cli",
        "user_id": None,
        "model": excerpt.model,
        "parent_session_id": None,
        "started_at": excerpt.began_at.timestamp(),
        "ended_at": None,
        "end_reason": None,
        "title": excerpt.title,
        "cwd": excerpt.path,
    }


def _messages(excerpt: HandoverExcerpt) -> Iterator[Json]:
    if excerpt.preface is not None:
        at = excerpt.began_at.timestamp()
        yield {"role": "user", "content": excerpt.preface, "timestamp": at}
    names: dict[str, str] = {}
    for line in excerpt.lines:
        for made in openai.message_json(excerpt, line.message):
            for call in made.get("tool_calls", ()):
                names[call["id"]] = call["function"]["name"]
            if made["role"] == "tool":
                made["tool_name"] = names.get(made["tool_call_id"])
            if reasoning := _reasoning(line):
                made["reasoning"] = reasoning
            yield made | {"timestamp": line.at.timestamp()}


def _reasoning(line: HandoverLine) -> str | None:
    texts = [part.text for part in line.message.parts if isinstance(part, Reasoning)]
    return "\n".join(filter(None, texts)) or None
