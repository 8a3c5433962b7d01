"""Who wrote and from where, and the key of the conversation that this belongs to."""

import re
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from sessionary.errors import BadInput
from sessionary.model.codec import unchecked

TERMINAL = "terminal"
WEB = "web"
NAMED = "session/"
_LARGEST_EXACT_FLOAT = 2**53
_LONGEST_NUMBER_BITS = 256
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_RUN = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PLAIN_ASCII = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@+!")
# Letters and marks that show nothing: grapheme joiner, Hangul fillers, Khmer inherent vowels,
# Mongolian and standard variation selectors. Fixed for ever: stored keys are printed with it.
_INVISIBLE_LETTERS = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810)))
) | frozenset(map(chr, range(0xFE00, 0xFE10)))


def _is_plain(char: str) -> bool:
    if char.isascii():
        return char in _PLAIN_ASCII
    # Unicode 3.2 never changes: a key prints the same under every version of Python.
    return unicodedata.ucd_3_2_0.category(char)[0] in "LMN" and char not in _INVISIBLE_LETTERS


def escape(text: str, *, keep: str = "") -> str:
    """Print any text as plain letters and `%XX`; `keep` names further signs that may stand."""
    if _PLAIN_ASCII.issuperset(text):
        return text
    return "".join(
        char
        if _is_plain(char) or char in keep
        else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )


def unescape(text: str) -> str:
    """Undo `escape`; text without `%` is itself."""
    if "%" in _ESCAPED_RUN.sub("", text):
        raise BadInput("a % must be followed by two hexadecimal digits; write % itself as %25")
    try:
        return _ESCAPED_RUN.sub(_decode_run, text)
    except UnicodeDecodeError as error:
        raise BadInput("the %XX codes in it are not UTF-8 text") from error


def _decode_run(run: re.Match[str]) -> str:
    return bytes.fromhex(run[0].replace("%", "")).decode("utf-8", "surrogatepass")


def _text(name: str, value: object) -> str | None:
    """Take text as it is, a whole number as its digits; empty means none."""
    if value is None:
        return None
    if isinstance(value, str):
        return _joined(value) or None
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT_FLOAT:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{name} must be text or a whole number, not {type(value).__name__}")
    if value.bit_length() > _LONGEST_NUMBER_BITS:
        raise BadInput(f"{name} is a number of too many digits to be an id")
    return str(value)


def _is_clean(value: object) -> bool:
    """Whether `_text` would return the value itself. Asked first: it is so nearly always, and many are made."""
    return value.__class__ is str and value.isascii() and value != ""


def _required_text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} must be a non-empty text")
    return _joined(value)


def _require_object(name: str, data: object) -> None:
    if not isinstance(data, Mapping):
        raise BadInput(f"{name} must be a JSON object, not {type(data).__name__}")


def _joined(text: str) -> str:
    """Join surrogates that make a pair, as every reader of JSON does."""
    text = str.__str__(text)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class ChatType(StrEnum):
    """The chat types that have rules of their own; any other text routes like a group."""

    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"


