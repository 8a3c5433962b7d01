"""Tokens: a program's right to use the HTTP interface. Only a hash of one is kept."""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sessionary.clock import Moment, from_micros, to_micros
from sessionary.errors import Ambiguous, BadInput, NotFound
from sessionary.model import codec
from sessionary.model.key import validate_profile
from sessionary.store.database import Row, Tx

PREFIX = "hsd_"
SECRET_BYTES = 32
_MOST_NAME = 100


class Scope(StrEnum):
    """What a caller may do: each includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, wanted: "Scope") -> bool:
        """Whether this scope is enough."""
        order = list(Scope)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the record knows it: everything but the token."""

    id: str
    profile: str
    name: str
    scope: Scope
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AccessEnded:
    """Published after a commit: a token or a login is good no longer."""

    id: str


def secret(rng: bytes) -> str:
    """A token from 256 random bits; shown once, never kept."""
    if len(rng) != SECRET_BYTES:
        raise BadInput(f"A token is made of {SECRET_BYTES} random bytes.")
    return PREFIX + rng.hex()


def digest(text: str) -> str:
    """What is kept of a secret of 256 bits: one hash is enough, nobody guesses it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def add(tx: Tx, token: str, *, profile: str, scope: Scope, moment: Moment, name: str = "") -> Token:
    """Let a program in that shows this token."""
    clean = codec.storable_text(" ".join(name.split()))
    if len(clean) > _MOST_NAME:
        raise BadInput(f"A token's name has at most {_MOST_NAME} characters.")
    made = Token(moment.new_id(), validate_profile(profile), clean, scope, moment.now)
    tx.run(
        "insert_token",
        id=made.id,
        profile=made.profile,
        name=clean,
        hash=digest(token),
        scope=scope,
        at=to_micros(moment.now),
    )
    return made


def find(tx: Tx, token: str) -> Token | None:
    """Whose token this is; None when it is nobody's, or was revoked."""
    wanted = digest(token)
    row = tx.one("get_token_by_hash", hash=wanted)
    if row is None or not hmac.compare_digest(row[-1], wanted):
        return None
    return _token(row)


def is_good(tx: Tx, id: str) -> bool:
    """Whether a token was not revoked."""
    return tx.one("token_is_good", id=id) is not None


def listing(tx: Tx, *, profile: str) -> list[Token]:
    """The tokens of a profile, revoked ones too."""
    return [_token(row) for row in tx.all("list_tokens", profile=profile)]


def revoke(tx: Tx, ref: str, *, profile: str, moment: Moment) -> Token:
    """Let nobody in with this token from now on; streams that it opened are closed.

    `ref` is its id, or its name while one good token alone has it.
    """
    known = _id_of(tx, codec.storable_text(ref), profile=profile)
    tx.run("revoke_token", id=known, profile=profile, at=to_micros(moment.now))
    row = tx.one("get_token", id=known, profile=profile)
    if row is None:
        raise NotFound(f"There is no token {ref}, by id or by name.")
    tx.after_commit(AccessEnded(known))
    return _token(row)


def _id_of(tx: Tx, ref: str, *, profile: str) -> str:
    known = listing(tx, profile=profile)
    if any(each.id == ref for each in known):
        return ref
    named = [each.id for each in known if each.name == ref and each.revoked_at is None]
    if len(named) > 1:
        raise Ambiguous(f"Several tokens are named {ref!r}: {', '.join(named)}.", named)
    return named[0] if named else ref


def _token(row: Row) -> Token:
    id, profile, name, scope, created_at, revoked_at = row[:6]
    ended = None if revoked_at is None else from_micros(revoked_at)
    return Token(id, profile, name, Scope(scope), from_micros(created_at), ended)
