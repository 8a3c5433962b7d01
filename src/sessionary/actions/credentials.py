"""Credentials for the HTTP interface: tokens of programs, and logins of browsers by a link or a password."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sessionary.clock import Moment, from_micros, to_micros
from sessionary.errors import Ambiguous, BadInput, NotFound, RetryLater
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


def make_secret(rng: bytes) -> str:
    """A token from 256 random bits; shown once, never kept."""
    if len(rng) != SECRET_BYTES:
        raise BadInput(f"A token is made of {SECRET_BYTES} random bytes.")
    return PREFIX + rng.hex()


def hash_secret(text: str) -> str:
    """What is kept of a secret of 256 bits: one hash is enough, nobody guesses it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def add_token(
    tx: Tx, token: str, *, profile: str, scope: Scope, moment: Moment, name: str = ""
) -> Token:
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
        hash=hash_secret(token),
        scope=scope,
        at=to_micros(moment.now),
    )
    return made


def find_token(tx: Tx, token: str) -> Token | None:
    """Whose token this is; None when it is nobody's, or was revoked."""
    wanted = hash_secret(token)
    row = tx.one("get_token_by_hash", hash=wanted)
    if row is None or not hmac.compare_digest(row[-1], wanted):
        return None
    return _token(row)


def is_valid_token(tx: Tx, id: str) -> bool:
    """Whether a token was not revoked."""
    return tx.one("token_is_good", id=id) is not None


def list_tokens(tx: Tx, *, profile: str) -> list[Token]:
    """The tokens of a profile, revoked ones too."""
    return [_token(row) for row in tx.all("list_tokens", profile=profile)]


def revoke_token(tx: Tx, ref: str, *, profile: str, moment: Moment) -> Token:
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
    known = list_tokens(tx, profile=profile)
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


LIFE = timedelta(days=30)
LINK_LIFE = timedelta(seconds=60)
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1024
WRONG_PASSWORDS = 5
# From all addresses together, before passwords of strangers are refused for a while.
WRONG_ANYWHERE = 100
LONGEST_LOCK = timedelta(minutes=15)
# 16 MiB and some 50 ms for each guess.
_COST, _BLOCK, _LANES = 2**14, 8, 1
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Login:
    """A browser that was let in."""

    id: str
    profile: str
    began_at: datetime
    expires_at: datetime


def add_login_link(tx: Tx, code: str, *, profile: str, moment: Moment) -> None:
    """Let one browser in that shows this code within a minute."""
    tx.run("delete_old_login_links", now=to_micros(moment.now))
    tx.run(
        "insert_login_link",
        hash=hash_secret(code),
        profile=profile,
        expires_at=to_micros(moment.now + LINK_LIFE),
    )


def log_in_by_link(tx: Tx, code: str, cookie: str, *, moment: Moment) -> Login | None:
    """Use a link up; None when it was used, is too old or never was."""
    row = tx.one("take_login_link", hash=hash_secret(code), now=to_micros(moment.now))
    return None if row is None else log_in(tx, cookie, profile=row[0], moment=moment)


def log_in(tx: Tx, cookie: str, *, profile: str, moment: Moment) -> Login:
    """Let a browser in that has shown who it is."""
    tx.run("delete_old_logins", before=to_micros(moment.now))
    made = Login(moment.new_id(), profile, moment.now, moment.now + LIFE)
    tx.run(
        "insert_login",
        id=made.id,
        profile=profile,
        hash=hash_secret(cookie),
        at=to_micros(made.began_at),
        expires_at=to_micros(made.expires_at),
    )
    return made


def find_login(tx: Tx, cookie: str, *, now: datetime) -> Login | None:
    """Whose cookie this is; None when it is nobody's, or over."""
    wanted = hash_secret(cookie)
    row = tx.one("get_login_by_hash", hash=wanted, now=to_micros(now))
    if row is None or not hmac.compare_digest(row[-1], wanted):
        return None
    return _login(row)


