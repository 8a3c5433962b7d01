"""A message of Hermes: a row of its database, a line of a transcript, or an item of a list."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sessionary.formats import coerce, openai_items, parts
from sessionary.importers.base.content import MessageContent, parse_time
from sessionary.importers.base.events import FOLLOWS, Json, MessageEvent

COLUMNS = (
    *("id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp"),
    *("token_count", "finish_reason", "reasoning", "reasoning_content", "reasoning_details"),
    *("codex_reasoning_items", "codex_message_items", "platform_message_id", "observed"),
    *("active", "compacted"),
)
_JSON_TEXTS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
# The prefix of a list of parts in a text column.
_AS_JSON = "\x00json:"
# Fields that are stored beside the parts, under the tool's name.
_EXTRA_FIELDS = (
    *("codex_reasoning_items", "codex_message_items", "platform_message_id", "message_id"),
    *("observed", "attachments", "_recovered", "_error"),
)
IGNORED_ROLES = ("session_meta",)
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
_SUMMARY_END = re.compile(r"^-+\s*END OF CONTEXT SUMMARY[^\n]*$", re.MULTILINE)
# What the web interface puts before a prompt.
_WORKSPACE = re.compile(r"\A\[Workspace:[^\]\n]*\]\s*\n?")


class MessageKey(NamedTuple):
    """What is needed to find the place of a message, without its text."""

    key: str
    role: str
    at: datetime | None
    is_summary: bool = False
    is_taken_back: bool = False


def unpacked(row: Json) -> Json:
    """Return a message with the lists and objects that were stored as texts decoded."""
    found = {name: value for name, value in row.items() if value is not None}
    content = found.get("content")
    if isinstance(content, str) and content.startswith(_AS_JSON):
        found["content"] = coerce.parse_json_or_keep(content.removeprefix(_AS_JSON))
    for name in _JSON_TEXTS:
        if name in found:
            found[name] = coerce.parse_json_or_keep(found[name])
    return found


def key_of(raw: Json) -> MessageKey:
    """Return the key of a message: the same in every file that has it."""
    role = openai_items.role_of(raw.get("role"), "system")
    words = words_of(raw)
    calls = _call_ids(raw)
    to_message: tuple[str, ...]
    if role == "tool" and (call := coerce.name(raw.get("tool_call_id"))):
        to_message = ("tool", call)
    elif role == "assistant" and calls:
        to_message = ("calls", *calls, words)
    else:
        to_message = (role, words, _others(raw.get("content")))
    digest = hashlib.blake2b(digest_size=8)
    for each in to_message:
        digest.update(each.encode("utf-8", "surrogatepass") + b"\x00")
    is_off = raw.get("active") in (0, False) and not raw.get("compacted")
    return MessageKey(digest.hexdigest(), role, at(raw), is_summary(words), is_off)


def words_of(raw: Json) -> str:
    """Return the text of a message, without what programs put around it."""
    content = raw.get("content")
    if isinstance(content, list):
        found = [each.get("text") for each in coerce.records(content)]
        found += [each for each in content if isinstance(each, str)]
        content = "\n".join(each for each in found if isinstance(each, str))
    words = content if isinstance(content, str) else ""
    return _WORKSPACE.sub("", words).strip()


def at(raw: Json) -> datetime | None:
    """Return the time of a message; without a zone it is local time."""
    for name in ("timestamp", "_ts"):
        value = raw.get(name)
        found = local(value) if isinstance(value, str) else parse_time(value)
        if found is not None:
            return found
    return None


def local(text: object) -> datetime | None:
    """Return the time of a text; without a zone it is local time."""
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
    """Whether a text is the summary of the messages before it."""
    return words.startswith(_SUMMARIES)


def split_summary(words: str) -> tuple[str, str]:
    """Return a summary, and the text after it in the same message."""
    end = _SUMMARY_END.search(words)
    if end is None:
        return words, ""
    return words[: end.start()].rstrip(), words[end.end() :].strip()


def filled(first: Json, *others: Json) -> Json:
    """Merge the copies of a message; the first copy's fields win."""
    made = dict(first)
    for other in others:
        for name, value in other.items():
            if made.get(name) in (None, "", []) and value not in (None, "", []):
                made[name] = value
    return made


def to_message(raw: Json, *, id: str, at: datetime, parent: str | None = FOLLOWS) -> MessageEvent:
    """Return the message; unknown fields are stored beside its parts."""
    role = openai_items.role_of(raw.get("role"), "system")
    content = MessageContent()
    extra = {name: raw[name] for name in _EXTRA_FIELDS if raw.get(name)}
    if role == "assistant":
        reasoning = coerce.text(raw.get("reasoning")) or coerce.text(raw.get("reasoning_content"))
        content.add_reasoning(reasoning, raw.get("reasoning_details"))
    if role == "tool":
        _add_result(content, raw)
    else:
        _add_content(content, raw.get("content"))
        openai_items.add_tool_calls(content, raw.get("tool_calls"))
    if raw.get("role") != role:
        extra["role"] = raw.get("role")
    return content.to_message(
        role,
        at,
        id=id,
        parent=parent,
        finish_reason=coerce.name(raw.get("finish_reason")),
        token_count=coerce.count(raw.get("token_count")) or None,
        extra={"hermes": extra} if extra else None,
    )


def _add_content(content: MessageContent, given: object) -> None:
    if given is not None and not isinstance(given, str | list):
        content.add_unknown(given)
    else:
        openai_items.add(content, given)


def _add_result(content: MessageContent, raw: Json) -> None:
    given = raw.get("content")
    inner = MessageContent()
    if isinstance(given, list):
        openai_items.add(inner, given)
    texts = [part["text"] for part in inner.parts if part["type"] == "text"]
    rest = [part for part in inner.parts if part["type"] != "text"]
    text: Any = "\n".join(texts) if isinstance(given, list) else "" if given is None else given
    name = coerce.first_name(raw.get("tool_name"), raw.get("name"))
    call = raw.get("tool_call_id")
    content.add(parts.tool_result("" if call is None else str(call), text, name=name), *rest)
    content.blobs.extend(inner.blobs)


def _call_ids(raw: Json) -> list[str]:
    calls = coerce.records(raw.get("tool_calls"))
    return [coerce.text(each.get("id")) or coerce.text(each.get("call_id")) for each in calls]


def _others(content: object) -> str:
    """Return a digest of the parts that are no text."""
    if content is None or isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return repr(content)
    rest = [e for e in content if not isinstance(e, str) and coerce.record(e).get("type") != "text"]
    return hashlib.blake2b(repr(rest).encode("utf-8", "surrogatepass")).hexdigest() if rest else ""
