"""Sessions and messages as rows of Hermes' tables: exactly its columns, and each value as it was given."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sessionary.actions.sessions import read
from sessionary.errors import BadInput
from sessionary.model import codec, transcript
from sessionary.model.message import (
    Attachment,
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.message import from_json as part_from_json
from sessionary.model.message import to_json as part_to_json
from sessionary.model.session import Lineage, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import entries, meta, sessions

PREVIEW = 60
# Where a session and a message keep what has no place of its own with us.
KEPT = "hermes"
# Where both keep the keywords that this version of the interface does not know.
FURTHER = "further"
HANDOFF = "hermes/handoff/"
BILLING = ("billing_provider", "billing_base_url", "billing_mode")
COSTS = ("estimated_cost_usd", "actual_cost_usd")
PRICING = ("cost_status", "cost_source", "pricing_version")
TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
Json = dict[str, Any]
_AS_GIVEN = "as_given"
_TOOL_NAME = "hermes_tool_name"
_ROLES = {role.value: role for role in Role}
_THOUGHTS = (
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
_MESSAGE_FIELDS = frozenset(
    {
        *("session_id", "id", "role", "content", "name", "tool_name", "tool_calls", "tool_call_id"),
        *("token_count", "finish_reason", "timestamp", "platform_message_id", "message_id"),
        *("observed", *_THOUGHTS),
    }
)
# What a memory provider puts into a prompt; a model may repeat it, and it must not be replayed.
_RECALLED = re.compile(r"<\s*memory-context\s*>.*?(?:<\s*/\s*memory-context\s*>|\Z)", re.S | re.I)


def find_session(tx: Tx, id: str | None, *, profile: str) -> SessionHead | None:
    """The head of a session, or None; an id that is no text is nobody's."""
    return sessions.get(tx, id, profile=profile) if isinstance(id, str) and id else None


def jsonable(value: object) -> Any:
    """The value as JSON can hold it: what JSON does not know becomes its text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(each) for each in value]
    return str(value)


def kept_fields(tx: Tx, head: SessionHead) -> Json:
    """The fields that only Hermes programs use."""
    found = sessions.details(tx, head.no).extra.get(KEPT)
    return found if isinstance(found, dict) else {}


def session_row(tx: Tx, head: SessionHead) -> Json:
    """A session with exactly the columns of Hermes' table."""
    details = sessions.details(tx, head.no)
    found = details.extra.get(KEPT)
    kept = found if isinstance(found, dict) else {}
    return {
        "id": head.id,
        "source": head.source.platform,
        "user_id": head.source.user_id,
        "model": head.model,
        "model_config": kept.get("model_config", _config_text(details.settings)),
        "system_prompt": read.get_system_prompt(tx, head),
        "parent_session_id": parent_id(tx, head),
        "started_at": head.began_at.timestamp(),
        "ended_at": None if head.ended_at is None else head.ended_at.timestamp(),
        "end_reason": head.end_reason,
        "message_count": head.message_count,
        "tool_call_count": head.tool_call_count,
        **{name: getattr(head.usage, name) for name in TOKENS},
        **{name: kept.get(name) for name in (*BILLING, *COSTS, *PRICING)},
        "title": head.title,
        "api_call_count": kept.get("api_call_count", 0),
        **{f"handoff_{name}": value for name, value in handoff(tx, head.id).items()},
    }


def handoff(tx: Tx, id: str) -> Json:
    """The state of a session's handoff, its platform and its error; each may be None."""
    text = meta.get(tx, f"{HANDOFF}{codec.storable_text(id)}")
    found = {} if text is None else codec.decode(text)
    return {name: found.get(name) for name in ("state", "platform", "error")}


def set_handoff(tx: Tx, id: str, state: Mapping[str, Any]) -> None:
    """Store the state of a session's handoff; an empty one means none."""
    meta.put(tx, f"{HANDOFF}{codec.storable_text(id)}", codec.encode(dict(state)))


def parent_id(tx: Tx, head: SessionHead) -> str | None:
    """The parent, while it exists; a session after a reset has none."""
    if head.parent_id is None or head.lineage is Lineage.RESET:
        return None
    parent = sessions.get(tx, head.parent_id, profile=head.profile)
    return None if parent is None else parent.id


def visible_messages(
    tx: Tx, head: SessionHead, *, with_retracted: bool = False
) -> Iterator[tuple[int, Entry]]:
    """The messages that were not retracted, or all, each with its number."""
    segments = sessions.segments(tx, head.no)
    marks = () if with_retracted else entries.retractions(tx, segments)
    stretches = transcript.retracted(marks)
    for segment in segments:
        for entry in entries.walk(tx, [segment]):
            if isinstance(entry.body, Message) and not transcript.is_retracted(
                entry.seq, stretches
            ):
                yield entries.entry_no(segment.no, entry.seq), entry


def message_rows(tx: Tx, head: SessionHead, *, with_retracted: bool = False) -> list[Json]:
    """A session's messages in order."""
    found = visible_messages(tx, head, with_retracted=with_retracted)
    return [message_row(number, head.id, entry) for number, entry in found]