def is_valid_login(tx: Tx, id: str, *, now: datetime) -> bool:
    """Whether a login goes on."""
    return tx.one("login_is_good", id=id, now=to_micros(now)) is not None


def list_logins(tx: Tx, *, profile: str, now: datetime) -> list[Login]:
    """The browsers that are in."""
    return [_login(row) for row in tx.all("list_logins", profile=profile, now=to_micros(now))]


def end_login(tx: Tx, id: str, *, profile: str, moment: Moment) -> None:
    """Log a browser out; its streams are closed."""
    known = codec.storable_text(id)
    if not tx.run("end_login", id=known, profile=profile, at=to_micros(moment.now)):
        raise NotFound(f"There is no login {id}.")
    tx.after_commit(AccessEnded(known))


def set_password(
    tx: Tx, hashed: str | None, *, profile: str, moment: Moment, but: str = ""
) -> None:
    """Set the password, or take it away; every browser but the one that asks is logged out."""
    if hashed is None:
        tx.run("delete_password", profile=profile)
    else:
        tx.run("set_password", profile=profile, hash=hashed, at=to_micros(moment.now))
    for login in list_logins(tx, profile=profile, now=moment.now):
        if login.id != but:
            tx.after_commit(AccessEnded(login.id))
    tx.run("end_other_logins", profile=profile, at=to_micros(moment.now), but=but)


def get_password_hash(tx: Tx, *, profile: str) -> str | None:
    """The hash of a profile's password, or None when it has none."""
    row = tx.one("get_password", profile=profile)
    return None if row is None else str(row[0])


def check_login_guard(tx: Tx, *, profile: str, now: datetime) -> None:
    """Refuse a stranger's guess after too many wrong ones from all addresses together."""
    row = tx.one("get_login_guard", profile=profile)
    if row is not None and to_micros(now) < row[1]:
        wait = (from_micros(row[1]) - now).total_seconds()
        raise RetryLater(
            f"Too many wrong passwords from many addresses; try again in {wait:.0f} s.", after=wait
        )


def count_guess(
    tx: Tx, *, profile: str, right: bool, now: datetime, most: int = WRONG_ANYWHERE
) -> None:
    """Count a guess from anywhere; each wrong one from the `most`-th on locks twice as long."""
    # Before the count is read: on PostgreSQL several servers would count several guesses as one.
    tx.one("lock_key", profile=profile, key="login")
    row = tx.one("get_login_guard", profile=profile)
    wrong = 0 if right else 1 + (0 if row is None else int(row[0]))
    locked = to_micros(now + lock_duration(wrong, most=most)) if wrong >= most else 0
    tx.run("set_login_guard", profile=profile, wrong=wrong, locked_until=locked)


def lock_duration(wrong: int, *, most: int = WRONG_PASSWORDS) -> timedelta:
    """How long further passwords are refused after this number of wrong ones."""
    if wrong < most:
        return timedelta()
    return min(timedelta(seconds=5 * 2.0 ** min(wrong - most, 20)), LONGEST_LOCK)


def hash_password(password: str, salt: bytes) -> str:
    """What is kept of a password. It takes long on purpose: call it outside a transaction."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise BadInput(
            f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD:,} characters, "
            f"not {len(password):,}."
        )
    if len(salt) != _SALT_BYTES:
        raise BadInput(f"A salt has {_SALT_BYTES} bytes.")
    return f"scrypt${_text(salt)}${_text(_scrypt(password, salt))}"


def is_password(password: str, hashed: str) -> bool:
    """Whether a password is the one that was set. It takes long on purpose."""
    match hashed.split("$"):
        case ["scrypt", salt, kept] if len(password) <= LONGEST_PASSWORD:
            made = _scrypt(password, base64.b64decode(salt))
            return hmac.compare_digest(made, base64.b64decode(kept))
    return False


def _scrypt(password: str, salt: bytes) -> bytes:
    words = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(words, salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=2**26, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _login(row: Row) -> Login:
    return Login(row[0], row[1], from_micros(row[2]), from_micros(row[3]))
