"""The door: who may come in, what is a command, what goes into the inbox."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sessionary.actions import access, blobs, deliver, receive, routing, turns
from sessionary.clock import Moment
from sessionary.engine import commands, notices, verbs
from sessionary.engine.loop import Beginning, TurnLoop, begin
from sessionary.engine.parts import EngineContext
from sessionary.engine.settings import TRUSTED, Door, Strangers, WhileRunning
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.entry import Message
from sessionary.model.key import SessionKey, check_person
from sessionary.model.part import Text
from sessionary.model.place import ChatType, Source
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
class Knock:
    """A message at the door, the bytes that it names, and the code for one who may not enter."""

    source: Source
    message: Message
    idem: str | None
    files: Sequence[bytes]
    code: str


class Intake:
    """Takes messages in. When `receive` returns, the message is durable or was refused."""

    def __init__(self, parts: EngineContext, turns_: TurnLoop) -> None:
        self._parts = parts
        self._turns = turns_

    async def receive(
        self,
        source: Source,
        said: Message,
        *,
        idem: str | None = None,
        files: Sequence[bytes] = (),
    ) -> Received:
        """Let a message in: as a command, as an arrival, or not at all.

        Its turn begins in the same transaction, where there is room and none is running.
        """
        key = self._parts.key(source)
        code = access.code_of(self._parts.rng.getrandbits(64))
        knock = Knock(source, said, idem, files, code)
        with self._turns.room_for(key) as may_begin:
            if not may_begin:
                return await self._write(let_in, knock)
            try:
                return await self._come_in(key, knock)
            except (RetryLater, StoreUnavailable):
                raise
            except SessionaryError as error:
                # The message alone, then: what cannot be begun is the loop's to answer.
                received = await self._write(let_in, knock)
                log.warning("a turn of %s could not be begun: %s", key, error)
                return received

    async def _come_in(self, key: SessionKey, knock: Knock) -> Received:
        write = self._write(come_in, knock)
        received, _ = await write.given_to(lambda found: self._turns.take(key, found[1]))
        return received

    def _write(self, action: Callable[..., T], knock: Knock) -> Pending[T]:
        return self._parts.store.write(action, self._parts, knock, moment=self._parts.moment())


def come_in(
    tx: Tx, parts: EngineContext, knock: Knock, *, moment: Moment
) -> tuple[Received, Beginning]:
    """Let a message in, and begin its turn with it if none is running."""
    received = let_in(tx, parts, knock, moment=moment)
    if not received.new or received.answer is not None:
        return received, Beginning(None)
    return received, begin(tx, parts.key(knock.source), parts=parts, moment=moment)


def let_in(tx: Tx, parts: EngineContext, knock: Knock, *, moment: Moment) -> Received:
    """Take a message in with the bytes that it names; nothing of a stranger is kept."""
    if knock.files and may_enter(tx, parts, knock.source):
        for data in knock.files:
            blobs.hold(tx, data)
    idem, code = knock.idem, knock.code
    return take_in(tx, parts, knock.source, knock.message, idem=idem, code=code, moment=moment)


def take_in(
    tx: Tx,
    parts: EngineContext,
    source: Source,
    said: Message,
    *,
    idem: str | None,
    code: str,
    moment: Moment,
    vouched: bool = False,
) -> Received:
    """One transaction: the check at the door, the inbox row, and a command's effect with it.

    `vouched`: someone who may do so lets this message in.
    """
    check_person(source.person)
    if not vouched and not may_enter(tx, parts, source):
        return _turn_away(tx, parts, source, code=code, moment=moment)
    key = parts.key(source)
    arrival, new = receive.receive(tx, key, source, said, moment=moment, idem=idem)
    command = verbs.find(said.text)
    if command is None:
        if new and parts.settings.while_running is WhileRunning.INTERRUPT:
            _interrupt(tx, key)
        return Received(arrival.id, new)
    if not new:
        return Received(arrival.id, new=False)
    result = verbs.carry_out(tx, parts, command, key, source, moment=moment)
    tx.run("answer_arrival", no=arrival.no, reason=f"/{command.name}")
    _reply(tx, parts, source, result.text, moment=moment)
    return Received(arrival.id, True, result.follow_up, result.text)


def _interrupt(tx: Tx, key: SessionKey) -> None:
    """Ask the turn that runs, in whatever process, to make way for the newer message."""
    head = routing.current(tx, key)
    if head is not None and head.running:
        turns.ask_to_stop(tx, head.no, reason=notices.NEWER_MESSAGE)


def may_enter(tx: Tx, parts: EngineContext, source: Source) -> bool:
    """Allow or refuse; what is not configured is refused."""
    if source.platform in TRUSTED:
        return True
    door: Door = parts.settings.door(source.platform)
    if door.everyone:
        return True
    person = source.person
    if person is None:
        return False
    if {person.id, person.stable_id} & door.allow:
        return True
    return access.is_permitted(tx, source.platform, person, profile=parts.profile)


def _turn_away(
    tx: Tx, parts: EngineContext, source: Source, *, code: str, moment: Moment
) -> Received:
    """A stranger in a group gets no answer at all; in a direct message perhaps a code."""
    person = source.person
    door = parts.settings.door(source.platform)
    pairs = door.strangers is Strangers.PAIR and source.chat_type == ChatType.DM
    if person is None or not pairs:
        return Received(None, False)
    if access.ask(tx, source.platform, person, profile=parts.profile, code=code, moment=moment):
        _reply(tx, parts, source, notices.pairing(code), moment=moment)
    return Received(None, False)


def _reply(tx: Tx, parts: EngineContext, source: Source, text: str, *, moment: Moment) -> None:
    channel = source.channel
    if channel is not None and source.platform in parts.deliverable:
        deliver.enqueue(tx, channel, (Text(text),), profile=parts.profile, moment=moment)
