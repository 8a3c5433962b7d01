"""OpenCode's messages: a record that says who speaks, and its parts."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from sessionary.formats import parts, shape
from sessionary.importers import calls, times
from sessionary.importers.base import Compacted, Event, Json, Spent
from sessionary.importers.content import Content, Turn
from sessionary.model.usage import Usage

# What belongs to the tool's own bookkeeping of files and steps.
_BOOKKEEPING = ("snapshot", "patch", "step-start", "step-finish", "retry", "compaction")
# Where a part stands is said by where it is kept.
_PLACE = ("id", "sessionID", "messageID")


def said(id: str, message: Json, given: Iterable[Json], at: datetime) -> Iterator[Event]:
    """A message as one or more of ours: what tools answer stands between a model's words."""
    role = "assistant" if message.get("role") == "assistant" else "user"
    usage = _usage(id, message, at)
    if role == "assistant" and message.get("summary") is True:
        yield Compacted(summary=_words(given), at=at, id=id)
        yield Spent(usage=usage)
        return
    error = message.get("error")
    more = {
        "model": _model(message) if role == "assistant" else None,
        "finish_reason": shape.name(message.get("finish")),
        "extra": {"error": error} if error else None,
        "usage": usage,
    }
    turn = Turn()
    for part in given:
        _add(turn, part)
    made = list(turn.said(role, at, id=id, **more))
    if not made and error:
        made = [Content().said(role, at, id=id, **more)]
    yield from made


def time_of(message: Json) -> datetime | None:
    """When a message was begun."""
    return times.of(shape.record(message.get("time")).get("created"))


def _add(turn: Turn, part: Json) -> None:
    match part:
        case {"type": kind} if kind in _BOOKKEEPING:
            pass
        case {"type": "text", "text": str(words)} if part.get("synthetic") is True:
            turn.words.add({**parts.text(words), "synthetic": True})
        case {"type": "text", "text": str(words)}:
            turn.words.say(words)
        case {"type": "reasoning", "text": str(words)}:
            turn.words.think(words, part.get("metadata") or None)
        case {"type": "tool", "tool": str(name)}:
            _add_call(*turn.tools, part, name)
        case {"type": "file"} if turn.words.attach_url(part.get("url"), part.get("filename")):
            pass
        case _:
            turn.words.keep({key: value for key, value in part.items() if key not in _PLACE})


def _add_call(content: Content, results: Content, part: Json, name: str) -> None:
    id, state = shape.words(part.get("callID")), shape.record(part.get("state"))
    content.add(parts.tool_call(id, name, state.get("input")))
    status = state.get("status")
    if status not in ("completed", "error"):
        return
    told = state.get("error") if status == "error" else state.get("output")
    is_error = status == "error"
    results.add(parts.tool_result(id, "" if told is None else told, name=name, is_error=is_error))
    for file in shape.records(state.get("attachments")):
        if not results.attach_url(file.get("url"), file.get("filename")):
            results.keep({key: value for key, value in file.items() if key not in _PLACE})


def _words(given: Iterable[Json]) -> str:
    texts = [part.get("text") for part in given if part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _model(message: Json) -> str | None:
    inner = shape.record(message.get("model"))
    return shape.name(message.get("modelID")) or shape.name(inner.get("modelID"))


def _usage(id: str, message: Json, at: datetime) -> tuple[Usage, ...]:
    """Reasoning stands apart from the output here, and the cache from the input."""
    tokens = shape.record(message.get("tokens"))
    cache, thoughts = shape.record(tokens.get("cache")), shape.count(tokens.get("reasoning"))
    inner = shape.record(message.get("model"))
    return calls.one(
        "opencode",
        id,
        model=_model(message),
        provider=shape.name(message.get("providerID")) or shape.name(inner.get("providerID")),
        at=at,
        dollars=message.get("cost"),
        input=tokens.get("input"),
        output=shape.count(tokens.get("output")) + thoughts,
        reasoning=thoughts,
        cache_read=cache.get("read"),
        cache_write=cache.get("write"),
    )
