"""For Hermes: a session as `hermes sessions export` writes it and `hermes sessions import` reads."""

from collections.abc import Iterator
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover import openai
from sessionary.model.handover.passage import HandoverExcerpt, HandoverLine
from sessionary.model.message import Reasoning

Json = dict[str, Any]


def pieces(passage: HandoverExcerpt) -> Iterator[str]:
    """The file: one line, a message at a time."""
    yield codec.encode(_row(passage))[:-1] + ',"messages":['
    for number, each in enumerate(_messages(passage)):
        yield ("," if number else "") + codec.encode(each)
    yield "]}\n"


def advice(passage: HandoverExcerpt, file: str) -> str:
    """How to go on there."""
    return f"hermes sessions import --from hermes {quote(file)} && hermes --resume {session_id(passage)}"


def session_id(passage: HandoverExcerpt) -> str:
    """A name of the form that Hermes gives its sessions."""
    return passage.began_at.strftime("%Y%m%d_%H%M%S_") + passage.uuid[:8]


def _row(passage: HandoverExcerpt) -> Json:
    return {
        "id": session_id(passage),
        "source": "cli",
        "user_id": None,
        "model": passage.model,
        "parent_session_id": None,
        "started_at": passage.began_at.timestamp(),
        "ended_at": None,
        "end_reason": None,
        "title": passage.title,
        "cwd": passage.path,
    }


def _messages(passage: HandoverExcerpt) -> Iterator[Json]:
    if passage.preface is not None:
        at = passage.began_at.timestamp()
        yield {"role": "user", "content": passage.preface, "timestamp": at}
    names: dict[str, str] = {}
    for line in passage.lines:
        for made in openai.said(passage, line.said):
            for call in made.get("tool_calls", ()):
                names[call["id"]] = call["function"]["name"]
            if made["role"] == "tool":
                made["tool_name"] = names.get(made["tool_call_id"])
            if thought := _thought(line):
                made["reasoning"] = thought
            yield made | {"timestamp": line.at.timestamp()}


def _thought(line: HandoverLine) -> str | None:
    told = [part.text for part in line.said.parts if isinstance(part, Reasoning)]
    return "\n".join(filter(None, told)) or None
