"""Sessions of the OpenAI Agents SDK.

session = HansardSession("alice", house)
await Runner.run(agent, "Hello", session=session)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hansard.actions.say import Saying
from hansard.clock import Occasion
from hansard.integrations import thread
from hansard.integrations.extra import wanted
from hansard.integrations.files import Files
from hansard.integrations.house import House, settled
from hansard.integrations.openai_items import NATIVE, Item, item_in, items_of, message_of, model_of
from hansard.integrations.thread import Thread
from hansard.model.entry import Entry
from hansard.model.place import Person
from hansard.model.usage import Usage
from hansard.store.database import Tx

with wanted("openai-agents", "The storage for the OpenAI Agents SDK"):
    from agents.memory import SessionSettings

    from agents import RunContextWrapper

if TYPE_CHECKING:
    from agents.usage import RequestUsage

PLATFORM = "openai-agents"


@dataclass(frozen=True, slots=True)
class About:
    """What a run's context says about it: whose it is, and which model answers."""

    profile: str | None = None
    person: Person | None = None
    model: str | None = None


_NOTHING = About()


@dataclass(slots=True)
class _Run:
    """What of a run's model calls is in the ledger."""

    name: str
    counted: int = 0


class HansardSession:
    """A session of the SDK. `about` reads tenant, person and model from a run's own context."""

    def __init__(
        self,
        session_id: str,
        house: House,
        *,
        session_settings: SessionSettings | None = None,
        model: str | None = None,
        about: Callable[[Any], About] | None = None,
    ) -> None:
        self._source = thread.named(PLATFORM, session_id)
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._house = house
        self._model = model
        self._about = about
        self._last: tuple[About, str | None, Thread] | None = None
        self._runs: WeakKeyDictionary[Any, _Run] = WeakKeyDictionary()

    async def get_items(
        self, limit: int | None = None, *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> list[Any]:
        """The items of the conversation, the latest so many of them, in order."""
        if wrapper is not None and wrapper not in self._runs:
            # What a run that is resumed has used before is in the ledger already.
            self._run(wrapper).counted = len(wrapper.usage.request_usage_entries)
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        where = self._thread(self._facts(wrapper))
        return await self._house.store.read(_items, where, limit=limit)

    async def add_items(
        self, items: list[Any], *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> None:
        """Add items, all or none, durable when this returns."""
        if not items:
            return
        facts = self._facts(wrapper)
        model = facts.model or self._model
        files = Files()
        said = [message_of(item, files, model=model_of(item) or model) for item in items]
        model = model or next((one.model for one in reversed(said) if one.model), None)
        calls, counted = self._calls(wrapper, model)
        await settled(
            self._house.store.write(
                _add,
                self._thread(facts, model=model),
                [Saying(one) for one in said],
                files=files,
                calls=calls,
                when=self._house.occasion(),
            )
        )
        if wrapper is not None:
            self._run(wrapper).counted = counted

    async def pop_item(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> Any:
        """Take back the newest item; None when there is none."""
        where = self._thread(self._facts(wrapper))
        return await settled(self._house.store.write(_pop, where, when=self._house.occasion()))

    async def clear_session(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> None:
        """Take back everything; what was said stays in the log, and people can find it."""
        where = self._thread(self._facts(wrapper))
        await settled(self._house.store.write(thread.clear, where, when=self._house.occasion()))

    def _facts(self, wrapper: "RunContextWrapper[Any] | None") -> About:
        if wrapper is None or self._about is None:
            return _NOTHING
        return self._about(wrapper.context)

    def _thread(self, facts: About, *, model: str | None = None) -> Thread:
        known = self._last
        if known is not None and known[:2] == (facts, model):
            return known[2]
        source, person = self._source, facts.person
        if person is not None:
            source = thread.named(
                PLATFORM, self.session_id, user_id=person.id, user_name=person.name
            )
        made = Thread(facts.profile or self._house.profile, source, model=model)
        self._last = (facts, model, made)
        return made

    def _run(self, wrapper: "RunContextWrapper[Any]") -> _Run:
        if wrapper not in self._runs:
            self._runs[wrapper] = _Run(self._house.occasion().new_id())
        return self._runs[wrapper]

    def _calls(
        self, wrapper: "RunContextWrapper[Any] | None", model: str | None
    ) -> tuple[list[Usage], int]:
        """The model calls of a run that are not in the ledger, and how many it has made."""
        if wrapper is None:
            return [], 0
        run, made = self._run(wrapper), wrapper.usage.request_usage_entries
        calls = [
            _usage(call, model=model, call_id=f"{PLATFORM}/{run.name}/{number}")
            for number, call in enumerate(made)
            if number >= run.counted
        ]
        priced = [self._house.priced(call, at=None) for call in calls]
        return [call for call in priced if call is not None], len(made)


def _items(tx: Tx, where: Thread, *, limit: int | None) -> list[Item]:
    if limit is not None and limit <= 0:
        return []
    found = thread.natives(tx, where, NATIVE, item_in, limit=limit)
    given = [
        items_of(thread.message(each)) if isinstance(each, Entry) else [each] for each in found
    ]
    items = [item for each in given for item in each]
    return items if limit is None else items[-limit:]


def _add(
    tx: Tx,
    where: Thread,
    said: Sequence[Saying],
    *,
    files: Files,
    calls: Sequence[Usage],
    when: Occasion,
) -> None:
    files.keep(tx)
    thread.append(tx, where, said, when=when)
    thread.count(tx, where, calls, when=when)


def _pop(tx: Tx, where: Thread, *, when: Occasion) -> Item | None:
    thread.held(tx, where)
    while found := thread.visible(tx, where, limit=1):
        thread.take_back(tx, where, found[0], when=when)
        items = items_of(thread.message(found[0]))
        if items:
            # A message that did not come from the SDK may be several items: the others stay.
            thread.append(
                tx, where, [Saying(message_of(item, Files())) for item in items[:-1]], when=when
            )
            return items[-1]
    return None


def _usage(call: "RequestUsage", *, model: str | None, call_id: str) -> Usage:
    cached = call.input_tokens_details.cached_tokens or 0
    written = getattr(call.input_tokens_details, "cache_write_tokens", 0) or 0
    return Usage(
        model=model,
        input_tokens=max(0, call.input_tokens - cached - written),
        output_tokens=call.output_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=call.output_tokens_details.reasoning_tokens or 0,
        call_id=call_id,
    )