def preview(tx: Tx, head: SessionHead) -> str:
    """The beginning of the first user message, on one line."""
    if head.preview is None:
        return ""
    for _, entry in visible_messages(tx, head):
        spoken = entry.body
        if isinstance(spoken, Message) and spoken.role is Role.USER and spoken.text.strip():
            line = spoken.text.replace("\r", " ").replace("\n", " ").strip()
            return line[:PREVIEW] + ("..." if len(line) > PREVIEW else "")
    return ""


def _config_text(settings: Any) -> str | None:
    if settings is None or isinstance(settings, str):
        return settings
    return json.dumps(settings)


def parse_message(given: Mapping[str, Any]) -> Message:
    """Parse a row, a chat dictionary, or the arguments of an append."""
    role = given.get("role", "unknown")
    if not isinstance(role, str) or not role:
        raise BadInput(f"A message needs a role, not {role!r}; nothing was written.")
    kept: Json = {} if role in _ROLES else {"role": role}
    known = _ROLES.get(role, Role.SYSTEM)
    given = {name: jsonable(value) for name, value in given.items()}
    parts = _thoughts(given, kept)
    if known is Role.TOOL:
        parts += [_result(given, kept)]
    else:
        parts += [*_content(given.get("content"), kept), *_calls(given.get("tool_calls"), kept)]
        if given.get("tool_call_id") is not None:
            kept["tool_call_id"] = given["tool_call_id"]
        if given.get("tool_name") is not None:
            # A part, so that a search finds it.
            parts.append(Unknown({"type": _TOOL_NAME, "name": given["tool_name"]}))
    if given.get("observed"):
        kept["observed"] = True
    further = {name: value for name, value in given.items() if name not in _MESSAGE_FIELDS}
    if further := {name: value for name, value in further.items() if value is not None}:
        kept[FURTHER] = further
    platform_id = given.get("platform_message_id") or given.get("message_id")
    tokens, reason = given.get("token_count"), given.get("finish_reason")
    return Message(
        known,
        tuple(parts),
        finish_reason=None if reason is None else str(reason),
        token_count=None if tokens is None else int(tokens),
        platform_message_id=None if platform_id is None else str(platform_id),
        extra={KEPT: kept} if kept else {},
    )


