"""A conversation as lines of JSON: the format that `export` writes and `import` reads.

One line is one value. `docs/format.md` describes the format for people; what is not
described is refused, so that nothing is dropped in silence.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model.message import (
    MAX_SEQ,
    Attachment,
    Body,
    Compaction,
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    body_from_json,
    body_to_json,
    kind_of,
)
from sessionary.model.redact import Redactor, masked, masked_json
from sessionary.model.session import Kind, Lineage, SessionHead, TitleBy
from sessionary.model.source import Person, SessionKey, Source, validate_profile
from sessionary.model.title import clean_title
from sessionary.model.usage import TOKEN_FIELDS, CostStatus, Usage, as_stored

VERSION = 1
MAX_LINE = 400 * 1024 * 1024
MAX_DEPTH = 500
MAX_ID = 64
MAX_DRAFT = 1_000_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_BOM = b"\xef\xbb\xbf"
Time = Annotated[datetime, Meta(tz=True)]
Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
Count = Annotated[int, Meta(ge=0, lt=2**53)]


class _Line(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="line",
):
    """What all lines have in common: their first field says which kind of line they are."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line. It says nothing of time or place: equal records are equal bytes."""

    sessionary: int


class ProjectFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The project a session stands in."""

    name: str
    colour: Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}$")] | None = None


class BindingFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that leads to the session."""

    key: str
    bound_at: Time


class SessionLine(_Line, frozen=True, kw_only=True, tag="session"):
    """The facts of a session; with `through`, only the part that others continue from."""

    id: str
    profile: str
    kind: Kind
    began_at: Time
    through: Seq | None = None
    key: str | None = None
    source: dict[str, Any] | None = None
    title: str | None = None
    title_by: TitleBy | None = None
    model: str | None = None
    settings: Any = None
    system_prompt: str | None = None
    workspace: Any = None
    project: ProjectFact | None = None
    pinned: bool = False
    archived: bool = False
    read_only: bool = False
    labels: list[str] = []
    extra: dict[str, Any] = {}
    read_through: Seq = 0
    draft: Annotated[str, Meta(max_length=MAX_DRAFT)] | None = None
    parent_id: str | None = None
    lineage: Lineage | None = None
    base_seq: Seq = 0
    last_active_at: Time | None = None
    ended_at: Time | None = None
    end_reason: str | None = None
    trashed_at: Time | None = None
    finalized_at: Time | None = None
    bindings: list[BindingFact] = []

    @property
    def is_partial(self) -> bool:
        """Whether this is only what others continue from."""
        return self.through is not None

    @property
    def inherits(self) -> bool:
        """Whether the parent's history is this session's too."""
        return self.lineage is not None and self.lineage.inherits


class TurnLine(_Line, frozen=True, kw_only=True, tag="turn"):
    """A turn that has ended."""

    id: str
    state: Literal["done", "failed", "interrupted"]
    epoch: Annotated[int, Meta(gt=0, lt=2**53)]
    first_seq: Seq
    began_at: Time
    ended_at: Time
    agent: str | None = None
    reason: str | None = None
    partial: str | None = None
    resumed: Count = 0
    resume_reason: str | None = None
    # The blob with what the model was sent besides the messages.
    request: str | None = None


class BlobLine(_Line, frozen=True, kw_only=True, tag="blob"):
    """The bytes of an attachment or of a turn's request, before the first line of the session that needs them."""

    hash: str
    data: str


class EntryLine(_Line, frozen=True, kw_only=True, tag="entry"):
    """One line of the log."""

    seq: Seq
    at: Time
    kind: Literal["message", "compaction", "retraction"]
    role: Role | None = None
    turn_id: str | None = None
    parts: list[dict[str, Any]] | None = None
    person: dict[str, Any] | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: dict[str, Any] | None = None
    summary: str | None = None
    through: Seq | None = None
    names_speakers: bool | None = None
    kept: list[Seq] | None = None
    shortened: Seq | None = None
    longest_output: Count | None = None
    after: Seq | None = None
    reason: str | None = None


