"""The loop that sends what waits in the outbox: at least once, in order for each channel."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from sessionary.actions import deliver
from sessionary.actions.deliver import DeliveryCame
from sessionary.engine.context import EngineContext
from sessionary.engine.ports import Adapter
from sessionary.engine.wake import Wake
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, StoreUnavailable, Unreachable
from sessionary.model.delivery import Delivery

# How much longer a claim lasts than a sending may take.
MARGIN = 4 / 3
AT_ONCE = 32
# Whatever a platform says: see `sweep.LONGEST_PATIENCE`.
LONGEST_WAIT_SECONDS = 24 * 3600.0
log = logging.getLogger("sessionary.outbox")


class Outbox:
    """Sends the deliveries of the platforms whose adapters stand in this process."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._wake: Wake | None = None
        # By platform: one that does not answer must not take the room of the others.
        self._sending: dict[str, set[asyncio.Task[None]]] = {}
        self._claimed_until: dict[str, float] = {}

    async def run(self) -> None:
        """Go on until cancelled; what is being sent then is finished first."""
        if not self._context.adapters:
            return
        self._wake = Wake(
            self._context.store,
            lambda event: isinstance(event, DeliveryCame),
            seconds=self._context.settings.poll_seconds,
        )
        try:
            while True:
                more = [
                    await self._send_due(adapter) for adapter in self._context.adapters.values()
                ]
                if not any(more):
                    await self._wake.pause()
        finally:
            self._wake.close()
            sending = [task for tasks in self._sending.values() for task in tasks]
            await asyncio.gather(*sending, return_exceptions=True)

    async def _send_due(self, adapter: Adapter) -> bool:
        """Send what is due and has room; whether there may be more of it at once."""
        context = self._context
        sending = self._sending.setdefault(adapter.platform, set())
        room = AT_ONCE - len(sending)
        if room <= 0:
            return False  # whoever finishes rings
        try:
            claim = context.store.write(
                deliver.claim,
                holder=context.holder,
                seconds=context.settings.send_seconds * MARGIN,
                now=context.clock.now(),
                limit=room,
                platform=adapter.platform,
                profile=context.profile,
            )
            claimed = await claim.given_to(lambda found: self._start(adapter, found))
        except (RetryLater, StoreUnavailable) as error:
            log.warning("the outbox cannot be read: %s", error)
            return False
        return len(claimed) == room

    def _start(self, adapter: Adapter, claimed: Sequence[Delivery]) -> None:
        sending = self._sending[adapter.platform]
        until = time.monotonic() + self._context.settings.send_seconds * MARGIN
        for delivery in claimed:
            self._claimed_until[delivery.id] = until
            task = asyncio.create_task(self._send(adapter, delivery))
            sending.add(task)
            task.add_done_callback(partial(self._finished, sending, delivery.id))

    def _finished(
        self, sending: "set[asyncio.Task[None]]", id: str, task: "asyncio.Task[None]"
    ) -> None:
        sending.discard(task)
        self._claimed_until.pop(id, None)
        if not task.cancelled() and task.exception() is not None:
            # It is sent again when its lease has run out, and marked as perhaps sent.
            log.warning("a delivery could not be marked", exc_info=task.exception())
        if self._wake is not None:
            self._wake.ring()

    async def _send(self, adapter: Adapter, delivery: Delivery) -> None:
        context = self._context
        try:
            async with asyncio.timeout(context.settings.send_seconds):
                sent = await adapter.send(delivery)
        except (RetryLater, StoreUnavailable) as error:
            # Not before it says; and later each time, or a short outage would use up all tries.
            wait = max(getattr(error, "after", 0.0), self._backoff(delivery))
            await self._later(delivery, min(wait, LONGEST_WAIT_SECONDS), str(error))
        except NotAllowed as error:
            await self._wait_for_owner(delivery, str(error))
        except Unreachable as error:
            await self._abandon(delivery, str(error))
        except TimeoutError:
            await self._later(
                delivery, self._backoff(delivery), "the platform did not answer", unclear=True
            )
        except (
            Exception
        ) as error:  # an adapter is someone else's protocol: its failure is this delivery's
            if not isinstance(error, SessionaryError):
                log.exception("delivery %s failed", delivery.id)
            reason = f"{type(error).__name__}: {error}"
            await self._later(delivery, self._backoff(delivery), reason, unclear=True)
        else:
            await self._note(
                deliver.mark_sent,
                delivery,
                holder=context.holder,
                at=context.clock.now(),
                platform_message_id=sent.platform_message_id,
            )

    async def _later(
        self, delivery: Delivery, seconds: float, reason: str, *, unclear: bool = False
    ) -> None:
        if delivery.attempts >= self._context.settings.send_attempts:
            await self._abandon(delivery, f"given up after {delivery.attempts} tries: {reason}")
            return
        await self._put_back(delivery, seconds, reason, unclear=unclear)

    async def _wait_for_owner(self, delivery: Delivery, reason: str) -> None:
        """A refused key is no fault of what waits for it: it goes out once the key is good again."""
        log.warning("delivery %s to %s waits: %s", delivery.id, delivery.channel, reason)
        pause = self._context.settings.longest_backoff
        await self._put_back(delivery, pause, reason, counted=False)

    async def _put_back(self, delivery: Delivery, seconds: float, reason: str, **how: bool) -> None:
        await self._note(
            deliver.mark_failed,
            delivery,
            holder=self._context.holder,
            not_before=self._context.clock.now() + timedelta(seconds=seconds),
            reason=reason[:500],
            **how,
        )

    async def _abandon(self, delivery: Delivery, reason: str) -> None:
        log.warning("delivery %s to %s abandoned: %s", delivery.id, delivery.channel, reason)
        holder = self._context.holder
        await self._note(deliver.abandon, delivery, holder=holder, reason=reason[:500])

    async def _note(self, mark: Callable[..., bool], delivery: Delivery, **facts: Any) -> None:
        """Write down what became of a sending, again and again while the store is away.

        Until the claim is over: then it is sent again, and marked as perhaps sent.
        """
        pause = self._context.settings.poll_seconds
        while True:
            try:
                await self._context.store.write(mark, delivery.id, **facts)
            except (RetryLater, StoreUnavailable) as error:
                if time.monotonic() + pause >= self._claimed_until.get(delivery.id, 0.0):
                    raise
                log.warning("delivery %s cannot be marked now: %s", delivery.id, error)
                await asyncio.sleep(pause)
            else:
                return

    def _backoff(self, delivery: Delivery) -> float:
        longest = min(2.0 ** min(delivery.attempts, 20), self._context.settings.longest_backoff)
        return longest * self._context.rng.uniform(0.5, 1.0)
