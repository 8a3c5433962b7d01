"""An immutable line of the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sessionary.errors import BadInput
from sessionary.model import part as parts_of
from sessionary.model.part import Part, Text, ToolCall
from sessionary.model.source import Person

SEQ_BITS = 24
MAX_SEQ = (1 << SEQ_BITS) - 1


class Role(StrEnum):
    """Who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


_ROLE_NAMES = ", ".join(Role)


@dataclass(frozen=True, slots=True)
class Message:
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
        _check_message(self.role, self.parts)

    @property
    def text(self) -> str:
        """The words, without reasoning and tools."""
        return parts_of.text_of(self.parts)

    @property
    def tool_calls(self) -> int:
        """How many tools this message asks for."""
        return len([part for part in self.parts if type(part) is ToolCall])


@dataclass(frozen=True, slots=True)
class Compaction:
    """For the model only: everything up to `through` is replaced by the summary.

    `names_speakers`: several people had spoken by then, and the model goes on reading who does.
    """

    summary: str
    through: int
    names_speakers: bool = False


@dataclass(frozen=True, slots=True)
class Retraction:
    """Everything between `after` and this entry is taken back; it stays in the log."""

    after: int
    reason: str = "undo"


Body = Message | Compaction | Retraction


@dataclass(frozen=True, slots=True)
class Entry:
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
    made = tuple(item if isinstance(item, Part) else parts_of.from_json(item) for item in content)
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
        case Compaction(summary, through, names):
            said = {"summary": summary, "through": through}
            return {**said, "names_speakers": True} if names else said
        case Retraction(after, reason):
            return {"after": after, "reason": reason}


def body_from_json(kind: str, role: str | None, data: Mapping[str, Any]) -> Body:
    """The inverse of `body_to_json`."""
    match kind:
        case "message":
            known = _ROLES.get(role)
            return _message_from_json(Role(role or "") if known is None else known, data)
        case "compaction":
            names = data.get("names_speakers") is True
            return Compaction(data["summary"], data["through"], names)
        case "retraction":
            return Retraction(data["after"], data.get("reason", "undo"))
    raise BadInput(f"Unknown kind of entry {kind!r}.")


def kind_of(body: Body) -> str:
    """The word for this body in the `kind` column."""
    return type(body).__name__.lower()


def _message_to_json(said: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"parts": [parts_of.to_json(part) for part in said.parts]}
    if said.person is not None:
        data["person"] = said.person.to_json()
    if said.model is not None:
        data["model"] = said.model
    if said.finish_reason is not None:
        data["finish_reason"] = said.finish_reason
    if said.token_count is not None:
        data["token_count"] = said.token_count
    if said.platform_message_id is not None:
        data["platform_message_id"] = said.platform_message_id
    if said.extra:
        data["extra"] = dict(said.extra)
    return data


def _message_from_json(role: Role, data: Mapping[str, Any]) -> Message:
    person = data.get("person")
    return Message(
        role,
        tuple([parts_of.from_json(part) for part in data["parts"]]),
        person=None if person is None else Person.from_json(person),
        extra=data.get("extra", {}),
        **{name: data[name] for name in _OPTIONAL if name in data},
    )