class UsageLine(_Line, frozen=True, kw_only=True, tag="usage"):
    """One model call."""

    call_id: str
    at: Time
    turn_id: str | None = None
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    billing_mode: str | None = None
    task: str | None = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost_microusd: Count | None = None
    cost_status: CostStatus = CostStatus.UNKNOWN
    price_source: str | None = None
    price_version: str | None = None


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """A session is whole: how many lines of each kind it had."""

    id: str
    entries: Count
    turns: Count = 0
    usage: Count = 0
    blobs: Count = 0


class DropLine(_Line, frozen=True, kw_only=True, tag="drop"):
    """A session that was purged while it was being exported: what came of it is to be forgotten."""

    id: str


class CloseLine(_Line, frozen=True, kw_only=True, tag="close"):
    """The last line of a file: how many sessions it has."""

    sessions: Count


Line = SessionLine | TurnLine | BlobLine | EntryLine | UsageLine | EndLine | DropLine | CloseLine
_MESSAGE_FIELDS = (
    "parts",
    "person",
    "model",
    "finish_reason",
    "token_count",
    "platform_message_id",
    "extra",
)
_BODY_FIELDS = {
    "message": _MESSAGE_FIELDS,
    "compaction": (
        "summary",
        "through",
        "names_speakers",
        "kept",
        "shortened",
        "longest_output",
    ),
    "retraction": ("after", "reason"),
}
_REQUIRED = {
    "message": ("role", "parts"),
    "compaction": ("summary", "through"),
    "retraction": ("after",),
}
# What an entry of one kind cannot have, because it belongs to another.
_FOREIGN = {
    kind: tuple(
        name
        for name in ("role", *_MESSAGE_FIELDS, "summary", "through", "after", "reason")
        if name not in fields and name not in _REQUIRED[kind]
    )
    for kind, fields in _BODY_FIELDS.items()
}
_decoder = msgspec.json.Decoder(Line)


def write(line: Line | Header) -> str:
    """Print a value as one line, its end included."""
    return codec.encode(msgspec.to_builtins(line)) + "\n"


def read(text: bytes, *, max_line: int = MAX_LINE) -> Line | Header:
    """The value that a line holds; refuses whatever `docs/format.md` does not describe."""
    if len(text) > max_line:
        raise BadInput(f"it is longer than {max_line:,} bytes")
    try:
        line: Line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_slowly(text)  # a header, a lone surrogate, or something to be explained
    # A line with few brackets cannot be deep: most are never looked through.
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return _read_slowly(text)
    _check(line)
    return line


def entry_line(entry: Entry) -> EntryLine:
    """An entry of the log as a line."""
    role = getattr(entry.body, "role", None)
    return EntryLine(
        seq=entry.seq,
        at=entry.at,
        kind=kind_of(entry.body),  # type: ignore[arg-type]  # the three kinds there are
        role=role,
        turn_id=entry.turn_id,
        **body_to_json(entry.body),
    )


def body_of(line: EntryLine) -> Body:
    """What an entry's line says."""
    data = {name: getattr(line, name) for name in _BODY_FIELDS[line.kind]}
    present = {name: value for name, value in data.items() if value is not None}
    return body_from_json(line.kind, line.role, present)


def usage_line(turn_id: str | None, usage: Usage) -> UsageLine:
    """A row of the ledger as a line."""
    facts = {
        name: getattr(usage, name) for name in UsageLine.__struct_fields__ if name != "turn_id"
    }
    return UsageLine(turn_id=turn_id, **facts)


