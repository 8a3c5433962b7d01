"""A message of Hermes: a row of its database, a line of a transcript, or an item of a list.

Each place of messages is read twice: once for the order, once for the content.
"""

import hashlib
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import MessageContent, parse_time
from sessionary.store.sqlite.external_file import ExternalDatabase

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
    words, content = words_of(raw), raw.get("content")
    calls = coerce.records(raw.get("tool_calls"))
    hashed: list[str]
    if role == "tool" and (call := coerce.name(raw.get("tool_call_id"))):
        hashed = ["tool", call]
    elif role == "assistant" and calls:
        ids = [coerce.text(each.get("id")) or coerce.text(each.get("call_id")) for each in calls]
        hashed = ["calls", *ids, words]
    else:
        # The parts that are no texts count, too.
        others = "" if content is None or isinstance(content, str) else repr(content)
        if isinstance(content, list):
            rest = [
                each
                for each in content
                if not isinstance(each, str) and coerce.record(each).get("type") != "text"
            ]
            encoded = repr(rest).encode("utf-8", "surrogatepass")
            others = hashlib.blake2b(encoded).hexdigest() if rest else ""
        hashed = [role, words, others]
    digest = hashlib.blake2b(digest_size=8)
    for each in hashed:
        digest.update(each.encode("utf-8", "surrogatepass") + b"\x00")
    is_off = raw.get("active") in (0, False) and not raw.get("compacted")
    times = (raw.get(name) for name in ("timestamp", "_ts"))
    found = (local(each) if isinstance(each, str) else parse_time(each) for each in times)
    at = next(filter(None, found), None)
    return MessageKey(digest.hexdigest(), role, at, is_summary(words), is_off)


def words_of(raw: Json) -> str:
    """Return the text of a message, without what programs put around it."""
    content = raw.get("content")
    if isinstance(content, list):
        found = [each.get("text") for each in coerce.records(content)]
        found += [each for each in content if isinstance(each, str)]
        content = "\n".join(each for each in found if isinstance(each, str))
    return _WORKSPACE.sub("", coerce.text(content)).strip()


def local(text: object) -> datetime | None:
    """Return the time of a text; without a zone it is local time."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            text = found.astimezone(UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
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


def to_message(
    raw: Json, *, id: str, at: datetime, parent: str | None = events.FOLLOWS
) -> events.MessageEvent:
    """Return the message; unknown fields are stored beside its parts."""
    role = openai_items.role_of(raw.get("role"), "system")
    content = MessageContent()
    extra = {name: raw[name] for name in _EXTRA_FIELDS if raw.get(name)}
    given = raw.get("content")
    if role == "assistant":
        reasoning = coerce.text(raw.get("reasoning")) or coerce.text(raw.get("reasoning_content"))
        content.add_reasoning(reasoning, raw.get("reasoning_details"))
    if role == "tool":
        result: Any = "" if given is None else given
        if isinstance(given, list):
            result = MessageContent()
            openai_items.add(result, given)
        call = raw.get("tool_call_id")
        name = coerce.first_name(raw.get("tool_name"), raw.get("name"))
        content.add_result("" if call is None else str(call), result, name=name)
    else:
        if given is None or isinstance(given, str | list):
            openai_items.add(content, given)
        else:
            content.add_unknown(given)
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


# The keys of all messages of a conversation are held in memory.
MOST = 500_000


@dataclass(frozen=True, slots=True)
class MessageSource:
    """The messages of a session from one place, and what cannot be read among them, in order."""

    path: Path
    read: Callable[[], Iterator[Json | events.Event]]


def read_database(database: ExternalDatabase, id: str) -> Iterator[Json | events.Event]:
    """Yield the messages of one session in a database."""
    if not database.has("messages", "session_id", "role"):
        return
    where = ("session_id", id)
    for row in databases.records(database, "messages", COLUMNS, where=where, order=["id"]):
        if isinstance(row["role"], str):
            yield unpacked(row)
        else:
            yield events.Skipped(where=f"message {str(row['id'])[:20]}", why="it has no role")


def read_transcript(path: Path) -> Iterator[Json | events.Event]:
    """Yield the messages of one session in a transcript, one a line."""
    for number, line in enumerate(files.read_json_lines(path), 1):
        if line.data is not None and isinstance(line.data.get("role"), str):
            yield line.data
        else:
            why = line.why or "it is no message"
            yield events.Skipped(where=f"{path.name} line {number}", why=why)


def exported_session(path: Path, place: int) -> Json:
    """Return one session of an export: a line with its fields and messages."""
    with files.opened(path) as file:
        line = next(files.json_lines(file, place), None)
    return {} if line is None else coerce.record(line.data)


def read_exported(path: Path, place: int) -> Iterator[Json | events.Event]:
    """Yield the messages of one session of an export."""
    for raw in read_list(path, exported_session(path, place).get("messages")):
        yield unpacked(raw) if isinstance(raw, dict) else raw


def read_list(path: Path, given: object) -> Iterator[Json | events.Event]:
    """Yield the messages of one session in a list that was read from a file."""
    for number, each in enumerate(coerce.items(given), 1):
        if isinstance(each, dict) and isinstance(each.get("role"), str):
            yield each
        else:
            yield events.Skipped(where=f"{path.name} message {number}", why="it is no message")


def survey(source: MessageSource) -> tuple[list[MessageKey], list[events.Event]]:
    """Return the keys of the messages, and events about everything else."""
    keys: list[MessageKey] = []
    others: list[events.Event] = []
    for raw in source.read():
        if not isinstance(raw, dict):
            others.append(raw)
        elif raw["role"] in IGNORED_ROLES:
            others.append(events.IgnoredRecord(what=f"{raw['role']} lines"))
        elif len(keys) < MOST:
            keys.append(key_of(raw))
        else:
            why = f"it has more than {MOST:,} messages"
            others.append(events.Skipped(where=source.path.name, why=why))
            break
    return keys, others


class MessageReplay:
    """Reads several sources for the second time, each only forwards."""

    def __init__(self, sources: list[MessageSource]) -> None:
        self._sources = sources
        self._messages = [_readable(source) for source in sources]
        self._next = [0] * len(sources)

    def raw(self, source: int, number: int, key: str) -> Json:
        """Return the message at an index, which must still have the same key."""
        raw = None
        while self._next[source] <= number:
            raw = next(self._messages[source], None)
            self._next[source] += 1
        if raw is None or key_of(raw).key != key:
            path = self._sources[source].path
            raise BadInput(f"{path} was written while it was read; it is read another time.")
        return raw

    def close(self) -> None:
        """Close the files."""
        for messages in self._messages:
            messages.close()


def _readable(source: MessageSource) -> Generator[Json]:
    for raw in source.read():
        if isinstance(raw, dict) and raw["role"] not in IGNORED_ROLES:
            yield raw
