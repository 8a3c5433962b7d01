"""Messages and the other entries of a log, with their parts."""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model.source import Person

Json = dict[str, Any]


class Text(Struct, frozen=True):
    """Words for people."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)


class Reasoning(Struct, frozen=True):
    """What a model thought; the provider's own details are kept as they came."""

    text: str
    details: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class ToolCall(Struct, frozen=True):
    """A request of the model to run a tool."""

    id: str
    name: str
    arguments: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class ToolResult(Struct, frozen=True):
    """What a tool answered."""

    call_id: str
    content: Any = ""
    name: str | None = None
    is_error: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


class Attachment(Struct, frozen=True):
    """A file, named by the hash of its bytes."""

    blob: str
    media_type: str = "application/octet-stream"
    name: str | None = None
    size: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Unknown(Struct, frozen=True):
    """A part of a kind we do not know, kept as it came."""

    data: Mapping[str, Any]


# What channels write into the `extra` of a message: that nobody has typed it here, and the platform's id of the message
# that it replies to; and into that of a text: that it is somebody else's words.
FORWARDED = "forwarded"
REPLIES_TO = "replies_to"
QUOTE = "quote"

Part = Text | Reasoning | ToolCall | ToolResult | Attachment | Unknown
_Typed = Text | Reasoning | ToolCall | ToolResult | Attachment
_NULL = type(None)
_CLASSES: dict[str, type[_Typed]] = {
    "text": Text,
    "reasoning": Reasoning,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "attachment": Attachment,
}
_PART_CLASSES = frozenset((*_CLASSES.values(), Unknown))
_NAMES = {cls: name for name, cls in _CLASSES.items()}
# What each field may hold; a part that does not fit is kept as unknown.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "text": {"text": (str,)},
    "reasoning": {"text": (str,), "details": (object,)},
    "tool_call": {"id": (str,), "name": (str,), "arguments": (object,)},
    "tool_result": {
        "call_id": (str,),
        "content": (object,),
        "name": (str, _NULL),
        "is_error": (bool,),
    },
    "attachment": {
        "blob": (str,),
        "media_type": (str,),
        "name": (str, _NULL),
        "size": (int, _NULL),
    },
}
_REQUIRED = {
    "text": {"text"},
    "reasoning": {"text"},
    "tool_call": {"id", "name"},
    "tool_result": {"call_id"},
    "attachment": {"blob"},
}
# What a field that is left out means; anything else, 0 and null included, is written down.
_LEFT_OUT: Json = {
    "details": None,
    "arguments": None,
    "content": "",
    "name": None,
    "is_error": False,
    "media_type": "application/octet-stream",
    "size": None,
}
_PLAIN = len({"type", "text"})


def to_json(part: Part) -> Json:
    """The part as a dictionary; optional fields that say nothing are left out."""
    if isinstance(part, Unknown):
        return dict(part.data)
    if type(part) is Text and not part.extra:
        return {"type": "text", "text": part.text}
    kind = _NAMES[type(part)]
    out: Json = {"type": kind}
    for name in _FIELDS[kind]:
        value = getattr(part, name)
        if name in _REQUIRED[kind] or not _is_left_out(name, value):
            out[name] = value
    return out | dict(part.extra) if part.extra else out


def _is_left_out(name: str, value: Any) -> bool:
    meant = _LEFT_OUT[name]
    return type(value) is type(meant) and bool(value == meant)


def from_json(data: Any) -> Part:
    """The part a dictionary describes; what we do not understand is kept as it came."""
    if not isinstance(data, dict):
        raise BadInput(f"A part of a message must be a JSON object, not {type(data).__name__}.")
    kind = data.get("type")
    if kind == "text" and len(data) == _PLAIN and type(data.get("text")) is str:
        return Text(data["text"])
    if not isinstance(kind, str) or kind not in _CLASSES or not _fits(kind, data):
        return Unknown(data)
    known = {name: data[name] for name in _FIELDS[kind] if name in data}
    extra = {name: value for name, value in data.items() if name != "type" and name not in known}
    return _CLASSES[kind](**known, extra=extra) if extra else _CLASSES[kind](**known)


def text_of(parts: tuple[Part, ...]) -> str:
    """The words of a message, without reasoning and tools."""
    if len(parts) == 1 and type(parts[0]) is Text:
        return parts[0].text
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def required_fields(kind: str) -> list[str]:
    """The fields that a part of a known type must have."""
    return sorted(_REQUIRED[kind])


