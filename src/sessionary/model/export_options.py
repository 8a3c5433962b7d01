"""How much of a conversation leaves the house: tools, thoughts, people's numbers, secrets."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sessionary.model import redact
from sessionary.model.entry import (
    Body,
    Compaction,
    Entry,
    Message,
    body_from_json,
    body_to_json,
    kind_of,
)
from sessionary.model.part import Attachment, Part, Reasoning, Text, ToolCall, ToolResult, Unknown
from sessionary.model.record import SessionLine, TurnLine
from sessionary.model.secret import masked, masked_json
from sessionary.model.session import SessionHead
from sessionary.model.source import Person, Source

# Numbers as people write them, and addresses; ids that a source names are replaced as such.
_PHONE = re.compile(r"(?<![\w+])\+\d[\d\-\s()./]{6,}\d(?!\w)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?!\w)")
_SHORTEST_ID = 5
Words = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What an export shows; by default everything."""

    tools: bool = True
    reasoning: bool = True
    redact: bool = False
    mask_secrets: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self == ExportOptions()


WHOLE = ExportOptions()


def head_within(head: SessionHead, extent: ExportOptions) -> SessionHead:
    """The head of a session as an export shows it."""
    if not extent.redact and not extent.mask_secrets:
        return head
    words = _also_masked(_words_for(head.source) if extent.redact else str, extent)
    return replace(
        head,
        source=redact.redact_source(head.source) if extent.redact else head.source,
        title=head.title and words(head.title),
        preview=head.preview and words(head.preview),
    )


def line_within(line: SessionLine, extent: ExportOptions) -> SessionLine:
    """The facts of a session as an export writes them; what leads back to people is left out."""
    if not extent.redact or line.source is None:
        return line
    source = Source.from_json(line.source)
    words = _words_for(source)
    given = {
        name: getattr(line, name)
        for name in line.__struct_fields__
        if name not in ("key", "bindings", "draft", "workspace", "settings", "extra")
    }
    return SessionLine(
        **given
        | {
            "source": redact.redact_source(source).to_json(),
            "title": line.title and words(line.title),
            "system_prompt": line.system_prompt and words(line.system_prompt),
        }
    )


def turn_within(line: TurnLine, source: Source, extent: ExportOptions) -> TurnLine:
    """A turn as an export writes it."""
    if not extent.redact or line.partial is None:
        return line
    given = {name: getattr(line, name) for name in line.__struct_fields__}
    return TurnLine(**given | {"partial": _words_for(source)(line.partial)})


def entry_within(entry: Entry, source: Source, extent: ExportOptions) -> Entry:
    """An entry as an export shows it; of a message that is all tools, nothing may be left."""
    if extent.is_whole:
        return entry
    words: Words = _words_for(source) if extent.redact else str
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


def _message(said: Message, extent: ExportOptions, words: Words) -> Message:
    parts = tuple(part for part in said.parts if _is_within(part, extent))
    if not extent.redact:
        return replace(said, parts=parts)
    person = said.person
    if person is not None:
        words = _also(words, person)
    return replace(
        said,
        parts=tuple(_part(part, words) for part in parts),
        person=person and _person(person),
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


def _person(person: Person) -> Person:
    hidden = redact.redact_user_id(person.stable_id)
    if person.name is None or person.name in (person.id, person.alt_id):
        return Person(hidden)
    return Person(hidden, name=redact.redact_name(person.name))


def _words_for(source: Source) -> Words:
    """Replaces the ids that a source names, and whatever looks like a number or an address."""
    known = {
        id: redact.redact_user_id(id)
        for id in (source.user_id, source.user_id_alt, source.chat_id, source.chat_id_alt)
        if id and len(id) >= _SHORTEST_ID
    }
    return _replacing(known)


def _also(words: Words, person: Person) -> Words:
    ids = {id for id in (person.id, person.alt_id) if id and len(id) >= _SHORTEST_ID}
    own = _replacing({id: redact.redact_user_id(id) for id in ids})
    return lambda text: own(words(text))


def _replacing(known: Mapping[str, str]) -> Words:
    def replaced(text: str) -> str:
        for id, hidden in known.items():
            text = text.replace(id, hidden)
        text = _PHONE.sub(_hidden, text)
        return _MAIL.sub(_hidden, text)

    return replaced


def _hidden(found: re.Match[str]) -> str:
    return redact.redact_user_id("".join(found[0].split()))
