"""What importers build messages from: content, times, token usage, trees of messages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Generic, TypeVar

from sessionary.formats import coerce
from sessionary.formats.parts import Content
from sessionary.importers.base.events import Branch, Compacted, MessageEvent, Skipped
from sessionary.model.usage import MAX_COST_MICROUSD, CostStatus, Usage


class MessageContent(Content):
    """The content of an imported message."""

    __slots__ = ()

    def to_message(self, role: str, at: datetime, **more: Any) -> MessageEvent:
        """Return the message with this content."""
        return MessageEvent(role=role, parts=self.parts, blobs=self.blobs, at=at, **more)

    @property
    def user_role(self) -> str:
        """The role of a user's message: `tool` if it holds only results, as some APIs want it."""
        return "tool" if self.has("tool_result") and not self.has("text") else "user"


def text_content(text: object) -> MessageContent:
    """Return the content of a plain text."""
    content = MessageContent()
    content.add_text(text)
    return content


class ModelTurn:
    """A model's turn: its texts and calls, and between them the results of its tools."""

    def __init__(self) -> None:
        self._steps: list[tuple[MessageContent, MessageContent]] = []

    @property
    def words(self) -> MessageContent:
        """The content for the model's next text: a new one after results."""
        if not self._steps or self._steps[-1][1]:
            self._steps.append((MessageContent(), MessageContent()))
        return self._steps[-1][0]

    @property
    def tools(self) -> tuple[MessageContent, MessageContent]:
        """The contents for the next calls and for their results."""
        if not self._steps:
            self._steps.append((MessageContent(), MessageContent()))
        return self._steps[-1]

    def to_messages(
        self, role: str, at: datetime, *, id: str, is_required: bool = False, **more: Any
    ) -> Iterator[MessageEvent]:
        """Yield the messages; the first one has the usage of the whole turn.

        If `is_required`, an empty message stands for a turn without content.
        """
        if is_required and not any(content or results for content, results in self._steps):
            yield MessageContent().to_message(role, at, id=id, **more)
        for number, (content, results) in enumerate(self._steps):
            name = id if number == 0 else f"{id}:{number}"
            if content:
                yield content.to_message(role, at, id=name, **more)
                more.pop("usage", None)
            if results:
                yield results.to_message("tool", at, id=f"{name}:results")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds reach the year 5138 before a number must be milliseconds, and so on.