def wrong_field(data: Mapping[str, Any]) -> str | None:
    """The first field of a part of a known type that holds a value of the wrong kind."""
    fields = _FIELDS[data["type"]]
    for name, kinds in fields.items():
        if name in data and not isinstance(data[name], kinds):
            return name
    return None


def _fits(kind: str, data: Json) -> bool:
    return _REQUIRED[kind] <= data.keys() and wrong_field(data) is None


SEQ_BITS = 24
MAX_SEQ = (1 << SEQ_BITS) - 1


class Role(StrEnum):
    """Who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


_ROLE_NAMES = ", ".join(Role)


class Message(Struct, frozen=True):
    """Something said."""

    role: Role
    parts: tuple[Part, ...]
    person: Person | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Many are made: exact classes first, and every other possibility only where they do not fit.
        if (
            self.role.__class__ is not Role
            or self.parts.__class__ is not tuple
            or not _PART_CLASSES.issuperset(map(type, self.parts))
        ):
            _check_message(self.role, self.parts)

    @property
    def text(self) -> str:
        """The words, without reasoning and tools."""
        return text_of(self.parts)

    @property
    def tool_calls(self) -> int:
        """How many tools this message asks for."""
        return len([part for part in self.parts if type(part) is ToolCall])


class Compaction(Struct, frozen=True):
    """For the model only: everything up to `through` is replaced by the summary.

    `names_speakers`: several people had spoken by then, and the model goes on reading who does.
    `kept`: entries up to `through` that the model still reads word for word, such as pinned messages.
    `shortened`: of the tool outputs up to this entry, only `longest_output` characters are read. A compaction that only
    shortens has no summary, or repeats the one before.
    """

    summary: str
    through: int
    names_speakers: bool = False
    kept: tuple[int, ...] = ()
    shortened: int = 0
    longest_output: int = 0

    @property
    def heading(self) -> str:
        """What it does, for people."""
        shortened = f"tool outputs up to {self.shortened} shortened"
        if not self.summary:
            return f"For the model, {shortened}"
        return f"Summary for the model, {shortened}" if self.shortened else "Summary for the model"


class Retraction(Struct, frozen=True):
    """Everything between `after` and this entry is taken back; it stays in the log."""

    after: int
    reason: str = "undo"


Body = Message | Compaction | Retraction


class Entry(Struct, frozen=True):
    """One line: where it stands, when it was written, what it says."""

    session_id: str
    seq: int
    at: datetime
    body: Body
    turn_id: str | None = None

    @property
    def id(self) -> str:
        """A name for this entry that never changes."""
        return f"{self.session_id}-{self.seq}"


def role_of(name: str) -> Role:
    """The role with this name."""
    try:
        return Role(name)
    except ValueError:
        raise BadInput(f"Unknown role {name!r}: use one of {_ROLE_NAMES}.") from None


def message(role: str, content: str | Any, **fields: Any) -> Message:
    """Build a message from what callers have: a role, and a text or parts."""
    known = role_of(role)
    if fields:
        _check_fields(fields)
    if isinstance(content, str):
        return Message(known, (Text(content),), **fields)
    if not isinstance(content, (list, tuple)):
        raise BadInput(f"A message is a text or a list of parts, not {type(content).__name__}.")
    made = tuple(item if isinstance(item, Part) else from_json(item) for item in content)
    return Message(known, made, **fields)


def _check_message(role: Any, parts: Any) -> None:
    """Refuse what a type checker would: many programs are run without one."""
    if not isinstance(role, Role):
        raise BadInput(f"The role of a Message is a Role, not {role!r}: use one of {_ROLE_NAMES}.")
    if not isinstance(parts, tuple):
        raise BadInput(f"The parts of a Message are a tuple, not {type(parts).__name__}.")
    for part in parts:
        if not isinstance(part, Part):
            raise BadInput(
                "The parts of a Message are Text, Reasoning, ToolCall, ToolResult, Attachment or "
                f"Unknown, not {type(part).__name__}; `message(role, parts)` takes dictionaries."
            )


# What is kept in another form than these could not be read from an export.
_KINDS: Mapping[str, tuple[Any, str]] = {
    "person": (Person, "a Person"),
    "model": (str, "a text"),
    "finish_reason": (str, "a text"),
    "token_count": (int, "a whole number"),
    "platform_message_id": (str, "a text"),
    "extra": (Mapping, "a mapping"),
}


def _check_fields(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        kind, told = _KINDS.get(name, (object, ""))
        is_kind = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if value is not None and not is_kind:
            raise BadInput(f"{name} of a message is {told}, not {type(value).__name__}.")


_OPTIONAL = ("model", "finish_reason", "token_count", "platform_message_id")
_ROLES: dict[str | None, Role] = {role.value: role for role in Role}


def body_to_json(body: Body) -> dict[str, Any]:
    """The body as the log keeps it. Kind, role and time stand in their own columns."""
    match body:
        case Message():
            return _message_to_json(body)
        case Compaction():
            data: dict[str, Any] = {"summary": body.summary, "through": body.through}
            if body.names_speakers:
                data["names_speakers"] = True
            if body.kept:
                data["kept"] = list(body.kept)
            if body.shortened:
                data |= {"shortened": body.shortened, "longest_output": body.longest_output}
            return data
        case Retraction(after, reason):
            return {"after": after, "reason": reason}


def body_from_json(kind: str, role: str | None, data: Mapping[str, Any]) -> Body:
    """The inverse of `body_to_json`."""
    match kind:
        case "message":
            known = _ROLES.get(role)
            return _message_from_json(Role(role or "") if known is None else known, data)
        case "compaction":
            return Compaction(
                data["summary"],
                data["through"],
                data.get("names_speakers") is True,
                tuple(data.get("kept", ())),
                data.get("shortened", 0),
                data.get("longest_output", 0),
            )
        case "retraction":
            return Retraction(data["after"], data.get("reason", "undo"))
    raise BadInput(f"Unknown kind of entry {kind!r}.")


def encode_body(body: Body) -> str:
    """The body as one line of JSON: `encode(body_to_json(body))`, in half the time for a message of texts."""
    if type(body) is not Message:
        return codec.encode(body_to_json(body))
    texts = [_StoredText(part.text) for part in body.parts if type(part) is Text and not part.extra]
    if len(texts) < len(body.parts):
        return codec.encode(body_to_json(body))
    return codec.encode(
        _StoredBody(
            texts,
            body.person,
            body.model,
            body.finish_reason,
            body.token_count,
            body.platform_message_id,
            dict(body.extra) if body.extra else None,
        )
    )


def kind_of(body: Body) -> str:
    """The word for this body in the `kind` column."""
    return type(body).__name__.lower()


def _message_to_json(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"parts": [to_json(part) for part in message.parts]}
    if message.person is not None:
        data["person"] = message.person.to_json()
    if message.model is not None:
        data["model"] = message.model
    if message.finish_reason is not None:
        data["finish_reason"] = message.finish_reason
    if message.token_count is not None:
        data["token_count"] = message.token_count
    if message.platform_message_id is not None:
        data["platform_message_id"] = message.platform_message_id
    if message.extra:
        data["extra"] = dict(message.extra)
    return data


def _message_from_json(role: Role, data: Mapping[str, Any]) -> Message:
    person = data.get("person")
    return Message(
        role,
        tuple([from_json(part) for part in data["parts"]]),
        person=None if person is None else Person.from_json(person),
        extra=data.get("extra", {}),
        **{name: data[name] for name in _OPTIONAL if name in data},
    )


class _StoredText(Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str


class _StoredBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    parts: list[_StoredText]
    person: Person | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: Mapping[str, Any] | None = None


class _Reader(NamedTuple):
    """Reads the body of a message that has texts only; `failure` for any other."""

    decode: Callable[[str], _StoredBody]
    failure: type[Exception]


@cache
def reader() -> _Reader:
    """Made when it is first needed: most commands read no message."""
    return _Reader(msgspec.json.Decoder(_StoredBody).decode, msgspec.MsgspecError)


def message_entry(
    session_id: str,
    seq: int,
    at: datetime,
    turn_id: str | None,
    *,
    role: str | None,
    body: _StoredBody,
) -> Entry:
    """The entry of a body that `reader` has read."""
    message = Message(
        _ROLES[role],
        tuple([Text(part.text) for part in body.parts]),
        body.person,
        body.model,
        body.finish_reason,
        body.token_count,
        body.platform_message_id,
        body.extra or {},
    )
    return Entry(session_id, seq, at, message, turn_id)
