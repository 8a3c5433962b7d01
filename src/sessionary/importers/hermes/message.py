"""A message as Hermes writes it: a row of its database, a line of a transcript, an item of a list."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sessionary.formats import coerce, openai_items, parts
from sessionary.importers.base.content import MessageContent, parse_time
from sessionary.importers.base.events import FOLLOWS, Json, MessageEvent

COLUMNS = (
    "id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "timestamp",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "platform_message_id",
    "observed",
    "active",
    "compacted",
)
_JSON_TEXTS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
# How a list of parts is written where a text is expected.
_AS_JSON = "\x00json:"
# What is kept beside the parts, under the tool's name.
_KEPT = (
    "codex_reasoning_items",
    "codex_message_items",
    "platform_message_id",
    "message_id",
    "observed",
    "attachments",
    "_recovered",
    "_error",
)
NOT_SAID = ("session_meta",)
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
_SUMMARY_END = re.compile(r"^-+\s*END OF CONTEXT SUMMARY[^\n]*$", re.MULTILINE)
# What the web interface puts before the words that a person typed.
_WORKSPACE = re.compile(r"\A\[Workspace:[^\]\n]*\]\s*\n?")


class MessageKey(NamedTuple):
    """What is needed to tell where a message belongs: not its words."""

    key: str
    role: str
    at: datetime | None
    is_summary: bool = False
    is_taken_back: bool = False


def from_row(row: tuple[Any, ...]) -> Json:
    """A row with the columns of `COLUMNS` as an object; what it lacks is left out."""
    return unpacked(dict(zip(COLUMNS, row, strict=True)))


def unpacked(row: Json) -> Json:
    """A message whose lists and objects may be written as texts."""
    found = {name: value for name, value in row.items() if value is not None}
    content = found.get("content")
    if isinstance(content, str) and content.startswith(_AS_JSON):
        found["content"] = coerce.parse_json_or_keep(content.removeprefix(_AS_JSON))
    for name in _JSON_TEXTS:
        if name in found:
            found[name] = coerce.parse_json_or_keep(found[name])
    return found


def light(raw: Json) -> MessageKey:
    """What tells a message from others: the same whichever file it stands in."""
    role = openai_items.role_of(raw.get("role"), "system")
    words = words_of(raw)
    calls = _call_ids(raw)
    said: tuple[str, ...]
    if role == "tool" and (call := coerce.name(raw.get("tool_call_id"))):
        said = ("tool", call)
    elif role == "assistant" and calls:
        said = ("calls", *calls, words)
    else:
        said = (role, words, _others(raw.get("content")))
    digest = hashlib.blake2b(digest_size=8)
    for each in said:
        digest.update(each.encode("utf-8", "surrogatepass") + b"\x00")
    is_off = raw.get("active") in (0, False) and not raw.get("compacted")
    return MessageKey(digest.hexdigest(), role, at(raw), is_summary(words), is_off)


def words_of(raw: Json) -> str:
    """The words of a message, without what programs put around them."""
    content = raw.get("content")
    if isinstance(content, list):
        found = [each.get("text") for each in coerce.records(content)]
        found += [each for each in content if isinstance(each, str)]
        content = "\n".join(each for each in found if isinstance(each, str))
    words = content if isinstance(content, str) else ""
    return _WORKSPACE.sub("", words).strip()


def at(raw: Json) -> datetime | None:
    """When it was said; a time without a zone is this machine's."""
    for name in ("timestamp", "_ts"):
        value = raw.get(name)
        found = local(value) if isinstance(value, str) else parse_time(value)
        if found is not None:
            return found
    return None


def local(text: object) -> datetime | None:
    """The moment that a text names, in this machine's time when it names no zone."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        return (
            parse_time(found.astimezone(UTC).isoformat())
            if found.tzinfo is None
            else parse_time(text)
        )
    except (ValueError, OverflowError, OSError):
        return parse_time(text)


def is_summary(words: str) -> bool:
    """Whether the message stands for what was said before it."""
    return words.startswith(_SUMMARIES)


def split_summary(words: str) -> tuple[str, str]:
    """A summary, and what was said behind it in the same message."""
    end = _SUMMARY_END.search(words)
    if end is None:
        return words, ""
    return words[: end.start()].rstrip(), words[end.end() :].strip()


def filled(first: Json, *others: Json) -> Json:
    """One message of what several files say of it: the first has the word."""
    made = dict(first)
    for other in others:
        for name, value in other.items():
            if made.get(name) in (None, "", []) and value not in (None, "", []):
                made[name] = value
    return made


def said(raw: Json, *, id: str, at: datetime, parent: str | None = FOLLOWS) -> MessageEvent:
    """The message in our words; what has no place here is kept beside it."""
    role = openai_items.role_of(raw.get("role"), "system")
    content = MessageContent()
    kept = {name: raw[name] for name in _KEPT if raw.get(name)}
    if role == "assistant":
        thought = coerce.text(raw.get("reasoning")) or coerce.text(raw.get("reasoning_content"))
        content.think(thought, raw.get("reasoning_details"))
    if role == "tool":
        _add_result(content, raw)
    else:
        _add_content(content, raw.get("content"))
        openai_items.add_tool_calls(content, raw.get("tool_calls"))
    if raw.get("role") != role:
        kept["role"] = raw.get("role")
    return content.said(
        role,
        at,
        id=id,
        parent=parent,
        finish_reason=coerce.name(raw.get("finish_reason")),
        token_count=coerce.count(raw.get("token_count")) or None,
        extra={"hermes": kept} if kept else None,
    )


def _add_content(content: MessageContent, given: object) -> None:
    if given is not None and not isinstance(given, str | list):
        content.keep(given)
    else:
        openai_items.add(content, given)


def _add_result(content: MessageContent, raw: Json) -> None:
    given = raw.get("content")
    inner = MessageContent()
    if isinstance(given, list):
        openai_items.add(inner, given)
    texts = [part["text"] for part in inner.parts if part["type"] == "text"]
    rest = [part for part in inner.parts if part["type"] != "text"]
    told: Any = "\n".join(texts) if isinstance(given, list) else "" if given is None else given
    name = coerce.name(raw.get("tool_name")) or coerce.name(raw.get("name"))
    call = raw.get("tool_call_id")
    content.add(parts.tool_result("" if call is None else str(call), told, name=name), *rest)
    content.blobs.extend(inner.blobs)


def _call_ids(raw: Json) -> list[str]:
    calls = coerce.records(raw.get("tool_calls"))
    return [coerce.text(each.get("id")) or coerce.text(each.get("call_id")) for each in calls]


def _others(content: object) -> str:
    """Whatever of a content is no text, as a text."""
    if content is None or isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return repr(content)
    rest = [e for e in content if not isinstance(e, str) and coerce.record(e).get("type") != "text"]
    return hashlib.blake2b(repr(rest).encode("utf-8", "surrogatepass")).hexdigest() if rest else ""