class Channel(Struct, frozen=True):
    """One address we can deliver to."""

    platform: str
    chat_id: str
    thread_id: str | None = None

    def __post_init__(self) -> None:
        if not _is_clean(self.platform):
            force_setattr(self, "platform", _required_text("platform", self.platform))
        if not _is_clean(self.chat_id):
            chat_id = _text("chat_id", self.chat_id)
            force_setattr(self, "chat_id", _required_text("chat_id", chat_id))
        if self.thread_id is not None and not _is_clean(self.thread_id):
            force_setattr(self, "thread_id", _text("thread_id", self.thread_id))

    def __str__(self) -> str:
        parts = (self.platform, self.chat_id, self.thread_id)
        return ":".join(escape(part, keep="#/=$*,") for part in parts if part is not None)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `platform:chat[:thread]`; a `:` inside a part is written `%3A`."""
        match [unescape(part) for part in text.split(":")]:
            case [platform, chat_id] if platform and chat_id:
                return cls(platform, chat_id)
            case [platform, chat_id, thread_id] if platform and chat_id and thread_id:
                return cls(platform, chat_id, thread_id)
            case _:
                raise BadInput(
                    "a channel is written platform:chat or platform:chat:thread, "
                    "with %3A for a colon inside a part"
                )


class Person(Struct, frozen=True, omit_defaults=True):
    """Who wrote: the platform's id, perhaps a stable alternative id and a name."""

    id: str
    alt_id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not _is_clean(self.id):
            force_setattr(self, "id", _required_text("id", _text("id", self.id)))
        if self.alt_id is not None and not _is_clean(self.alt_id):
            force_setattr(self, "alt_id", _text("alt_id", self.alt_id))
        if self.name is not None and not _is_clean(self.name):
            force_setattr(self, "name", _text("name", self.name))

    @property
    def stable_id(self) -> str:
        """The id that stays when the person's number or handle changes, as far as it is known."""
        return self.alt_id or self.id

    @property
    def label(self) -> str:
        """What to call this person: the name, else the id."""
        return self.name or self.id

    def to_json(self) -> dict[str, Any]:
        """Give the fields that are set."""
        given = {"id": self.id, "alt_id": self.alt_id, "name": self.name}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""
        _require_object("a person", data)
        if data.get("id") is None:
            raise BadInput("a person must have an id")
        return cls(data["id"], data.get("alt_id"), data.get("name"))


class _Place(Struct, frozen=True):
    """The fields of a source that may be given without their names."""

    platform: str
    chat_id: str | None = None