def message_time(given: Mapping[str, Any]) -> datetime | None:
    """A message's own time: Unix seconds, an ISO text, or a datetime."""
    at = given.get("timestamp")
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return None
    if isinstance(at, int | float) and not isinstance(at, bool):
        try:
            return datetime.fromtimestamp(at, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    if not isinstance(at, datetime):
        return None
    return at.astimezone(UTC)  # without a zone it is the machine's, as Hermes writes it


def message_row(number: int, session_id: str, entry: Entry) -> Json:
    """A message as a row, with exactly the columns of Hermes' table."""
    message = _message_of(entry)
    kept = _kept_of_message(message)
    result = next((part for part in message.parts if isinstance(part, ToolResult)), None)
    call_id = kept.get("tool_call_id") if result is None else result.call_id
    tool_name = _kept_tool_name(message, kept) if result is None else result.name
    return {
        "id": number,
        "session_id": session_id,
        "role": kept.get("role", str(message.role)),
        "content": content_of(message),
        "tool_call_id": None if kept.get("no_call_id") else call_id,
        "tool_calls": _calls_as_given(message, kept),
        "tool_name": tool_name,
        "timestamp": entry.at.timestamp(),
        "token_count": message.token_count,
        "finish_reason": message.finish_reason,
        **_thoughts_as_given(message, kept),
        "platform_message_id": message.platform_message_id,
        "observed": bool(kept.get("observed", False)),
    }


def chat_dict(row: Mapping[str, Any]) -> Json:
    """A row as a chat dictionary, without fields that are not set."""
    content = row["content"]
    if row["role"] in ("user", "assistant") and isinstance(content, str):
        content = without_recalled_memory(content)
    chat: Json = {"role": row["role"], "content": content}
    for name in ("tool_call_id", "tool_name", "tool_calls"):
        if row[name]:
            chat[name] = row[name]
    if row["platform_message_id"]:
        chat["message_id"] = row["platform_message_id"]
    if row["observed"]:
        chat["observed"] = True
    if row["role"] == "assistant":
        if row["reasoning_content"] is not None:
            chat["reasoning_content"] = row["reasoning_content"]
        for name in ("finish_reason", *_THOUGHTS):
            if row[name]:
                chat[name] = row[name]
    return chat


def without_recalled_memory(text: str) -> str:
    """The text without the block that a memory provider had put into the prompt."""
    return _RECALLED.sub("", text).strip() if "memory-context" in text else text


def content_of(message: Message) -> Any:
    """The content as it was given: a text, a list of parts, or nothing."""
    kept = _kept_of_message(message)
    result = next((part for part in message.parts if isinstance(part, ToolResult)), None)
    if result is not None:
        return None if kept.get("no_content") else result.content
    content = [
        part
        for part in message.parts
        if isinstance(part, Text | Unknown | Attachment) and not is_tool_name(part)
    ]
    match kept.get("content"):
        case "parts":
            return [_item_as_given(part) for part in content]
        case "value":
            return _item_as_given(content[0])
    texts = [part.text for part in content if isinstance(part, Text)]
    return "\n".join(texts) if texts else None


def _message_of(entry: Entry) -> Message:
    assert isinstance(entry.body, Message)
    return entry.body


def _kept_of_message(message: Message) -> Mapping[str, Any]:
    found = message.extra.get(KEPT)
    return found if isinstance(found, dict) else {}


def is_tool_name(part: Part) -> bool:
    """Whether a part only names the tool of a message, so that a search finds it."""
    return isinstance(part, Unknown) and part_to_json(part).get("type") == _TOOL_NAME


def _kept_tool_name(message: Message, kept: Mapping[str, Any]) -> Any:
    found = (part_to_json(part)["name"] for part in message.parts if is_tool_name(part))
    return next(found, kept.get("tool_name"))


def _content(content: Any, kept: Json) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    if isinstance(content, list | tuple):
        kept["content"] = "parts"
        return [_item(each) for each in content]
    kept["content"] = "value"
    return [_item(content)]


def _item(item: Any) -> Part:
    """One piece of content. Only text becomes a part of ours: nothing else may count as a tool call."""
    if isinstance(item, dict):
        part = part_from_json(item)
        if isinstance(part, Unknown) or (isinstance(part, Text) and part_to_json(part) == item):
            return part
    return Unknown({"type": _AS_GIVEN, "value": item})


def _item_as_given(part: Part) -> Any:
    data = part_to_json(part)
    return data["value"] if data.get("type") == _AS_GIVEN else data


def _result(given: Mapping[str, Any], kept: Json) -> Part:
    call_id, content, name = (given.get(n) for n in ("tool_call_id", "content", "tool_name"))
    name = name if name is not None else given.get("name")
    if call_id is None:
        kept["no_call_id"] = True
    if content is None:
        kept["no_content"] = True
    if given.get("tool_calls"):
        kept["tool_calls"] = given["tool_calls"]
    return ToolResult(
        "" if call_id is None else str(call_id),
        "" if content is None else content,
        None if name is None else str(name),
    )


def _calls(given: Any, kept: Json) -> list[Part]:
    if not given:
        return []
    if isinstance(given, list | tuple):
        return [_call(each) for each in given]
    kept["tool_calls"] = "value"
    return [_call(given)]


def _call(given: Any) -> ToolCall:
    function = given.get("function") if isinstance(given, dict) else None
    facts = function if isinstance(function, dict) else given if isinstance(given, dict) else {}
    id = given.get("id") or given.get("call_id") if isinstance(given, dict) else None
    call = ToolCall(str(id or ""), str(facts.get("name") or "unknown"), facts.get("arguments"))
    return call if _call_as_given(call) == given else _with_given(call, given)


def _with_given(call: ToolCall, given: Any) -> ToolCall:
    return ToolCall(call.id, call.name, call.arguments, {_AS_GIVEN: given})


def _call_as_given(call: ToolCall) -> Any:
    if _AS_GIVEN in call.extra:
        return call.extra[_AS_GIVEN]
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _calls_as_given(message: Message, kept: Mapping[str, Any]) -> Any:
    if message.role is Role.TOOL:
        return kept.get("tool_calls")
    calls = [_call_as_given(part) for part in message.parts if isinstance(part, ToolCall)]
    if kept.get("tool_calls") == "value":
        return calls[0]
    return calls or None


def _thoughts(given: Mapping[str, Any], kept: Json) -> list[Part]:
    """The reasoning: its text as a part of ours, the other fields as they came."""
    text, content, details, *_ = (given.get(name) for name in _THOUGHTS)
    for name in _THOUGHTS[3:]:
        if given.get(name) is not None:
            kept[name] = given[name]
    if text is None and content is None and details is None:
        return []
    spoken = text if isinstance(text, str) else content if isinstance(content, str) else ""
    kept["thought"] = {
        name: True if value == spoken else value
        for name, value in (("reasoning", text), ("reasoning_content", content))
        if value is not None
    }
    return [Reasoning(spoken, details)]


def _thoughts_as_given(message: Message, kept: Mapping[str, Any]) -> Json:
    found = [part for part in message.parts if isinstance(part, Reasoning)]
    shape = kept.get("thought", {"reasoning": True} if found else {})
    spoken = "\n".join(part.text for part in found)
    details = [part.details for part in found if part.details is not None]
    is_one = len(found) == 1
    return {
        **{name: spoken if shape.get(name) is True else shape.get(name) for name in _THOUGHTS[:2]},
        "reasoning_details": (details[0] if is_one else details) if details else None,
        **{name: kept.get(name) for name in _THOUGHTS[3:]},
    }