_SECONDS = 10**11
_MILLISECONDS = 10**14
_MICROSECONDS = 10**17
_FIRST = datetime(1980, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


def parse_time(value: object) -> datetime | None:
    """Return the time of an ISO text or a number of seconds, milliseconds or microseconds.

    None if the value is no plausible time. A time without a zone is UTC.
    """
    found = _of_text(value) if isinstance(value, str) else _of_number(value)
    return found if found is not None and is_plausible_time(found) else None


def is_plausible_time(at: datetime) -> bool:
    """Whether a tool can have written at that time."""
    return _FIRST <= at <= _LAST


def first_time(*values: object) -> datetime | None:
    """Return the first of several values that is a time."""
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
    model: object = None,
    provider: object = None,
    at: datetime | None = None,
    dollars: object = None,
    is_reported: bool = False,
    **tokens: object,
) -> tuple[Usage, ...]:
    """Return the usage of one model call; nothing if nothing was counted.

    `tokens` are `input`, `output`, `cache_read`, `cache_write`, `reasoning` and `cache_write_1h`.
    The cost is the tool's estimate unless `is_reported`; a cost of 0 means that it is unknown.
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
            model=coerce.name(model),
            provider=coerce.name(provider),
            cost_microusd=cost,
            cost_status=CostStatus.UNKNOWN if cost is None else status,
            price_source=None if cost is None else tool,
            call_id=f"{tool}:{id}",
            at=at,
            **counted,
        ),
    )


def uncached_input(sent: object, *cached: object) -> int:
    """Return the input tokens without the cached ones, which some providers count among them."""
    total, rest = coerce.count(sent), sum(map(coerce.count, cached))
    return total - rest if total >= rest else total


def _microdollars(dollars: object) -> int | None:
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not math.isfinite(dollars) or not 0 < dollars < _MOST_DOLLARS:
        return None
    return round(dollars * _MICRO)


# A tree whose paths have more messages together is imported only partly: the current path first.
MAX_TREE_MESSAGES = 1_000_000


def tree_paths(
    parents: Mapping[str, str | None], *, current: str | None = None
) -> tuple[list[list[str]], list[str]]:
    """Return the paths to the other leaves, and the path to the current message.

    `parents` is in the order of the messages. By default the last leaf is current. Parents that are
    missing are ignored, and no cycle is followed.
    """
    has_child = {parent for parent in parents.values() if parent in parents}
    leaves = [each for each in parents if each not in has_child]
    if current not in parents:
        current = next(reversed(leaves or list(parents)), None)
    if current is None:
        return [], []
    path = path_to(parents, current)
    rest: list[list[str]] = []
    left = MAX_TREE_MESSAGES - len(path)
    for leaf in leaves:
        if leaf == current:
            continue
        other = path_to(parents, leaf)
        left -= len(other)
        if left < 0:
            break
        rest.append(other)
    return rest, path


def path_to(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """Return the ids from the root to a message."""
    path: dict[str, None] = {}
    node: str | None = leaf
    while node is not None and node in parents and node not in path:
        path[node] = None
        node = parents[node]
    return list(reversed(path))


def without_nodes(parents: Mapping[str, str | None], gone: set[str]) -> dict[str, str | None]:
    """Return the tree without some nodes; their children move to the next node above."""
    kept: dict[str, str | None] = {}
    for each, parent in parents.items():
        if each in gone:
            continue
        seen = {each}
        node = parent
        while node in gone and node not in seen:
            seen.add(node)
            node = parents.get(node)
        kept[each] = None if node in seen else node
    return kept


def parents_first(parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the nodes of a tree, each after its parent."""
    done: set[str] = set()
    for each in parents:
        line: list[str] = []
        node: str | None = each
        while node is not None and node in parents and node not in done:
            done.add(node)
            line.append(node)
            node = parents[node]
        yield from reversed(line)


def is_linear(parents: Mapping[str, str | None]) -> bool:
    """Whether each message follows the one before it."""
    return all(parents[after] == before for before, after in pairwise(parents))


def tree_branches(
    parents: Mapping[str, str | None],
    messages: Mapping[str, Sequence[MessageEvent | Compacted]],
    *,
    current: str | None = None,
    where: str = "tree",
) -> Iterator[Branch | Skipped]:
    """Yield the branches of a tree, the current one last; messages on no branch are reported."""
    rest, path = tree_paths(parents, current=current)
    reached = {id for each in (*rest, path) for id in each}
    if len(reached) < len(parents):
        missing = len(parents) - len(reached)
        yield Skipped(where=where, why=f"{missing:,} of its messages are on no branch")
    for number, each in enumerate([*rest, path]):
        items = [item for id in each for item in messages.get(id, ())]
        yield Branch(items=items, is_current=number == len(rest))


V = TypeVar("V")
REMEMBERED = 20_000


class RecentEntries(Generic[V]):
    """A dictionary that forgets its oldest entries: it holds at least `keep`, at most twice as many."""

    def __init__(self, given: Mapping[str, V] | None = None, *, keep: int = REMEMBERED) -> None:
        self._entries: dict[str, V] = dict(given or {})
        self._keep, self._most = keep, 2 * keep
        # Bound to the dictionary's own method: it is called for every line of a file.
        self.get = self._entries.get

    def put(self, name: str, value: V) -> None:
        """Add an entry."""
        entries = self._entries
        entries[name] = value
        if len(entries) > self._most:
            latest = dict(islice(entries.items(), self._keep, None))
            entries.clear()
            entries.update(latest)

    def pop(self, name: str) -> V | None:
        """Remove and return an entry; None if there is none."""
        return self._entries.pop(name, None)

    def latest(self, count: int) -> dict[str, V]:
        """Return the last entries."""
        found = list(islice(reversed(self._entries.items()), count))
        return dict(reversed(found))
