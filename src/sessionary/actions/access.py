"""Who may reach the agent, and how much they may use. Deny by default."""

import hashlib
import re
from datetime import timedelta

from sessionary.clock import Moment
from sessionary.errors import BadInput, RetryLater
from sessionary.model.access import PairingRequest, Permit
from sessionary.model.prompt import HomeAddress
from sessionary.model.source import Person
from sessionary.store.database import Tx
from sessionary.store.tables import access, sessions
from sessionary.store.tables.access import Guard

# No 0 and O, no 1, I and L: a code is read aloud and typed.
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
CODE_LENGTH = 8
CODE_LIFE = timedelta(hours=1)
MAX_PENDING = 3
ASK_AGAIN_AFTER = timedelta(minutes=10)
# How long a request is kept when there are too many.
KEPT_FOR = timedelta(minutes=10)
WRONG_CODES = 5
LOCKED_FOR = timedelta(hours=1)
_NOT_IN_CODE = re.compile(f"[^{CODE_ALPHABET}]")


list_permits = access.list_permits
list_pairings = access.list_pairings
list_homes = access.list_homes
revoke = access.delete_permit


def is_permitted(tx: Tx, platform: str, person: Person, *, profile: str) -> bool:
    """Whether this person has a permit, under either of their ids."""
    ids = {person.id, person.stable_id}
    return any(access.has_permit(tx, platform, each, profile=profile) for each in ids)


def permit(
    tx: Tx,
    platform: str,
    person_id: str,
    *,
    profile: str,
    moment: Moment,
    by: str = "owner",
    name: str | None = None,
) -> Permit:
    """Give a person a permit."""
    given = Permit(platform, person_id, name, moment.now, by)
    access.insert_permit(tx, given, profile=profile)
    return given


def request_pairing(
    tx: Tx, platform: str, person: Person, *, profile: str, code: str, moment: Moment
) -> bool:
    """Store a stranger's request for access under a new code; False when there were too many.

    A platform has at most `MAX_PENDING` requests, and a person one. When there are more, a request
    older than `KEPT_FOR` makes room, and its person cannot ask again within the hour, so that
    strangers cannot block pairing.
    """
    now = moment.now
    sessions.lock_key(tx, f"pairing/{platform}", profile=profile)
    access.delete_old_pairings(tx, now=now, asked_before=now - CODE_LIFE)
    expires_at = access.pairing_expires_at(tx, platform, person.stable_id, profile=profile)
    if expires_at is not None:
        if expires_at <= now:
            return False  # their request made room for another; they may ask again in a new hour
        if now - (expires_at - CODE_LIFE) < ASK_AGAIN_AFTER:
            return False
    else:
        pending = access.count_pairings(tx, platform, profile=profile, now=now)
        if pending >= MAX_PENDING and not access.expire_oldest_pairing(
            tx, platform, profile=profile, now=now, asked_before=now - KEPT_FOR
        ):
            return False
    request = PairingRequest(platform, person.stable_id, person.name, now, now + CODE_LIFE)
    access.insert_pairing(tx, request, profile=profile, code_hash=_hash(code))
    return True


def approve_pairing(
    tx: Tx, code: str, *, profile: str, moment: Moment, by: str = "owner"
) -> Permit | None:
    """Give a permit to the person who requested this code; return None for a wrong code.

    Too many wrong codes stop pairing for a while. They are counted, so the caller must let this
    transaction commit.
    """
    # The lock comes before the count is read: on PostgreSQL several guesses would count as one.
    sessions.lock_key(tx, "pairing", profile=profile)
    guard = access.get_guard(tx, "pairing", profile=profile)
    if guard.locked_until is not None and moment.now < guard.locked_until:
        wait = (guard.locked_until - moment.now).total_seconds()
        raise RetryLater(f"Too many wrong codes; try again in {wait / 60:.0f} minutes.", after=wait)
    clean = _NOT_IN_CODE.sub("", code.upper())
    found = access.take_pairing(tx, _hash(clean), profile=profile, now=moment.now)
    if found is None:
        wrong = guard.wrong + 1
        is_locked = wrong >= WRONG_CODES
        guard = Guard(0, moment.now + LOCKED_FOR) if is_locked else Guard(wrong)
        access.set_guard(tx, "pairing", guard, profile=profile)
        return None
    access.set_guard(tx, "pairing", Guard(), profile=profile)
    platform, person_id, name = found
    return permit(tx, platform, person_id, profile=profile, moment=moment, by=by, name=name)


def make_code(rng: int) -> str:
    """A pairing code from a random number."""
    letters = []
    for _ in range(CODE_LENGTH):
        rng, index = divmod(rng, len(CODE_ALPHABET))
        letters.append(CODE_ALPHABET[index])
    return "".join(letters)


def set_home(tx: Tx, home: HomeAddress, *, profile: str, moment: Moment) -> None:
    """Make a channel its platform's home channel."""
    access.set_home(tx, home, profile=profile, at=moment.now)


def check_person(text: str) -> str:
    """A person's id as someone typed it."""
    if not text.strip():
        raise BadInput("Name a person by the id that their platform gives them.")
    return text.strip()


def _hash(code: str) -> str:
    return hashlib.sha256(f"sessionary pairing {code}".encode()).hexdigest()