def usage_of(line: UsageLine) -> Usage:
    """The call that a line describes."""
    names = (name for name in line.__struct_fields__ if name not in {"turn_id", "at"})
    facts = {name: getattr(line, name) for name in names} | {"at": utc(line.at)}
    try:
        return Usage(**facts)
    except BadInput:
        # An earlier version took larger numbers; everything else is checked without them.
        cost = None if line.cost_microusd is None else 0
        smaller = facts | dict.fromkeys(TOKEN_FIELDS, 0) | {"cost_microusd": cost}
        return as_stored(**facts | {"cost_status": Usage(**smaller).cost_status})


def utc(at: datetime) -> datetime:
    """A time in UTC; one that UTC cannot name is refused."""
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise BadInput("it has a time before the year 1 or after 9999") from None


def without_mark(first: bytes) -> bytes:
    """The first line of a file without the mark that some editors put before it."""
    return first.removeprefix(_BOM)


def _read_slowly(text: bytes) -> Line | Header:
    data = _decode(text)
    if not isinstance(data, dict):
        raise BadInput("it is not a JSON object")
    try:
        if "sessionary" in data:
            return _check_version(msgspec.convert(data, Header))
        line: Line = msgspec.convert(data, Line)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise BadInput(_in_words(error)) from None
    _check(line)
    return line


