"""The loop that reads durable exchanges and appends them to the log in their order, each exactly once."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary import prices
from sessionary.actions.budgets import Budgets
from sessionary.clock import Clock, Ids, Moment
from sessionary.errors import RetryLater, StoreUnavailable
from sessionary.model import tokens
from sessionary.model.message import Message, Role, Unknown, body_to_json
from sessionary.model.usage import Usage
from sessionary.processes import has_ended
from sessionary.proxy import reading, sessions
from sessionary.proxy.copy import unpack
from sessionary.proxy.journal import RecordingGap
from sessionary.proxy.reading import Interface, RequestContent, ResponseContent
from sessionary.proxy.sessions import PROCESS_DIED, RecordedExchange
from sessionary.store.database import Store
from sessionary.store.tables import exchanges
from sessionary.store.tables.exchanges import StoredExchange

# How often it looks for what other processes have left.
POLL_SECONDS = 5.0
_MOST_OPEN = 1_000
# How long it waits for more, to record them with one commit.
_GATHER_SECONDS = 0.03
# How long it gives way to what passes, before each transaction: less the further it is behind, and not at all after a
# minute. A burst is recorded after it; in a flood that goes on, what passes shares the
# time with the record.
_GIVE_WAY_SECONDS = 0.1
_MOST_BEHIND = timedelta(minutes=1)
log = logging.getLogger(__name__)


class RecorderStatus(Struct, frozen=True):
    """What was recorded since the start, and what could not be."""

    recorded: int = 0
    failed: int = 0


class Recorder:
    """Records what this process and others on the same store have made durable."""

    def __init__(
        self,
        store: Store,
        *,
        budgets: Budgets,
        profile: str,
        clock: Clock,
        ids: Ids,
        holder: str,
        give_way: Callable[[float], Awaitable[None]],
    ) -> None:
        """`give_way` waits at most this many seconds for what passes, which comes first."""
        self._give_way = give_way
        self._store = store
        self._budgets = budgets
        self._profile = profile
        self._clock = clock
        self._ids = ids
        self._holder = holder
        self._wake = asyncio.Event()
        self._gaps: list[RecordingGap] = []
        self.status = RecorderStatus()

    def wake(self) -> None:
        """Say that there is something to record."""
        self._wake.set()

    def note_gap(self, gap: RecordingGap) -> None:
        """Write into the record that a gap has ended, as soon as that can be."""
        if gap.until is not None:
            self._gaps.append(gap)
            self.wake()

    async def run(self) -> None:
        """Record until cancelled."""
        next_sweep, is_first = 0.0, True
        while True:
            self._wake.clear()
            try:
                if is_first:
                    # Perhaps this version can record what an earlier one could not.
                    await self._store.write(exchanges.retry_failed)
                    is_first = False
                if time.monotonic() >= next_sweep:
                    await self.sweep()
                    next_sweep = time.monotonic() + POLL_SECONDS
                await self.drain()
            except (RetryLater, StoreUnavailable) as error:
                log.warning("What passed the proxy is durable but not in the log yet: %s", error)
            except Exception:
                log.exception(
                    "What passed the proxy is durable but could not be recorded; it is tried again"
                )
                await asyncio.sleep(POLL_SECONDS)
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_GATHER_SECONDS)

    async def sweep(self) -> None:
        """Let what ended processes have left be recorded as far as it came."""
        found = await self._store.read(exchanges.list_open, but=self._holder, limit=_MOST_OPEN)
        now = self._clock.now()
        for each in found:
            if each.expires_at < now or has_ended(each.holder):
                await self._store.write(exchanges.abandon, each, now=now)

    async def drain(self) -> None:
        """Record everything that is durable now."""
        for gap in list(self._gaps):
            await self._store.write(
                sessions.record_gap,
                gap,
                profile=self._profile,
                holder=self._holder,
                moment=self._moment(),
            )
            self._gaps = [each for each in self._gaps if each is not gap]
        while rows := await self._store.read(exchanges.next_done):
            behind = (self._clock.now() - rows[0].done_at) / _MOST_BEHIND
            if behind < 1:
                await self._give_way(_GIVE_WAY_SECONDS * (1 - max(0, behind)))
            try:
                await self._record(rows)
            except (RetryLater, StoreUnavailable):
                raise
            except Exception as error:
                log.warning("An exchange could not be recorded as the others: %s", error)
                for row in rows:
                    await self._record_alone(row)

    async def _record(self, rows: Sequence[StoredExchange]) -> None:
        """Record exchanges together, or none of them."""
        # Reading takes CPU time: in a thread, other streams go on meanwhile.
        await self._append(await asyncio.to_thread(lambda: [self._read(row) for row in rows]))

    async def _record_alone(self, row: StoredExchange) -> None:
        """Record an exchange; one that cannot be is kept as it came."""
        try:
            await self._record([row])
        except (RetryLater, StoreUnavailable):
            raise
        except Exception as error:
            log.exception("Exchange %s could not be read and is recorded as it came", row.id)
            try:
                await self._append([as_it_came(row, error)])
            except (RetryLater, StoreUnavailable):
                raise
            except Exception as failure:
                log.exception("Exchange %s cannot be recorded; it stays in the store", row.id)
                facts = {**row.facts, "failure": str(failure)}
                await self._store.write(exchanges.set_failed, row.id, facts)
                self.status = replace(self.status, failed=self.status.failed + 1)

    def _read(self, row: StoredExchange) -> RecordedExchange:
        exchange = read_exchange(row)
        return _with_estimate(exchange, row.facts) if self._budgets else exchange

    async def _append(self, found: Sequence[RecordedExchange]) -> None:
        recorded = await self._store.write(
            sessions.record, found, known_budgets=self._budgets, moment=self._moment()
        )
        self.status = replace(self.status, recorded=self.status.recorded + recorded)

    def _moment(self) -> Moment:
        return Moment(self._clock.now(), self._ids)


def read_exchange(row: StoredExchange) -> RecordedExchange:
    """Read what was stored of an exchange."""
    facts = row.facts
    interface = Interface(facts["interface"])
    is_whole = facts.get("is_whole") is True
    request = reading.read_request(interface, unpack(row.request))
    response = ResponseContent()
    if "status" in facts:
        response = reading.read_response(
            interface,
            unpack(row.response),
            status=facts["status"],
            is_stream=facts["is_stream"],
            is_whole=is_whole,
        )
    response = _with_hints(response, facts)
    broken = facts.get("broken") or (None if "status" in facts else PROCESS_DIED)
    if not response.is_whole and response.error is None and broken is None:
        broken = "the response broke off"
    return _recorded(row, request, response, broken=broken)


def _with_hints(response: ResponseContent, facts: dict[str, Any]) -> ResponseContent:
    """The response, with a note if it is not all there or could not be decoded."""
    names = ("undecoded", "undecoded_request", "request_bytes", "response_bytes")
    noted: dict[str, Any] = {name: facts[name] for name in names if name in facts}
    if not noted:
        return response
    message = response.message or Message(Role.ASSISTANT, ())
    note = Unknown({"type": "proxy_incomplete", **noted})
    return replace(response, message=replace(message, parts=(*message.parts, note)))


def as_it_came(row: StoredExchange, error: Exception) -> RecordedExchange:
    """The exchange without being read: both bodies as texts."""
    bodies = []
    for stored in (row.request, row.response):
        try:
            bodies.append(unpack(stored))
        except Exception:
            log.exception("A body of exchange %s cannot be unpacked", row.id)
            bodies.append(b"")
    request = RequestContent(messages=(reading.raw_message(Role.USER, "request", bodies[0]),))
    message = reading.raw_message(Role.ASSISTANT, "response", bodies[1])
    is_whole = row.facts.get("is_whole") is True
    response = ResponseContent(message=message, is_whole=is_whole)
    broken = row.facts.get("broken") or (None if is_whole else PROCESS_DIED)
    found = _recorded(row, request, response, broken=broken)
    return replace(found, facts={**found.facts, "unread": str(error)})


def _recorded(
    row: StoredExchange,
    request: RequestContent,
    response: ResponseContent,
    *,
    broken: str | None,
) -> RecordedExchange:
    facts = row.facts
    made = RecordedExchange(
        id=row.id,
        profile=row.profile,
        client=facts["client"],
        upstream=facts["upstream"],
        began_at=row.began_at,
        ended_at=max(row.began_at, row.done_at),
        request=request,
        response=response,
        session=facts.get("session"),
        person=row.person_id,
        broken=None if response.is_whole else broken,
        facts={name: facts[name] for name in ("status", "path") if name in facts},
    )
    model = response.model or request.model
    used = reading.usage_of(Interface(facts["interface"]), response.usage, model=model)
    return made if used is None else replace(made, usage=_priced(used, made, facts))


def _with_estimate(exchange: RecordedExchange, facts: dict[str, Any]) -> RecordedExchange:
    """The exchange with an estimate of what it used, if it was answered and does not say that."""
    request, answer = exchange.request, exchange.response.message
    if exchange.usage is not None or answer is None:
        return exchange
    sent = (request.system, request.tools, [body_to_json(each) for each in request.messages])
    used = Usage(
        model=exchange.response.model or request.model,
        input_tokens=tokens.estimate(sent),
        output_tokens=tokens.estimate(body_to_json(answer)),
    )
    return replace(exchange, estimate=_priced(used, exchange, facts))


def _priced(used: Usage, exchange: RecordedExchange, facts: dict[str, Any]) -> Usage:
    at = exchange.ended_at
    used = replace(
        used,
        provider=facts.get("provider"),
        base_url=facts.get("address"),
        call_id=exchange.receipt,
        at=at,
    )
    return prices.priced(used, at=at)
