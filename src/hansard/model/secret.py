"""Keys, tokens and passwords that stand in messages: found by their form, shown only in part."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MASK = "[secret]"
SHOWN = 4
MAX_DEPTH = 50

# Each form is one that its issuer gave to be recognised by. What merely looks random is left alone:
# a report that cries over every hash is not read twice.
_FORMS = {
    "Anthropic key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "OpenAI key": r"sk-(?:proj-|svcacct-|admin-)?(?!ant-)[A-Za-z0-9_-]{20,}",
    "GitHub token": r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    "GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    "AWS access key": r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])",
    "Google key": r"AIza[0-9A-Za-z_-]{35}",
    "Slack token": r"(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})",
    "Telegram bot token": r"[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])",
    "Discord bot token": r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
    "Stripe key": r"[rs]k_(?:live|test)_[A-Za-z0-9]{20,}",
    "SendGrid key": r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "npm token": r"npm_[A-Za-z0-9]{36}",
    "PyPI token": r"pypi-[A-Za-z0-9_-]{50,}",
    "Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "JSON web token": r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"
    r"(?:[^-]|-(?!----END))*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----)?",
    "password in an address": r"(?<=://)[^\s/:@]{1,100}:[^\s/:@]{3,200}(?=@)",
    "bearer token": r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{20,}=*",
    "password": r"(?i:(?<=password)|(?<=passwd)|(?<=secret)|(?<=api_key)|(?<=apikey)|(?<=token))"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?[A-Za-z0-9!#$%&*+./?@^_~-]{12,200}",
}
_NAMES = tuple(_FORMS)
_ANY = re.compile("|".join(f"(?P<f{at}>{form})" for at, form in enumerate(_FORMS.values())))
_INTRODUCED = re.compile(r"[\"']?\s*[:=]\s*[\"']?")


@dataclass(frozen=True, slots=True)
class Secret:
    """Something in a text that lets someone in: what it seems to be, and where it stands."""

    kind: str
    start: int
    end: int
    shown: str


def secrets_in(text: str) -> Iterator[Secret]:
    """What looks like a secret in a text, in order."""
    for found in _ANY.finditer(text):
        kind = _NAMES[int((found.lastgroup or "f0")[1:])]
        start = found.start()
        if kind == "password":
            introduction = _INTRODUCED.match(text, start)
            start = start if introduction is None else introduction.end()
        yield Secret(kind, start, found.end(), _shown(text[start : found.end()]))


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