def _decode(text: bytes) -> Any:
    try:
        words = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start + 1} of it is not UTF-8 text") from None
    try:
        data = _parse(words)
    except RecursionError:
        raise BadInput(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise BadInput(f"it is not JSON ({error})") from None
    if _is_deep(data):
        raise BadInput(f"it is nested deeper than {MAX_DEPTH} levels")
    return data


def _parse(words: str) -> Any:
    try:
        return msgspec.json.decode(words)
    except msgspec.DecodeError:
        # Lone surrogates are legal in our record; Python's own reader takes them.
        return json.loads(words, parse_constant=_refuse_number, parse_float=_finite)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        _refuse_number(digits)
    return number


def _refuse_number(digits: str) -> NoReturn:
    raise ValueError(f"{digits[:20]} is not a number that JSON has")


def _is_deep(data: Any) -> bool:
    layer = [data]
    for _ in range(MAX_DEPTH):
        layer = [inner for outer in layer for inner in _inner(outer)]
        if not layer:
            return False
    return True


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _in_words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"it is nested deeper than {MAX_DEPTH} levels"
    problem = str(error).replace("`", "")
    return f"it is not as the format says: {problem[:1].lower()}{problem[1:200]}"


def _check_version(header: Header) -> Header:
    if header.sessionary != VERSION:
        raise BadInput(
            f"it says version {header.sessionary}; this program reads version {VERSION}: update it"
        )
    return header


def _check(line: Line) -> None:
    match line:
        case SessionLine():
            _check_session(line)
        case EntryLine():
            _check_entry(line)
        case TurnLine():
            _check_id("a turn", line.id)
            if utc(line.ended_at) < utc(line.began_at):
                raise BadInput(f"turn {line.id} ends before it begins")
            if line.request is not None and not _HASH.fullmatch(line.request):
                raise BadInput("request must be 64 hexadecimal digits")
        case UsageLine():
            if not line.call_id or codec.storable_text(line.call_id) != line.call_id:
                raise BadInput("call_id must be plain text")
            usage_of(line)
        case BlobLine():
            if not _HASH.fullmatch(line.hash):
                raise BadInput("hash must be 64 hexadecimal digits")
        case EndLine() | DropLine():
            _check_id("a session", line.id)


def _check_id(what: str, given: str) -> None:
    if not _ID.fullmatch(given):
        raise BadInput(
            f"{what}'s id is 1 to {MAX_ID} letters, digits, '.', '_' or '-', "
            f"and {given[:MAX_ID]!a} is not"
        )


def _check_session(line: SessionLine) -> None:
    _check_id("a session", line.id)
    validate_profile(line.profile)
    if (line.parent_id is None) != (line.lineage is None):
        raise BadInput("parent_id and lineage go together")
    if line.parent_id is not None:
        _check_id("a parent", line.parent_id)
        if line.parent_id == line.id:
            raise BadInput("a session cannot come from itself")
    if line.base_seq and not line.inherits:
        raise BadInput("base_seq needs a lineage of fork or continuation")
    if not line.is_partial:
        _check_facts(line)


def _check_facts(line: SessionLine) -> None:
    if line.source is None or line.last_active_at is None:
        raise BadInput("a session needs source and last_active_at")
    Source.from_json(line.source)
    if (line.ended_at is None) != (line.end_reason is None):
        raise BadInput("ended_at and end_reason go together")
    if line.ended_at is not None and utc(line.ended_at) < utc(line.began_at):
        raise BadInput("the session ends before it begins")
    if line.title is not None:
        clean_title(line.title)
    if line.project is not None and clean_title(line.project.name) is None:
        raise BadInput("a project needs a name")
    for key in (line.key, *(bound.key for bound in line.bindings)):
        if key is not None and SessionKey.parse(key).profile != line.profile:
            raise BadInput("a key begins with its session's profile")


def _check_entry(line: EntryLine) -> None:
    for name in _REQUIRED[line.kind]:
        if getattr(line, name) is None:
            raise BadInput(f"a {line.kind} needs {name}")
    for name in _FOREIGN[line.kind]:
        if getattr(line, name) is not None:
            raise BadInput(f"a {line.kind} has no {name}")
    if line.turn_id is not None:
        _check_id("a turn", line.turn_id)
    for seq in (line.through, line.after):
        if seq is not None and seq >= line.seq:
            raise BadInput(f"entry {line.seq} speaks of entry {seq}, which does not come before it")
    if line.person is not None:
        Person.from_json(line.person)


# Numbers as people write them, and addresses; ids that a source names are replaced as such.
_PHONE = re.compile(r"(?<![\w+])\+\d[\d\-\s()./]{6,}\d(?!\w)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?!\w)")
_SHORTEST_ID = 5
Words = Callable[[str], str]


class ExportOptions(Struct, frozen=True):
    """What an export shows; by default everything. `salt` is the store's, and set by what exports."""

    tools: bool = True
    reasoning: bool = True
    redact: bool = False
    mask_secrets: bool = False
    salt: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self == ExportOptions()

    @property
    def redactor(self) -> Redactor:
        """What hides people's ids and numbers."""
        return Redactor(self.salt)


WHOLE = ExportOptions()


def head_within(head: SessionHead, extent: ExportOptions) -> SessionHead:
    """The head of a session as an export shows it."""
    if not extent.redact and not extent.mask_secrets:
        return head
    words = _also_masked(_words_for(head.source, extent.redactor) if extent.redact else str, extent)
    return replace(
        head,
        source=extent.redactor.source(head.source) if extent.redact else head.source,
        title=head.title and words(head.title),
        preview=head.preview and words(head.preview),
    )


def line_within(line: SessionLine, extent: ExportOptions) -> SessionLine:
    """The facts of a session as an export writes them; what leads back to people is left out."""
    if not extent.redact or line.source is None:
        return line
    source = Source.from_json(line.source)
    words = _words_for(source, extent.redactor)
    given = {
        name: getattr(line, name)
        for name in line.__struct_fields__
        if name not in ("key", "bindings", "draft", "workspace", "settings", "extra")
    }
    return SessionLine(
        **given
        | {
            "source": extent.redactor.source(source).to_json(),
            "title": line.title and words(line.title),
            "system_prompt": line.system_prompt and words(line.system_prompt),
        }
    )


def turn_within(line: TurnLine, source: Source, extent: ExportOptions) -> TurnLine:
    """A turn as an export writes it; what its model was sent is only part of a whole one."""
    if extent.is_whole:
        return line
    line = msgspec.structs.replace(line, request=None)
    if not extent.redact or line.partial is None:
        return line
    words = _words_for(source, extent.redactor)
    return msgspec.structs.replace(line, partial=words(line.partial))


def entry_within(entry: Entry, source: Source, extent: ExportOptions) -> Entry:
    """An entry as an export shows it; of a message that is all tools, nothing may be left."""
    if extent.is_whole:
        return entry
    words: Words = _words_for(source, extent.redactor) if extent.redact else str
    body = entry.body
    match body:
        case Message():
            body = _message(body, extent, words)
        case Compaction() if extent.redact:
            body = replace(body, summary=words(body.summary))
    return replace(entry, body=_masked(body) if extent.mask_secrets else body)


def _masked(body: Body) -> Body:
    """A body without what looks like a secret, wherever in it that stands."""
    role = str(body.role) if isinstance(body, Message) else None
    return body_from_json(kind_of(body), role, masked_json(body_to_json(body)))


def _also_masked(words: Words, extent: ExportOptions) -> Words:
    return (lambda text: masked(words(text))) if extent.mask_secrets else words


def is_empty(entry: Entry) -> bool:
    """Whether a message says nothing."""
    return isinstance(entry.body, Message) and not entry.body.parts


def _message(message: Message, extent: ExportOptions, words: Words) -> Message:
    parts = tuple(part for part in message.parts if _is_within(part, extent))
    if not extent.redact:
        return replace(message, parts=parts)
    person = message.person
    if person is not None:
        words = _also(words, person, extent.redactor)
    return replace(
        message,
        parts=tuple(_part(part, words) for part in parts),
        person=person and _person(person, extent.redactor),
        platform_message_id=None,
        extra={},
    )


def _is_within(part: Part, extent: ExportOptions) -> bool:
    match part:
        case ToolCall() | ToolResult():
            return extent.tools
        case Reasoning():
            return extent.reasoning
        case _:
            return True


def _part(part: Part, words: Words) -> Part:
    match part:
        case Text(text):
            return Text(words(text))
        case Reasoning(text):
            return Reasoning(words(text))
        case ToolCall(id, name, arguments):
            return ToolCall(id, name, _within(arguments, words))
        case ToolResult(call_id, content, name, is_error):
            return ToolResult(call_id, _within(content, words), name, is_error)
        case Attachment(blob, media_type, name, size):
            return Attachment(blob, media_type, name and words(name), size)
        case Unknown(data):
            return Unknown(_within(dict(data), words))


def _within(value: Any, words: Words) -> Any:
    """The same value with every text in it redacted; names of fields stay."""
    match value:
        case str():
            return words(value)
        case list():
            return [_within(each, words) for each in value]
        case Mapping():
            return {name: _within(each, words) for name, each in value.items()}
        case _:
            return value


def _person(person: Person, redactor: Redactor) -> Person:
    hidden = redactor.user_id(person.stable_id)
    if person.name is None or person.name in (person.id, person.alt_id):
        return Person(hidden)
    return Person(hidden, name=redactor.name(person.name))


def _words_for(source: Source, redactor: Redactor) -> Words:
    """Replaces the ids that a source names, and whatever looks like a number or an address."""
    return _replacing(
        (source.user_id, source.user_id_alt, source.chat_id, source.chat_id_alt), redactor
    )


def _also(words: Words, person: Person, redactor: Redactor) -> Words:
    own = _replacing({person.id, person.alt_id}, redactor)
    return lambda text: own(words(text))


def _replacing(ids: Iterable[str | None], redactor: Redactor) -> Words:
    known = {id: redactor.user_id(id) for id in ids if id and len(id) >= _SHORTEST_ID}

    def hidden(found: re.Match[str]) -> str:
        return redactor.user_id("".join(found[0].split()))

    def replaced(text: str) -> str:
        for id, name in known.items():
            text = text.replace(id, name)
        return _MAIL.sub(hidden, _PHONE.sub(hidden, text))

    return replaced