class Source(_Place, frozen=True, kw_only=True):
    """Channel, person and what the platform told us, as of one message."""

    chat_name: str | None = None
    chat_type: str = ChatType.DM
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    platform_message_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "platform", _required_text("platform", self.platform))
        force_setattr(self, "chat_type", _required_text("chat_type", self.chat_type))
        for name in _OPTIONAL_FIELDS:
            given = getattr(self, name)
            if given is not None and not _is_clean(given):
                force_setattr(self, name, _text(name, given))
        force_setattr(self, "extra", _extra(self.extra))

    def __hash__(self) -> int:
        return hash(_hashed(self))

    @property
    def channel(self) -> Channel | None:
        """Where an answer goes, or None when the platform named no chat."""
        if self.chat_id is None:
            return None
        return Channel(self.platform, self.chat_id, self.thread_id)

    @property
    def person(self) -> Person | None:
        """Who wrote, or None when the platform gave no id (a name alone identifies nobody)."""
        person_id = self.user_id or self.user_id_alt
        if person_id is None:
            return None
        return Person(person_id, self.user_id_alt, self.user_name)

    @property
    def speaker(self) -> str | None:
        """Return the writer's name, or else an id."""
        return self.user_name or self.user_id or self.user_id_alt

    @property
    def description(self) -> str:
        """Say for people where this is; the text holds names that others chose."""
        if self.platform == TERMINAL:
            return TERMINAL
        chat = self.chat_name or self.chat_id or self.platform
        match self.chat_type:
            case ChatType.DM:
                place = f"DM with {self.speaker or 'user'}"
            case ChatType.GROUP | ChatType.CHANNEL:
                place = f"{self.chat_type}: {chat}"
            case _:
                place = chat
        return place if self.thread_id is None else f"{place}, thread: {self.thread_id}"

    def to_json(self) -> dict[str, Any]:
        """Give the fields that are set, and the unknown ones beside them."""
        known = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in known.items() if value is not None} | dict(
            self.extra
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave; fields without a name here are kept in `extra`."""
        _require_object("a source", data)
        if data.get("platform") is None:
            raise BadInput("a source must name its platform")
        known = {name: data[name] for name in _FIELDS if data.get(name) is not None}
        extra = {name: value for name, value in data.items() if name not in _FIELDS}
        return cls(**known, extra=extra)


_FIELDS = tuple(name for name in Source.__struct_fields__ if name != "extra")
_KNOWN = frozenset(_FIELDS)
_hashed = attrgetter(*_FIELDS)
_OPTIONAL_FIELDS = tuple(name for name in _FIELDS if name not in {"platform", "chat_type"})


def _extra(given: Mapping[Any, Any]) -> dict[str, Any]:
    _require_object("extra", given)
    for name in given:
        if not isinstance(name, str) or name in _FIELDS:
            raise BadInput("extra may hold only named fields that a source does not have itself")
    return dict(given)


def source_as_stored(data: Mapping[str, Any]) -> Source:
    """The source that gave this JSON; it was checked then, and is not checked again."""
    if "platform" not in data or "chat_type" not in data:
        return Source.from_json(data)
    if _KNOWN.issuperset(data):
        return unchecked(_BLANK, data, extra={})
    known = {name: value for name, value in data.items() if name in _KNOWN}
    extra = {name: value for name, value in data.items() if name not in _KNOWN}
    return unchecked(_BLANK, known, extra=extra)


_BLANK = Source("unknown")


def at_session(session_id: str) -> Source:
    """Where a person is who writes in a session by its name: in the workbench, or a program."""
    return Source(WEB, f"{NAMED}{session_id}")


def session_named_by(source: Source) -> str | None:
    """The session that a source of `at_session` names; None for any other source."""
    if source.platform != WEB or not (source.chat_id or "").startswith(NAMED):
        return None
    return (source.chat_id or "").removeprefix(NAMED)


_BY_PROGRAM = "by_program"


def by_program(source: Source) -> Source:
    """Mark a source that a program has named with a token that may write but not approve: nobody vouches for it."""
    return replace(source, extra={**source.extra, _BY_PROGRAM: True})


def is_by_program(source: Source) -> bool:
    """Whether only a program says that a message comes from there: it has no owner's rights."""
    return source.extra.get(_BY_PROGRAM) is True


DEFAULT_PROFILE = "main"
# An entry of an index of PostgreSQL has at most 2,704 bytes, with the profile and the rest of the row.
MAX_KEY_BYTES = 2_000
MAX_PERSON_BYTES = 1_000
_MOST_BYTES_PER_CHARACTER = 4
_PROFILE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_LABELS = ("chat", "thread", "person")
_WHATSAPP = "whatsapp"
_WHATSAPP_PERSON = re.compile(r"\+?([0-9]+)(?:_[0-9]+)?(?::[0-9]+)?(?:@([a-z.]+))?", re.IGNORECASE)
_PHONE = "@s.whatsapp.net"
_LID = "@lid"
_WHATSAPP_SERVERS = {"": _PHONE, "s.whatsapp.net": _PHONE, "c.us": _PHONE, "lid": _LID}


def validate_profile(text: str) -> str:
    """Give the profile's name back, or refuse it with the reason."""
    if not _PROFILE.fullmatch(text):
        raise BadInput(
            "a profile's name has 1 to 64 of a-z, 0-9, '_', '.', '-' and begins with a letter "
            f"or digit; {escape(text[:80])!r} does not"
        )
    return text


class Isolation(Struct, frozen=True):
    """Who shares a conversation where several people write."""

    isolate_people_in_groups: bool = True
    isolate_people_in_threads: bool = False


class SessionKey(Struct, frozen=True, kw_only=True):
    """The name of one conversation; equal keys are one conversation, and print alike."""

    profile: str = DEFAULT_PROFILE
    platform: str
    chat_type: str
    chat: str | None = None
    thread: str | None = None
    person: str | None = None

    def __post_init__(self) -> None:
        validate_profile(self.profile)
        parts = (self.platform, self.chat_type, self.chat, self.thread, self.person)
        if "" in parts:
            raise BadInput("no part of a session key may be empty")

    def __str__(self) -> str:
        labelled = (self.chat, self.thread, self.person)
        return _printed(self.profile, self.platform, self.chat_type, labelled)

    @property
    def names_session(self) -> bool:
        """Whether this is the key of someone who named a session, as in the workbench."""
        return self.platform == WEB and (self.chat or "").startswith(NAMED)

    @property
    def is_shared(self) -> bool:
        """Whether several people may be behind this key."""
        if self.platform == TERMINAL:
            return False
        if self.chat_type == ChatType.DM:
            return self.chat is None and self.person is None
        return self.person is None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a printed key; refuse what `str` could not have printed."""
        parts = text.split("/")
        if len(parts) < len(("profile", "platform", "chat_type")):
            raise BadInput("a session key begins profile/platform/chat-type")
        key = cls(
            profile=parts[0],
            platform=unescape(parts[1]),
            chat_type=unescape(parts[2]),
            **{label: unescape(value) for label, value in _labelled(parts[3:]).items()},
        )
        if str(key) != text:
            raise BadInput("this is not how a session key is printed")
        return key


def check_length(key: SessionKey) -> None:
    """Refuse a key that an index of PostgreSQL could not hold; on SQLite too, so that both take the same messages.

    Letters count by their bytes: an accent of its own (a combining mark) has two or three, an emoji twelve.
    """
    printed = str(key)
    if len(printed) <= MAX_KEY_BYTES // _MOST_BYTES_PER_CHARACTER:
        return
    size = len(printed.encode("utf-8", "surrogatepass"))
    if size <= MAX_KEY_BYTES:
        return
    ids = {"chat id": key.chat, "thread id": key.thread, "person id": key.person}
    name, longest = max(ids.items(), key=lambda each: len(each[1] or ""))
    taken = len(escape(longest or "").encode("utf-8", "surrogatepass"))
    raise BadInput(
        f"The {name} is too long: its {len(longest or ''):,} characters take {taken:,} bytes, and all ids of a "
        f"conversation together may take about {MAX_KEY_BYTES:,}. Nothing was written."
    )


def check_person(person: Person | None) -> None:
    """Refuse a person's id that is too long to be counted or let in by."""
    for id in () if person is None else (person.id, person.stable_id):
        size = len(id.encode("utf-8", "surrogatepass"))
        if size > MAX_PERSON_BYTES:
            raise BadInput(
                f"The person id is too long: its {len(id):,} characters take {size:,} bytes; "
                f"{MAX_PERSON_BYTES:,} at most. Nothing was written."
            )


@lru_cache(maxsize=1000)
def _printed(
    profile: str, platform: str, chat_type: str, labelled: tuple[str | None, str | None, str | None]
) -> str:
    """A turn prints its key several times."""
    parts = [profile, _print(platform), _print(chat_type)]
    named = zip(_LABELS, labelled, strict=True)
    return "/".join(parts + [f"{label}={_print(value)}" for label, value in named if value])


def _print(value: str) -> str:
    return escape(value, keep=":")


def _labelled(parts: list[str]) -> dict[str, str]:
    pairs = [part.partition("=") for part in parts]
    for label, _, _ in pairs:
        if label not in _LABELS:
            raise BadInput("after profile/platform/chat-type come chat=, thread= and person=")
    return {label: value for label, _, value in pairs}


def key_for(
    source: Source, *, profile: str = DEFAULT_PROFILE, isolation: Isolation | None = None
) -> SessionKey:
    """Say which conversation a source belongs to. Nothing else decides that."""
    return _route(source, profile=profile, isolation=isolation or Isolation())[0]


def explain(
    source: Source, *, profile: str = DEFAULT_PROFILE, isolation: Isolation | None = None
) -> list[str]:
    """Say in words how `key_for` comes to its answer, one line per decision."""
    key, reasons = _route(source, profile=profile, isolation=isolation or Isolation())
    return [f"profile {key.profile}, platform {_print(key.platform)}", *reasons, f"key: {key}"]


def is_shared(source: Source, isolation: Isolation | None = None) -> bool:
    """Whether several people may be behind the source's key."""
    return key_for(source, isolation=isolation).is_shared


def _route(source: Source, *, profile: str, isolation: Isolation) -> tuple[SessionKey, list[str]]:
    chat, person = source.chat_id, source.user_id_alt or source.user_id
    reasons = []
    if source.platform == _WHATSAPP:
        chat, person = _whatsapp_chat(source), _whatsapp_person(source)
        if (chat, person) != (source.chat_id, source.user_id_alt or source.user_id):
            reasons.append("WhatsApp ids are brought to one notation per person")
    if source.chat_type == ChatType.DM:
        parts, words = _route_dm(chat, source.thread_id, person)
    else:
        parts, words = _route_group(source, isolation, chat=chat, person=person)
    key = SessionKey(profile=profile, platform=source.platform, chat_type=source.chat_type, **parts)
    return key, reasons + words


def _route_dm(
    chat: str | None, thread: str | None, person: str | None
) -> tuple[dict[str, str | None], list[str]]:
    if chat and thread:
        return {"chat": chat, "thread": thread}, ["DM in a thread: one key per thread of the chat"]
    if chat:
        return {"chat": chat}, ["DM with a chat id: one key per chat"]
    if person:
        return {"person": person}, ["DM without a chat id: the person's id names it"]
    if thread:
        return {"thread": thread}, ["DM without chat id and person: the thread id names it"]
    return {}, ["DM without any id: one shared DM of the platform"]


def _route_group(
    source: Source, isolation: Isolation, *, chat: str | None, person: str | None
) -> tuple[dict[str, str | None], list[str]]:
    kind = _print(source.chat_type)
    words = [] if source.chat_type in set(ChatType) else [f"{kind}: an unknown type, like a group"]
    words.append(f"{kind}: one key per chat" if chat else f"{kind} without a chat id")
    if source.thread_id:
        words.append("it has a thread id: one key per thread")
    is_apart, why = _isolates(source, isolation)
    if person is None:
        words.append("no person is known: all who write here share the key")
    else:
        words.append(why)
    parts = {"chat": chat, "thread": source.thread_id, "person": person if is_apart else None}
    return parts, words


def _isolates(source: Source, isolation: Isolation) -> tuple[bool, str]:
    """Whether people get a key each in this group or thread, and why."""
    if not isolation.isolate_people_in_groups:
        return False, "isolate_people_in_groups is off: people share the key"
    if source.thread_id is None and source.chat_type != ChatType.THREAD:
        return True, "isolate_people_in_groups is on: each person has a key"
    if not isolation.isolate_people_in_threads:
        return False, "in a thread, isolate_people_in_threads is off: people share the key"
    return True, "in a thread, isolate_people_in_threads is on: each person has a key"


def _whatsapp_chat(source: Source) -> str | None:
    if source.chat_id is None or source.chat_type != ChatType.DM:
        return source.chat_id
    chat = _whatsapp_id(source.chat_id)
    return _whatsapp_phones(source).get(chat, chat)


def _whatsapp_person(source: Source) -> str | None:
    given = source.user_id_alt or source.user_id
    if given is None:
        return None
    person = _whatsapp_id(given)
    return _whatsapp_phones(source).get(person, person)


def _whatsapp_id(text: str) -> str:
    """Bring the notations of one person to one; a group's id and anything else stay."""
    match = _WHATSAPP_PERSON.fullmatch(text)
    if match is None or (server := (match[2] or "").lower()) not in _WHATSAPP_SERVERS:
        return text
    return match[1] + _WHATSAPP_SERVERS[server]


def _whatsapp_phones(source: Source) -> dict[str, str]:
    """The phone ids of the lids that this source itself says belong together."""
    phones: dict[str, str] = {}
    pairs = ((source.chat_id, source.chat_id_alt), (source.user_id, source.user_id_alt))
    for given in pairs:
        ids = [_whatsapp_id(text) for text in given if text]
        lids = [one for one in ids if one.endswith(_LID)]
        phones.update({lid: one for lid in lids for one in ids if one.endswith(_PHONE)})
    return phones
