"""Which conversation a source belongs to: SessionKey, and the one rule that gives it."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from sessionary.errors import BadInput
from sessionary.model.source import NAMED, TERMINAL, WEB, ChatType, Person, Source, escape, unescape

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


@dataclass(frozen=True, slots=True)
class Isolation:
    """Who shares a conversation where several people write."""

    isolate_people_in_groups: bool = True
    isolate_people_in_threads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
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
