"""Credentials for the HTTP interface: tokens of programs, and logins of browsers by a link or a password."""

import base64
import hashlib
import hmac
from datetime import datetime, timedelta

from msgspec import Struct

from sessionary.clock import Moment
from sessionary.errors import Ambiguous, BadInput, NotFound, RetryLater
from sessionary.model import codec
from sessionary.model.access import Login, Scope, Token
from sessionary.model.source import validate_profile
from sessionary.store.database import Tx
from sessionary.store.tables import access, credentials, push, sessions
from sessionary.store.tables.access import Guard

PREFIX = "sessionary_"
SECRET_BYTES = 32
_MAX_NAME = 100


is_valid_token = credentials.is_valid_token
list_tokens = credentials.list_tokens
is_valid_login = credentials.is_valid_login
list_logins = credentials.list_logins
get_password_hash = credentials.get_password


class AccessEnded(Struct, frozen=True):
    """Published after a commit: a token or a login is no longer valid."""

    id: str


def make_secret(rng: bytes) -> str:
    """A token made of 256 random bits; it is shown once and never stored."""
    if len(rng) != SECRET_BYTES:
        raise BadInput(f"A token is made of {SECRET_BYTES} random bytes.")
    return PREFIX + rng.hex()


def hash_secret(text: str) -> str:
    """The hash that is stored for a secret of 256 bits. One round is enough: nobody guesses it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def add_token(
    tx: Tx, token: str, *, profile: str, scope: Scope, moment: Moment, name: str = ""
) -> Token:
    """Let a program in that shows this token."""
    clean = codec.storable_text(" ".join(name.split()))
    if len(clean) > _MAX_NAME:
        raise BadInput(f"A token's name has at most {_MAX_NAME} characters.")
    made = Token(moment.new_id(), validate_profile(profile), clean, scope, moment.now)
    credentials.insert_token(tx, made, hashed=hash_secret(token))
    return made


def find_token(tx: Tx, token: str) -> Token | None:
    """The record of a token; None when there is none, or it was revoked."""
    wanted = hash_secret(token)
    found = credentials.find_token(tx, wanted)
    if found is None or not hmac.compare_digest(found[1], wanted):
        return None
    return found[0]


def revoke_token(tx: Tx, ref: str, *, profile: str, moment: Moment) -> Token:
    """Revoke a token; the streams that it opened are closed.

    `ref` is its id, or its name if only one valid token has it.
    """
    id = _id_of(tx, codec.storable_text(ref), profile=profile)
    credentials.revoke_token(tx, id, profile=profile, at=moment.now)
    found = credentials.get_token(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no token {ref}, by id or by name.")
    tx.after_commit(AccessEnded(id))
    return found


def _id_of(tx: Tx, ref: str, *, profile: str) -> str:
    known = list_tokens(tx, profile=profile)
    if any(each.id == ref for each in known):
        return ref
    named = [each.id for each in known if each.name == ref and each.revoked_at is None]
    if len(named) > 1:
        raise Ambiguous(f"Several tokens are named {ref!r}: {', '.join(named)}.", named)
    return named[0] if named else ref


LIFE = timedelta(days=30)
LINK_LIFE = timedelta(seconds=60)
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1024
WRONG_PASSWORDS = 5
# From all addresses together, before any password is refused for a while.
WRONG_ANYWHERE = 100
LONGEST_LOCK = timedelta(minutes=15)
# 16 MiB and some 50 ms for each guess.
_COST, _BLOCK, _LANES = 2**14, 8, 1
_SALT_BYTES = 16


def add_login_link(tx: Tx, code: str, *, profile: str, moment: Moment) -> None:
    """Let one browser log in that shows this code within a minute."""
    credentials.delete_old_login_links(tx, now=moment.now)
    expires_at = moment.now + LINK_LIFE
    credentials.insert_login_link(tx, hash_secret(code), profile=profile, expires_at=expires_at)


def is_login_link(tx: Tx, code: str, *, now: datetime) -> bool:
    """Whether a browser can log in with this code."""
    return credentials.has_login_link(tx, hash_secret(code), now=now)


def log_in_by_link(tx: Tx, code: str, cookie: str, *, moment: Moment) -> Login | None:
    """Log a browser in by a link, which is used up; None when the link is not valid."""
    profile = credentials.take_login_link(tx, hash_secret(code), now=moment.now)
    return None if profile is None else log_in(tx, cookie, profile=profile, moment=moment)


def log_in(tx: Tx, cookie: str, *, profile: str, moment: Moment) -> Login:
    """Log a browser in that has proved who it is."""
    credentials.delete_old_logins(tx, now=moment.now)
    made = Login(moment.new_id(), profile, moment.now, moment.now + LIFE)
    credentials.insert_login(tx, made, hashed=hash_secret(cookie))
    return made


def find_login(tx: Tx, cookie: str, *, now: datetime) -> Login | None:
    """The login of a cookie; None when there is none, or it is over."""
    wanted = hash_secret(cookie)
    found = credentials.find_login(tx, wanted, now=now)
    if found is None or not hmac.compare_digest(found[1], wanted):
        return None
    return found[0]


def end_login(tx: Tx, id: str, *, profile: str, moment: Moment) -> None:
    """Log a browser out; its streams are closed, and it is notified of nothing more."""
    known = codec.storable_text(id)
    if not credentials.end_login(tx, known, profile=profile, at=moment.now):
        raise NotFound(f"There is no login {id}.")
    push.delete_of_login(tx, known, profile=profile)
    tx.after_commit(AccessEnded(known))


def set_password(
    tx: Tx, hashed: str | None, *, profile: str, moment: Moment, but: str = ""
) -> None:
    """Set the password, or remove it; every browser but the one that asks is logged out."""
    credentials.set_password(tx, hashed, profile=profile, at=moment.now)
    for login in list_logins(tx, profile=profile, now=moment.now):
        if login.id != but:
            tx.after_commit(AccessEnded(login.id))
    credentials.end_other_logins(tx, but, profile=profile, at=moment.now)
    push.delete_of_other_logins(tx, but, profile=profile)


def check_login_guard(tx: Tx, *, profile: str, now: datetime) -> None:
    """Refuse a password after too many wrong ones from all addresses together."""
    locked_until = access.get_guard(tx, "login", profile=profile).locked_until
    if locked_until is not None and now < locked_until:
        wait = (locked_until - now).total_seconds()
        raise RetryLater(
            f"Too many wrong passwords from many addresses; try again in {wait:.0f} s.", after=wait
        )


def count_guess(
    tx: Tx, *, profile: str, right: bool, now: datetime, most: int = WRONG_ANYWHERE
) -> None:
    """Count a guess from anywhere; each wrong one from the `most`-th on locks twice as long."""
    # The lock comes before the count is read: on PostgreSQL several guesses would count as one.
    sessions.lock_key(tx, "login", profile=profile)
    wrong = 0 if right else 1 + access.get_guard(tx, "login", profile=profile).wrong
    locked_until = now + lock_duration(wrong, most=most) if wrong >= most else None
    access.set_guard(tx, "login", Guard(wrong, locked_until), profile=profile)


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
