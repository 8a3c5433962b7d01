"""Who may reach the agent, and how much they may use. Deny by default."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sessionary.clock import Moment, from_micros, to_micros
from sessionary.errors import BadInput, RetryLater
from sessionary.model import codec
from sessionary.model.prompt import HomeAddress
from sessionary.model.source import Person
from sessionary.store.database import Tx

# No 0 and O, no 1, I and L: a code is read aloud and typed.
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
CODE_LENGTH = 8
CODE_LIFE = timedelta(hours=1)
MAX_PENDING = 3
ASK_AGAIN_AFTER = timedelta(minutes=10)
# How long a request keeps its place when others want it.
KEPT_FOR = timedelta(minutes=10)
WRONG_CODES = 5
LOCKED_FOR = timedelta(hours=1)
_NOT_IN_CODE = re.compile(f"[^{CODE_ALPHABET}]")


@dataclass(frozen=True, slots=True)
class Permit:
    """Someone who was let in."""

    platform: str
    person_id: str
    name: str | None
    given_at: datetime
    given_by: str


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """What was used in a period, and what running turns have reserved beside it."""

    tokens: int = 0
    cost_microusd: int = 0
    reserved_tokens: int = 0
    reserved_microusd: int = 0


def is_permitted(tx: Tx, platform: str, person: Person, *, profile: str) -> bool:
    """Whether this person was let in, under either of their ids."""
    ids = {person.id, person.stable_id}
    return any(
        tx.one("get_permit", profile=profile, platform=platform, person_id=_id(each)) is not None
        for each in ids
    )


def permit(
    tx: Tx,
    platform: str,
    person_id: str,
    *,
    profile: str,
    moment: Moment,
    by: str = "owner",
    name: str | None = None,
) -> None:
    """Let a person in."""
    tx.run(
        "insert_permit",
        profile=profile,
        platform=platform,
        person_id=_id(person_id),
        name=None if name is None else codec.storable_text(name),
        at=to_micros(moment.now),
        given_by=by,
    )


def revoke(tx: Tx, platform: str, person_id: str, *, profile: str) -> bool:
    """Let a person in no longer; say whether they were."""
    return bool(
        tx.run("delete_permit", profile=profile, platform=platform, person_id=_id(person_id))
    )


def list_permits(tx: Tx, *, profile: str) -> list[Permit]:
    """Everyone who was let in."""
    rows = tx.all("list_permits", profile=profile)
    return [Permit(platform, id, name, from_micros(at), by) for platform, id, name, at, by in rows]


def request_pairing(
    tx: Tx, platform: str, person: Person, *, profile: str, code: str, moment: Moment
) -> bool:
    """Note a stranger's request under a fresh code; False when enough was asked for.

    A platform has a few places, and a person at most one. When all are taken, a request older than
    `PLACE_FOR` gives way to a new one, and its person cannot ask again within the hour, so that
    strangers cannot block pairing.
    """
    now = to_micros(moment.now)
    tx.one("lock_key", profile=profile, key=f"pairing/{platform}")
    tx.run("delete_old_pairings", now=now, before=to_micros(moment.now - CODE_LIFE))
    earlier = tx.one(
        "get_pairing", profile=profile, platform=platform, person_id=_id(person.stable_id)
    )
    if earlier is not None:
        expires_at = from_micros(earlier[1])
        if expires_at <= moment.now:
            return False  # someone else has their place now; they may ask again in a new hour
        if moment.now - (expires_at - CODE_LIFE) < ASK_AGAIN_AFTER:
            return False
    else:
        pending = tx.one("count_pairings", profile=profile, platform=platform, now=now)
        is_full = pending is not None and pending[0] >= MAX_PENDING
        if is_full and not tx.run(
            "make_room_for_pairing",
            profile=profile,
            platform=platform,
            now=now,
            before=to_micros(moment.now - KEPT_FOR),
        ):
            return False
    tx.run(
        "insert_pairing",
        profile=profile,
        platform=platform,
        person_id=_id(person.stable_id),
        name=None if person.name is None else codec.storable_text(person.name),
        code_hash=_hash(code),
        at=now,
        expires_at=to_micros(moment.now + CODE_LIFE),
    )
    return True


def approve_pairing(
    tx: Tx, code: str, *, profile: str, moment: Moment, by: str = "owner"
) -> Permit | None:
    """Let in whoever asked with this code; None for a wrong one.

    Too many wrong ones lock the door for a while. A wrong code is counted, so the caller must
    let this transaction commit.
    """
    # Before the count is read: PostgreSQL would let several guess for the price of one.
    tx.one("lock_key", profile=profile, key="pairing")
    row = tx.one("get_guard", profile=profile)
    wrong, locked_until = row if row is not None else (0, 0)
    if to_micros(moment.now) < locked_until:
        wait = (from_micros(locked_until) - moment.now).total_seconds()
        raise RetryLater(f"Too many wrong codes; try again in {wait / 60:.0f} minutes.", after=wait)
    clean = _NOT_IN_CODE.sub("", code.upper())
    found = tx.one(
        "take_pairing", profile=profile, code_hash=_hash(clean), now=to_micros(moment.now)
    )
    if found is None:
        wrong += 1
        locked = to_micros(moment.now + LOCKED_FOR) if wrong >= WRONG_CODES else 0
        tx.run(
            "set_guard", profile=profile, wrong_codes=0 if locked else wrong, locked_until=locked
        )
        return None
    tx.run("set_guard", profile=profile, wrong_codes=0, locked_until=0)
    platform, person_id, name = found
    permit(tx, platform, person_id, profile=profile, moment=moment, by=by, name=name)
    return Permit(platform, person_id, name, moment.now, by)


def list_pairings(
    tx: Tx, *, profile: str, now: datetime
) -> list[tuple[str, str, str | None, datetime, datetime]]:
    """Who waits to be let in: platform, person, name, when they asked, how long the code is good."""
    rows = tx.all("list_pairings", profile=profile, now=to_micros(now))
    return [
        (platform, id, name, from_micros(asked), from_micros(ends))
        for platform, id, name, asked, ends in rows
    ]


def make_code(rng: int) -> str:
    """A pairing code from a random number."""
    letters = []
    for _ in range(CODE_LENGTH):
        rng, place = divmod(rng, len(CODE_ALPHABET))
        letters.append(CODE_ALPHABET[place])
    return "".join(letters)


def get_budget_use(tx: Tx, scope: str, period: str, *, profile: str) -> BudgetUse:
    """What a person, channel or schedule has used in a period, and has reserved now."""
    row = tx.one("get_spending", profile=profile, scope=scope, period=period)
    return BudgetUse() if row is None else BudgetUse(*row)


def add_spending(
    tx: Tx, scope: str, period: str, *, profile: str, tokens: int, cost_microusd: int
) -> None:
    """Count what was used against a budget."""
    tx.run(
        "add_spending",
        profile=profile,
        scope=scope,
        period=period,
        tokens=tokens,
        cost_microusd=cost_microusd,
    )


def lock_scopes(tx: Tx, scopes: Iterable[str], *, profile: str) -> None:
    """Let nobody else reserve from these budgets until the transaction ends."""
    # Always in the same order, so that two turns with the same scopes do not wait for each other.
    for scope in sorted(scopes):
        tx.one("lock_key", profile=profile, key=f"budget/{scope}")


def reserve(
    tx: Tx, turn_id: str, scope: str, *, profile: str, tokens: int, cost_microusd: int
) -> None:
    """Count what a turn is expected to use against a budget until the turn ends."""
    tx.run(
        "insert_reservation",
        turn_id=turn_id,
        profile=profile,
        scope=scope,
        tokens=tokens,
        cost_microusd=cost_microusd,
    )


def use_reservations(tx: Tx, turn_id: str, *, tokens: int, cost_microusd: int) -> None:
    """Reduce a turn's reservations by what was just counted as spent."""
    tx.run("use_reservations", turn_id=turn_id, tokens=tokens, cost_microusd=cost_microusd)


def set_home(tx: Tx, home: HomeAddress, *, profile: str, moment: Moment) -> None:
    """Make a channel its platform's default."""
    tx.run(
        "set_home",
        profile=profile,
        platform=home.platform,
        chat_id=_id(home.chat_id),
        thread_id=None if home.thread_id is None else _id(home.thread_id),
        name=None if home.name is None else codec.storable_text(home.name),
        at=to_micros(moment.now),
    )


def list_homes(tx: Tx, *, profile: str) -> list[HomeAddress]:
    """Every platform's default channel."""
    rows = tx.all("list_homes", profile=profile)
    return [
        HomeAddress(platform, chat_id, name, thread_id)
        for platform, chat_id, thread_id, name in rows
    ]


def check_person(text: str) -> str:
    """A person's id as someone typed it."""
    if not text.strip():
        raise BadInput("Name a person by the id that their platform gives them.")
    return text.strip()


def _id(text: str) -> str:
    return codec.storable_text(text)


def _hash(code: str) -> str:
    return hashlib.sha256(f"sessionary pairing {code}".encode()).hexdigest()
