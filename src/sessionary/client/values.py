"""What the client takes and gives besides the values of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from sessionary.errors import BadInput
from sessionary.model.message import Entry, Message, Part, Role, message
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Person, Source
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage, UsageTotal

if TYPE_CHECKING:
    from sessionary.formats.message_input import File
    from sessionary.model.question import Question

RoleName = Role | Literal["user", "assistant", "system", "tool"]
FolderName = SessionFolder | Literal["chats", "automation", "archive", "trash", "all"]
KindName = Kind | Literal["chat", "job", "subagent", "import"]
# A text, or parts: ours, those of the OpenAI and Anthropic interfaces as dictionaries, and files.
Content = str | Sequence["Mapping[str, object] | Part | File"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFields:
    """The optional fields of a message."""

    person: Person | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: Mapping[str, object] | None = None

    def given(self) -> dict[str, object]:
        """Return the fields that have a value."""
        names = self.__dataclass_fields__
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class InputMessage:
    """A message to append: the arguments of `Session.append`, for `append_many`."""

    role: RoleName
    content: Content
    idempotency_key: str | None = field(default=None, kw_only=True)
    usage: Usage | None = field(default=None, kw_only=True)
    at: datetime | None = field(default=None, kw_only=True)
    person: Person | None = field(default=None, kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    finish_reason: str | None = field(default=None, kw_only=True)
    token_count: int | None = field(default=None, kw_only=True)
    platform_message_id: str | None = field(default=None, kw_only=True)
    extra: Mapping[str, object] | None = field(default=None, kw_only=True)

    def read(self, source: Source | None = None) -> tuple[Message, tuple[bytes, ...]]:
        """Return the message and the bytes of its files; a user's message is by the person of the source."""
        check_time(self.at)
        person = self.person
        if person is None and source is not None and self.role == "user":
            person = source.person
        fields = MessageFields(
            person=person,
            model=self.model,
            finish_reason=self.finish_reason,
            token_count=self.token_count,
            platform_message_id=self.platform_message_id,
            extra=self.extra,
        )
        return read_message(self.role, self.content, fields)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a session: its place in the log, and what it says."""

    id: str
    session_id: str
    seq: int
    at: datetime
    message: Message = field(repr=False)
    turn_id: str | None = None

    @property
    def role(self) -> Role:
        """Who wrote it: user, assistant, system or tool."""
        return self.message.role

    @property
    def text(self) -> str:
        """The words, without reasoning and tools."""
        return self.message.text

    @property
    def parts(self) -> tuple[Part, ...]:
        """Texts, reasoning, tool calls, tool results and attachments, in their order."""
        return self.message.parts

    @property
    def person(self) -> Person | None:
        """The person who wrote it, if that is known."""
        return self.message.person

    @property
    def model(self) -> str | None:
        """The model that wrote it, if that is known."""
        return self.message.model

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else f"{self.text[:59]}…"
        return f"<StoredMessage {self.session_id}#{self.seq} {self.role}: {text!r}>"


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed. `position` is where `subscribe(after=…)` goes on after it.

    `entry`: a message, a compaction or a retraction was added; `head`: a title, a label or another fact of the session
    changed; `turn`: a turn ended. `session` is the session as it is when the change is read.
    """

    position: int
    kind: Literal["entry", "head", "turn"]
    session_id: str
    session: SessionHead | None = field(default=None, repr=False)
    entry: Entry | None = None

    @property
    def message(self) -> StoredMessage | None:
        """The message that was added, or None."""
        return None if self.entry is None else stored_message(self.entry)


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answered: its text, where it is stored, and what it used.

    If `state` is `waiting`, the turn has asked people something: `questions` are those that are open, and the rest is
    what the agent has written so far. `turn_id` is None if it is an earlier turn of the session that waits.
    """

    text: str
    session_id: str
    turn_id: str | None
    usage: UsageTotal
    messages: tuple[StoredMessage, ...] = field(default=(), repr=False)
    state: TurnState = TurnState.DONE
    questions: "tuple[Question, ...]" = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """A session as a file for another tool: its text, and how to go on with it there."""

    tool: str
    title: str
    file_name: str
    text: str = field(repr=False)
    messages: int
    left_out: int
    summarized: bool
    advice: str


def stored_message(entry: Entry) -> StoredMessage | None:
    """Return the message of an entry; None for a compaction or a retraction."""
    if not isinstance(entry.body, Message):
        return None
    return StoredMessage(
        entry.id, entry.session_id, entry.seq, entry.at, entry.body, turn_id=entry.turn_id
    )


def read_message(
    role: RoleName, content: Content, fields: MessageFields | None = None
) -> tuple[Message, tuple[bytes, ...]]:
    """Return the message, and the bytes of its files."""
    given = {} if fields is None else fields.given()
    if isinstance(content, str) and role != Role.TOOL:
        return message(role, content, **given), ()
    # Loads msgspec and a Markdown parser: 0.1 s that a program which only writes texts saves.
    from sessionary.formats import message_input

    made = message_input.read_message(role, content, **given)
    return made.message, made.files


def check_time(at: object) -> None:
    """Refuse what is no time, or a time without a zone."""
    if at is not None and not isinstance(at, datetime):
        raise BadInput(f"A time is a datetime with a zone, not {at!r}.")
    if at is not None and at.tzinfo is None:
        raise BadInput(f"The time {at} has no zone; give it one, such as datetime.UTC.")
