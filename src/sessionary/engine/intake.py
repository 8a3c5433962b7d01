"""The door: who may come in, what is a command, what goes into the inbox."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sessionary.actions import access, blobs, deliver, receive, routing, turns
from sessionary.clock import Moment
from sessionary.engine import commands, notices, verbs
from sessionary.engine.context import EngineContext
from sessionary.engine.loop import Beginning, TurnLoop, begin
from sessionary.engine.settings import TRUSTED, AccessPolicy, Strangers, WhileRunning
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.entry import Message
from sessionary.model.key import SessionKey, check_person
from sessionary.model.part import Text
from sessionary.model.source import ChatType, Source
from sessionary.store.database import Tx
from sessionary.store.result import Pending

T = TypeVar("T")
log = logging.getLogger("sessionary.intake")


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a message at the door."""

    arrival_id: str | None
    new: bool
    follow_up: commands.FollowUp | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message at the door, the bytes that it names, and the code for one who may not enter."""

    source: Source
    message: Message
    idempotency_key: str | None
    files: Sequence[bytes]
    code: str


class Intake:
    """Takes messages in. When `receive` returns, the message is durable or was refused."""

    def __init__(self, context: EngineContext, turns_: TurnLoop) -> None:
        self._context = context
        self._turns = turns_

    async def receive(
        self,
        source: Source,
        said: Message,
        *,
        idempotency_key: str | None = None,
        files: Sequence[bytes] = (),
    ) -> Received:
        """Let a message in: as a command, as an arrival, or not at all.

        Its turn begins in the same transaction, where there is room and none is running.
        """
        key = self._context.key(source)
        code = access.code_of(self._context.rng.getrandbits(64))
        inbound = InboundMessage(source, said, idempotency_key, files, code)
        with self._turns.room_for(key) as may_begin:
            if not may_begin:
                return await self._write(let_in, inbound)
            try:
                return await self._come_in(key, inbound)
            except (RetryLater, StoreUnavailable):
                raise
            except SessionaryError as error:
                # The message alone, then: what cannot be begun is the loop's to answer.
                received = await self._write(let_in, inbound)
                log.warning("a turn of %s could not be begun: %s", key, error)
                return received

    async def _come_in(self, key: SessionKey, inbound: InboundMessage) -> Received:
        write = self._write(come_in, inbound)
        received, _ = await write.given_to(lambda found: self._turns.take(key, found[1]))
        return received

    def _write(self, action: Callable[..., T], inbound: InboundMessage) -> Pending[T]:
        return self._context.store.write(
            action, self._context, inbound, moment=self._context.moment()
        )


def come_in(
    tx: Tx, context: EngineContext, inbound: InboundMessage, *, moment: Moment
) -> tuple[Received, Beginning]:
    """Let a message in, and begin its turn with it if none is running."""
    received = let_in(tx, context, inbound, moment=moment)
    if not received.new or received.answer is not None:
        return received, Beginning(None)
    return received, begin(tx, context.key(inbound.source), context=context, moment=moment)


def let_in(tx: Tx, context: EngineContext, inbound: InboundMessage, *, moment: Moment) -> Received:
    """Take a message in with the bytes that it names; nothing of a stranger is kept."""
    if inbound.files and may_enter(tx, context, inbound.source):
        for data in inbound.files:
            blobs.hold(tx, data)
    idempotency_key, code = inbound.idempotency_key, inbound.code
    return take_in(
        tx,
        context,
        inbound.source,
        inbound.message,
        idempotency_key=idempotency_key,
        code=code,
        moment=moment,
    )


def take_in(
    tx: Tx,
    context: EngineContext,
    source: Source,
    said: Message,
    *,
    idempotency_key: str | None,
    code: str,
    moment: Moment,
    vouched: bool = False,
) -> Received:
    """One transaction: the check at the door, the inbox row, and a command's effect with it.

    `vouched`: someone who may do so lets this message in.
    """
    check_person(source.person)
    if not vouched and not may_enter(tx, context, source):
        return _turn_away(tx, context, source, code=code, moment=moment)
    key = context.key(source)
    arrival, new = receive.receive(
        tx, key, source, said, moment=moment, idempotency_key=idempotency_key
    )
    command = verbs.find(said.text)
    if command is None:
        if new and context.settings.while_running is WhileRunning.INTERRUPT:
            _interrupt(tx, key)
        return Received(arrival.id, new)
    if not new:
        return Received(arrival.id, new=False)
    result = verbs.carry_out(tx, context, command, key, source, moment=moment)
    tx.run("answer_arrival", no=arrival.no, reason=f"/{command.name}")
    _reply(tx, context, source, result.text, moment=moment)
    return Received(arrival.id, True, result.follow_up, result.text)


def _interrupt(tx: Tx, key: SessionKey) -> None:
    """Ask the turn that runs, in whatever process, to make way for the newer message."""
    head = routing.current(tx, key)
    if head is not None and head.running:
        turns.ask_to_stop(tx, head.no, reason=notices.NEWER_MESSAGE)


def may_enter(tx: Tx, context: EngineContext, source: Source) -> bool:
    """Allow or refuse; what is not configured is refused."""
    if source.platform in TRUSTED:
        return True
    door: AccessPolicy = context.settings.access_for(source.platform)
    if door.everyone:
        return True
    person = source.person
    if person is None:
        return False
    if {person.id, person.stable_id} & door.allow:
        return True
    return access.is_permitted(tx, source.platform, person, profile=context.profile)


def _turn_away(
    tx: Tx, context: EngineContext, source: Source, *, code: str, moment: Moment
) -> Received:
    """A stranger in a group gets no answer at all; in a direct message perhaps a code."""
    person = source.person
    door = context.settings.access_for(source.platform)
    pairs = door.strangers is Strangers.PAIR and source.chat_type == ChatType.DM
    if person is None or not pairs:
        return Received(None, False)
    if access.ask(tx, source.platform, person, profile=context.profile, code=code, moment=moment):
        _reply(tx, context, source, notices.pairing(code), moment=moment)
    return Received(None, False)


def _reply(tx: Tx, context: EngineContext, source: Source, text: str, *, moment: Moment) -> None:
    channel = source.channel
    if channel is not None and source.platform in context.deliverable:
        deliver.enqueue(tx, channel, (Text(text),), profile=context.profile, moment=moment)
