"""Hiding ids, names and secrets in what leaves the store."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.model.source import Source
from sessionary.model.terminal import one_line

PHONE_LIKE = re.compile(r"^\+?\d[\d\-\s]{6,}$")
_HEX_DIGITS = 12
_REDACTED = "redacted="


def is_redacted_key(text: str) -> bool:
    """Whether this is what `Redactor.key` gives; no session key is printed so."""
    return text.rpartition("/")[2].startswith(_REDACTED)


class Redactor(Struct, frozen=True):
    """Replaces ids and phone numbers by names that do not show them: always the same for one id and one salt.

    The salt is the store's own; without it, nobody can find a number by hashing all numbers.
    """

    salt: str

    def user_id(self, user_id: str) -> str:
        """Hash the id of a person."""
        return f"user_{self._digest(user_id)}"

    def chat_id(self, chat_id: str) -> str:
        """Hash a chat id; a prefix up to the first colon stays."""
        prefix, colon, rest = chat_id.partition(":")
        return f"{prefix}:{self._digest(rest)}" if colon else self._digest(chat_id)

    def key(self, key: str) -> str:
        """Return a printed session key without the ids of chats and people."""
        return "/".join([*key.split("/")[:3], f"{_REDACTED}{self._digest(key)}"])

    def name(self, name: str) -> str:
        """Hash a name that is really a phone number; any other stays."""
        # WhatsApp wraps numbers in invisible direction marks.
        return self.user_id(name) if PHONE_LIKE.match(one_line(name)) else name

    def source(self, source: Source) -> Source:
        """Return a source without ids, phone numbers and unknown fields."""
        ids = {source.user_id, source.user_id_alt, source.chat_id, source.chat_id_alt}

        def shown_name(name: str | None) -> str | None:
            # A platform that knows no name often repeats the id in its place.
            return name and (self.user_id(name) if name in ids else self.name(name))

        return replace(
            source,
            chat_id=source.chat_id and self.chat_id(source.chat_id),
            chat_id_alt=source.chat_id_alt and self.chat_id(source.chat_id_alt),
            user_id=source.user_id and self.user_id(source.user_id),
            user_id_alt=source.user_id_alt and self.user_id(source.user_id_alt),
            chat_name=shown_name(source.chat_name),
            user_name=shown_name(source.user_name),
            chat_topic=shown_name(source.chat_topic),
            # Some platforms number a thread as its chat, and put people's numbers into message ids.
            thread_id=source.thread_id
            and (self.chat_id(source.thread_id) if source.thread_id in ids else source.thread_id),
            platform_message_id=None
            if any(id and id in (source.platform_message_id or "") for id in ids)
            else source.platform_message_id,
            extra={},
        )

    def _digest(self, text: str) -> str:
        data = f"{self.salt}{text}".encode("utf-8", "surrogatepass")
        return sha256(data).hexdigest()[:_HEX_DIGITS]


MASK = "[secret]"
SHOWN = 4
MAX_DEPTH = 50

# Each form is one that its issuer gave to be recognised by. What merely looks random is left alone:
# a report that cries over every hash is not read twice. Each is looked for by itself and begins, where
# it can, with letters that stand as they are: that is quick, and the same for every text. No form may
# look at a text twice from within what it has looked at (`++` gives nothing back; of a group it does not
# do so in every Python 3.11, so there it stands behind single letters only). A group is the secret,
# where more has to stand around it.
_KEY = r"(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY-----"
_PRIVATE_KEY = (
    rf"-----BEGIN {_KEY}(?:(?:[^-]{{1,2000}}+|-(?!----END)){{0,40}}-----END {_KEY}"
    r"|[A-Za-z0-9+/=\\\s]{0,20000}+)"
)
_PASSWORD = (
    r"(?i:password|passwd|secret|api_?key|token)"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z0-9!#$%&*+./?@^_~-]{12,200})"
)
_FORMS = (
    ("Anthropic key", r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    ("OpenAI key", r"sk-(?:proj-|svcacct-|admin-)?(?!ant-)[A-Za-z0-9_-]{20,}+"),
    ("GitHub token", r"gh[pousr]_[A-Za-z0-9]{36,}+"),
    ("GitHub token", r"github_pat_[A-Za-z0-9_]{60,}+"),
    ("GitLab token", r"glpat-[A-Za-z0-9_-]{20,}+"),
    ("AWS access key", r"A[KS]IA[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("Google key", r"AIza[0-9A-Za-z_-]{35}"),
    ("Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    ("Slack token", r"xapp-[A-Za-z0-9-]{10,}+"),
    ("Telegram bot token", r"[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("Discord bot token", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+"),
    ("Stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{20,}+"),
    ("SendGrid key", r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    ("npm token", r"npm_[A-Za-z0-9]{36}"),
    ("PyPI token", r"pypi-[A-Za-z0-9_-]{50,}+"),
    ("Hugging Face token", r"hf_[A-Za-z0-9]{30,}+"),
    # What begins like one and does not go on is passed over as a whole.
    (
        "JSON web token",
        r"(?=eyJ)(?:(eyJ[\w-]{10,}+\.eyJ[\w-]{10,}+\.[\w-]{10,}+)|[\w-]++)",
    ),
    # With its end, or as much as looks like one: a key is a few thousand letters at most.
    ("private key", _PRIVATE_KEY),
    ("password in an address", r"://([^\s/:@]{1,100}:[^\s/:@]{3,200})(?=@)"),
    ("bearer token", r"[Bb]earer ([A-Za-z0-9._~+/-]{20,}+=*)"),
    ("password", _PASSWORD),
)
_COMPILED = tuple((name, re.compile(form, re.ASCII)) for name, form in _FORMS)


class FoundSecret(Struct, frozen=True):
    """Something in a text that lets someone in: what it seems to be, and where it stands."""

    kind: str
    start: int
    end: int
    shown: str


def secrets_in(text: str) -> Iterator[FoundSecret]:
    """What looks like a secret in a text, in order; those that overlap are one."""
    found: list[tuple[int, int, int]] = []
    for start, number, end in sorted(_spans(text)):
        if found and start < found[-1][2]:
            first, kind, through = found[-1]
            found[-1] = first, kind, max(through, end)
        else:
            found.append((start, number, end))
    for start, number, end in found:
        yield FoundSecret(_FORMS[number][0], start, end, _shown(text[start:end]))


def _spans(text: str) -> Iterator[tuple[int, int, int]]:
    """Where each form stands: its beginning, its number, its end."""
    for number, (_, form) in enumerate(_COMPILED):
        group = min(form.groups, 1)
        for each in form.finditer(text):
            start, end = each.span(group)
            if start >= 0:
                yield start, number, end


def masked(text: str) -> str:
    """The text without what looks like a secret."""
    pieces, at = [], 0
    for secret in secrets_in(text):
        pieces += [text[at : secret.start], MASK]
        at = secret.end
    return "".join([*pieces, text[at:]]) if pieces else text


def masked_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A value of JSON with every text in it masked; what is nested too deep is left out."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict | list) and depth == 0:
        return MASK
    if isinstance(value, dict):
        return {masked(str(name)): masked_json(each, depth - 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked_json(each, depth - 1) for each in value]
    return value


def texts_in(value: Any, depth: int = MAX_DEPTH) -> Iterator[str]:
    """Every text in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth:
        for name, each in value.items():
            yield str(name)
            yield from texts_in(each, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for each in value:
            yield from texts_in(each, depth - 1)


def _shown(secret: str) -> str:
    """Enough to know it again, too little to use it."""
    if secret.startswith("-----BEGIN"):
        return secret.split("-----")[1].capitalize()
    if len(secret) < SHOWN * 4:
        return "…"
    return f"{secret[:SHOWN]}…{secret[-SHOWN:]}"
