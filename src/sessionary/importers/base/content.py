"""What importers build messages from: content, times, token usage, trees of messages."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Generic, TypeVar

from sessionary.clock import to_micros
from sessionary.formats import coerce
from sessionary.formats.parts import Content
from sessionary.importers.base.events import Branch, Compacted, MessageEvent, Skipped, TokenUsage
from sessionary.model.usage import MAX_COST_MICROUSD, CostStatus, Usage
from sessionary.prices import VERSION, Tokens, cost_of, cost_of_tokens
from sessionary.store.tables import usage
from sessionary.store.tables.sessions import column
from sessionary.store.tables.usage import UsageRow


class MessageContent(Content):
    """Parts that become a message of the record that is read."""

    __slots__ = ()

    def said(self, role: str, at: datetime, **more: Any) -> MessageEvent:
        """The message."""
        return MessageEvent(role=role, parts=self.parts, blobs=self.blobs, at=at, **more)


class ModelTurn:
    """What a model said in one go: words and calls, and between them what tools answered."""

    def __init__(self) -> None:
        self._stretches: list[tuple[MessageContent, MessageContent]] = []

    @property
    def words(self) -> MessageContent:
        """Where words go: behind the answers, if there were any."""
        if not self._stretches or self._stretches[-1][1]:
            self._stretches.append((MessageContent(), MessageContent()))
        return self._stretches[-1][0]

    @property
    def tools(self) -> tuple[MessageContent, MessageContent]:
        """Where calls go, and where their answers go."""
        if not self._stretches:
            self._stretches.append((MessageContent(), MessageContent()))
        return self._stretches[-1]

    def said(self, role: str, at: datetime, *, id: str, **more: Any) -> Iterator[MessageEvent]:
        """The messages; what is known of the whole turn stands with the first."""
        for number, (content, results) in enumerate(self._stretches):
            name = id if number == 0 else f"{id}:{number}"
            if content:
                yield content.said(role, at, id=name, **more)
                more.pop("usage", None)
            if results:
                yield results.said("tool", at, id=f"{name}:results")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds reach the year 5138 before a number must be milliseconds, and so on.
_SECONDS = 10**11
_MILLISECONDS = 10**14
_MICROSECONDS = 10**17
_FIRST = datetime(1980, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


def parse_time(value: object) -> datetime | None:
    """The moment that a value names; None when it names none that makes sense.

    A time without a zone is UTC.
    """
    found = _of_text(value) if isinstance(value, str) else _of_number(value)
    return found if found is not None and is_plausible_time(found) else None


def is_plausible_time(at: datetime) -> bool:
    """Whether a moment is one at which a tool can have written; others no calendar may hold."""
    return _FIRST <= at <= _LAST


def first_time(*values: object) -> datetime | None:
    """The first of several values that names a moment."""
    for value in values:
        found = value if isinstance(value, datetime) else parse_time(value)
        if found is not None:
            return found
    return None


def _of_text(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return _of_number(float(text))
    except (ValueError, OverflowError):
        return None


def _of_number(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _MICROSECONDS:
        return None
    if value < _SECONDS:
        return _EPOCH + timedelta(microseconds=round(value * 1_000_000))
    if value < _MILLISECONDS:
        return _EPOCH + timedelta(microseconds=round(value * 1000))
    return _EPOCH + timedelta(microseconds=round(value))


_MICRO = 1_000_000
_MOST_DOLLARS = MAX_COST_MICROUSD / _MICRO


def call_usage(
    tool: str,
    id: str,
    *,
    model: str | None = None,
    provider: str | None = None,
    at: datetime | None = None,
    dollars: object = None,
    is_reported: bool = False,
    **tokens: object,
) -> tuple[Usage, ...]:
    """The call by its tokens (`input`, `output`, `cache_read`, `cache_write`, `reasoning`, `cache_write_1h`).

    None when nothing was counted. What a tool says that a call cost is its estimate, from a price
    list of its own, unless `is_reported`; a cost of 0 says that the tool did not know.
    """
    counted: dict[str, Any] = {f"{name}_tokens": coerce.count(n) for name, n in tokens.items()}
    if "cache_write_1h_tokens" in counted:
        most = counted.get("cache_write_tokens", 0)
        counted["cache_write_1h_tokens"] = min(counted["cache_write_1h_tokens"], most)
    cost = _microdollars(dollars)
    if not any(counted.values()) and cost is None:
        return ()
    status = CostStatus.REPORTED if is_reported else CostStatus.ESTIMATED
    return (
        Usage(
            model=model,
            provider=provider,
            cost_microusd=cost,
            cost_status=CostStatus.UNKNOWN if cost is None else status,
            price_source=None if cost is None else tool,
            call_id=f"{tool}:{id}",
            at=at,
            **counted,
        ),
    )


def ledger_rows(used: Iterable[Usage | TokenUsage], *, now: datetime) -> list[UsageRow]:
    """Calls as the ledger keeps them, with our price where their tool told none."""
    return [
        _of_tokens(each) if isinstance(each, TokenUsage) else _of_usage(each, now=now)
        for each in used
    ]


def _of_tokens(used: TokenUsage) -> UsageRow:
    tokens = Tokens(
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
        cache_write_1h=used.cache_write_1h_tokens,
    )
    cost = cost_of_tokens(tokens, used.model, at=used.at)
    provider = None if cost is None else cost.provider
    # The ledger counts all cache writes together: the sixth number is only for the price.
    known = column(used.call_id), to_micros(used.at), usage.word(used.model), provider
    if cost is None:
        return UsageRow(*known, None, None, None, *tokens[:5])
    status = CostStatus.ESTIMATED
    return UsageRow(
        *known, None, None, None, *tokens[:5], cost.microusd, status, cost.source, VERSION
    )


def _of_usage(used: Usage, *, now: datetime) -> UsageRow:
    call, cost = usage.call_of(used, at=now), cost_of(used, at=now)
    if cost is None:
        return call
    return call._replace(
        provider=call.provider or cost.provider,
        cost_microusd=cost.microusd,
        cost_status=CostStatus.ESTIMATED,
        price_source=cost.source,
        price_version=VERSION,
    )


def _microdollars(dollars: object) -> int | None:
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not math.isfinite(dollars) or not 0 < dollars < _MOST_DOLLARS:
        return None
    return round(dollars * _MICRO)


# So many messages all ways together may have; a tree of more is told by its current way alone.
MAX_TREE_MESSAGES = 1_000_000


def tree_paths(
    parents: Mapping[str, str | None], *, current: str | None = None
) -> tuple[list[list[str]], list[str]]:
    """The ways to the leaves that are not current, and the way that is.

    `parents` stands in the order in which the messages were said. Without a current message the
    last leaf is. A parent that is not there is none, and no cycle is followed.
    """
    has_child = {parent for parent in parents.values() if parent in parents}
    leaves = [each for each in parents if each not in has_child]
    if current not in parents:
        current = next(reversed(leaves or list(parents)), None)
    if current is None:
        return [], []
    way = path_to(parents, current)
    rest: list[list[str]] = []
    left = MAX_TREE_MESSAGES - len(way)
    for leaf in leaves:
        if leaf == current:
            continue
        other = path_to(parents, leaf)
        left -= len(other)
        if left < 0:
            break
        rest.append(other)
    return rest, way


def path_to(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """From the root to a message."""
    way: dict[str, None] = {}
    here: str | None = leaf
    while here is not None and here in parents and here not in way:
        way[here] = None
        here = parents[here]
    return list(reversed(way))


def without_nodes(parents: Mapping[str, str | None], gone: set[str]) -> dict[str, str | None]:
    """The tree without some of its nodes; their children hang on the next above them."""
    kept: dict[str, str | None] = {}
    for each, parent in parents.items():
        if each in gone:
            continue
        seen = {each}
        here = parent
        while here in gone and here not in seen:
            seen.add(here)
            here = parents.get(here)
        kept[each] = None if here in seen else here
    return kept


def is_linear(parents: Mapping[str, str | None]) -> bool:
    """Whether each message answers the one before it."""
    return all(parents[after] == before for before, after in pairwise(parents))


def tree_branches(
    parents: Mapping[str, str | None],
    said: Mapping[str, Sequence[MessageEvent | Compacted]],
    *,
    current: str | None = None,
    where: str = "tree",
) -> Iterator[Branch | Skipped]:
    """The tree as its ways, the current one last; what stands on none of them is told."""
    rest, way = tree_paths(parents, current=current)
    told = {id for each in (*rest, way) for id in each}
    if len(told) < len(parents):
        missing = len(parents) - len(told)
        yield Skipped(where=where, why=f"{missing:,} of its messages stand on no branch")
    for number, each in enumerate([*rest, way]):
        items = [item for id in each for item in said.get(id, ())]
        yield Branch(items=items, is_current=number == len(rest))


V = TypeVar("V")
REMEMBERED = 20_000


class RecentEntries(Generic[V]):
    """Holds the latest entries, at least `keep` of them and at most twice as many."""

    def __init__(self, given: Mapping[str, V] | None = None, *, keep: int = REMEMBERED) -> None:
        self._entries: dict[str, V] = dict(given or {})
        self._keep, self._most = keep, 2 * keep
        # Reading is the dictionary's own: it is done for every line of a file.
        self.get = self._entries.get

    def put(self, name: str, value: V) -> None:
        """Hold an entry."""
        entries = self._entries
        entries[name] = value
        if len(entries) > self._most:
            latest = dict(islice(entries.items(), self._keep, None))
            entries.clear()
            entries.update(latest)

    def pop(self, name: str) -> V | None:
        """Take an entry out; None when it is not there."""
        return self._entries.pop(name, None)

    def latest(self, count: int) -> dict[str, V]:
        """The last entries."""
        found = list(islice(reversed(self._entries.items()), count))
        return dict(reversed(found))
