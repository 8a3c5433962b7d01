"""Shows one session to an editor as it goes on: text as it streams, and everything that is stored, in order.

Everything that is shown comes from here: the answer to the editor's own prompt, a turn that was begun in the workbench,
and one that goes on after a crash. What has streamed is not shown again when it is stored.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.acp import choices
from sessionary.acp.questions import Editor, QuestionAsker
from sessionary.actions import files as file_actions
from sessionary.actions import questions as question_actions
from sessionary.actions.question_arrivals import find_turn_id
from sessionary.actions.sessions import read
from sessionary.engine import notices
from sessionary.engine.context import EngineContext, LiveEvent
from sessionary.errors import NotFound, RetryLater, StoreUnavailable
from sessionary.formats.acp_updates import (
    MOST_FILE_BYTES,
    MessageReader,
    agent_text,
    is_shown_file,
    thought,
)
from sessionary.formats.coerce import Json
from sessionary.model.choice import chosen_in
from sessionary.model.message import Attachment, Entry, Message, Part, Reasoning, Role, Text
from sessionary.model.question import Question
from sessionary.model.session import SessionHead
from sessionary.model.source import WEB, Person
from sessionary.model.transcript import RECORD
from sessionary.model.turn import Arrival, ArrivalState, Turn, TurnState
from sessionary.model.usage import UsageTotal
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, turns

log = logging.getLogger(__name__)

PAGE = 50
# The bytes of attachments that one page may have; the rest are only named.
_PAGE_BYTES = 2 * MOST_FILE_BYTES
_NEWEST = 2**62
QUIET = "quiet"


class PromptResult(Struct, frozen=True):
    """How the turn of a prompt ended, why, and what the session has used until then."""

    state: str
    reason: str | None = None
    # Whether somebody stopped it.
    was_stopped: bool = False
    finish_reason: str | None = None
    usage: UsageTotal = UsageTotal()


class Seen(Struct, frozen=True):
    """What a look at the session has found after an entry."""

    head: SessionHead
    entries: tuple[Entry, ...]
    files: Mapping[str, bytes]
    # Whether there is more to read.
    has_more: bool
    # The arrivals of the editor's prompts, each with its turn.
    prompts: Mapping[str, tuple[Arrival, Turn | None]]
    # The turn that was running before, as it is now; the open questions of the running one.
    before: Turn | None
    questions: tuple[Question, ...]


@dataclass(slots=True)
class _Streamed:
    """What has been shown of a message of the agent that is not stored yet."""

    turn_id: str = ""
    number: int = 0
    text: str = ""
    thoughts: str = ""

    @property
    def id(self) -> str:
        """The id of the message for the editor."""
        return f"{self.turn_id}-{self.number}"

    def next_message(self) -> None:
        """Note that the message is stored: what streams from now on is another one."""
        self.number += 1
        self.text = self.thoughts = ""


@dataclass(slots=True)
class _Prompt:
    """A prompt of the editor that waits for its answer."""

    arrival_id: str
    done: "asyncio.Future[PromptResult]"
    finish_reason: str | None = field(default=None)


class SessionView:
    """One session that an editor has open; it is shown from the moment it is made."""

    def __init__(
        self,
        context: EngineContext,
        editor: Editor,
        head: SessionHead,
        *,
        shown_as: str,
        directory: str,
        person: Person,
    ) -> None:
        """`shown_as` is the session's id in the editor; relative paths of tool calls begin in the `directory`."""
        self._context = context
        self._editor = editor
        self.session_id = head.id
        self._no = head.no
        self._shown_as = shown_as
        self._directory = directory
        # The last entry that was shown, or that needs not to be.
        self._seq = head.last_seq
        self._reader = MessageReader(directory)
        self._asker = QuestionAsker(
            context, editor, session_id=shown_as, reader=self._reader, person=person
        )
        self._streamed = _Streamed()
        self._prompts: dict[str, _Prompt] = {}
        # The entries that are the editor's own prompts: it shows them itself.
        self._own: set[int] = set()
        self._running = head.running_turn
        self._title: str | None = None
        self._chosen = chosen_in(head.settings)
        self._context_tokens = head.context_tokens
        # While it is held, nothing is shown.
        self.lock = asyncio.Lock()
        self._listening = ExitStack()
        self._events = self._listening.enter_context(context.bus.listen(head.id, length=0))
        self._backlog: deque[LiveEvent] = deque()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Show nothing more; prompts that wait get no answer."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._listening.close()  # the task may not have begun
        await self._asker.close()
        for prompt in self._prompts.values():
            prompt.done.cancel()

    async def settled(self, *, seconds: float) -> None:
        """Wait until all prompts are answered, for some time."""
        waiting = [each.done for each in self._prompts.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    @property
    def waiting_prompts(self) -> list[str]:
        """The arrivals of the prompts that have no answer yet."""
        return list(self._prompts)

    async def replay(self) -> None:
        """Show the whole session from its beginning, as far as it has been shown; retracted messages are left out."""
        async with self.lock:
            reader = self._reader
            reader.open_calls.clear()
            after, has_more = 0, True
            while has_more:
                entries, files, has_more = await self._context.store.read(
                    read_page, self.session_id, self._context, after=after, through=self._seq
                )
                for entry in entries:
                    after = entry.seq
                    await self._try_to_show(entry, files, is_replay=True)
            if self._streamed.thoughts:
                await self._update(thought(self._streamed.thoughts, id=self._streamed.id))
            if self._streamed.text:
                await self._update(agent_text(self._streamed.text, id=self._streamed.id))
            await self._tell_last_end()
        self.wake()

    def add_prompt(self, arrival_id: str) -> "asyncio.Future[PromptResult]":
        """Return what will be the result of a prompt that was stored."""
        done: asyncio.Future[PromptResult] = asyncio.get_running_loop().create_future()
        self._prompts[arrival_id] = _Prompt(arrival_id, done)
        self.wake()
        return done

    def wake(self) -> None:
        """Look at the session now."""
        self._events.put_nowait(LiveEvent(self.session_id, "", QUIET))

    async def tell(self, text: str) -> None:
        """Show a text of ours as a message of the agent."""
        await self._update(agent_text(text))

    async def _run(self) -> None:
        with self._listening:  # a view that is closed listens no more
            await self._show_events()

    async def _show_events(self) -> None:
        while True:
            live = await self._next()
            try:
                async with self.lock:
                    await self._handle(live)
            except (RetryLater, StoreUnavailable) as error:
                log.warning("session %s cannot be read now: %s", self.session_id, error)
            except NotFound as error:  # it was purged
                self._fail_prompts(str(error))
                return
            except ConnectionError:  # the editor has gone
                return
            except Exception:
                log.exception("session %s cannot be shown", self.session_id)
                self._fail_prompts("What was answered could not be shown; it is stored.")

    async def _next(self) -> LiveEvent:
        """Return the next event of this process; another process may write without one."""
        self._take_events()
        if self._backlog:
            return self._backlog.popleft()
        try:
            async with asyncio.timeout(self._context.settings.poll_seconds):
                return await self._events.get() or LiveEvent(self.session_id, "", QUIET)
        except TimeoutError:
            return LiveEvent(self.session_id, "", QUIET)

    def _take_events(self) -> None:
        """Take the events that are there into the backlog, where it is seen which turns they are of."""
        while not self._events.empty():
            live = self._events.get_nowait()
            if live is not None:
                self._backlog.append(live)

    async def _handle(self, live: LiveEvent) -> None:
        match live.kind:
            case "delta" | "thinking":
                await self._stream(live)
            case "began":
                await self._look(begun=live.turn_id)
            case "step":
                await self._look(through=live.seq or 0)
            case "ended" | "lost":
                await self._look(ended=live.turn_id)
            case _:
                await self._look()

    async def _stream(self, live: LiveEvent) -> None:
        streamed, text = self._streamed, str(live.data)
        if streamed.turn_id != live.turn_id:
            streamed = self._streamed = _Streamed(live.turn_id)
        if live.kind == "thinking":
            streamed.thoughts += text
            await self._update(thought(text, id=streamed.id))
        else:
            streamed.text += text
            await self._update(agent_text(text, id=streamed.id))

    async def _look(
        self, *, through: int = 0, ended: str | None = None, begun: str | None = None
    ) -> None:
        """Show what was stored, and what became of prompts and questions.

        What turns in this process write is shown when they say so, after what has streamed of it: up to the entry
        `through`, of the turn that has `ended`, and of one that has `begun` here again what it had written before.
        """
        context = self._context
        held_back: str | None = None
        while True:
            seen = await context.store.read(
                look,
                self.session_id,
                context,
                after=self._seq,
                prompts=tuple(self._prompts),
                before=self._running,
            )
            for arrival, _ in seen.prompts.values():
                if arrival.seq is not None and arrival.session_id == self.session_id:
                    self._own.add(arrival.seq)
            # Read after the store: turns that run here, and those of which something is still to be told.
            self._take_events()
            busy = context.running | {each.turn_id for each in self._backlog}
            continued = [each.seq for each in seen.entries if begun and _continues(each, begun)]
            limit = max([through, *continued])
            for entry in seen.entries:
                if ended is not None and ended in busy and _continues(entry, ended):
                    ended = None  # it goes on already, which the next events tell
                is_due = entry.seq <= limit or entry.turn_id == ended
                if _is_of_agent(entry) and entry.turn_id in busy and not is_due:
                    held_back = entry.turn_id
                    break
                await self._try_to_show(entry, seen.files)
                self._seq = entry.seq
                self._own.discard(entry.seq)
            if held_back is not None or not seen.has_more:
                break
        await self._show_state(seen, held_back)

    async def _try_to_show(
        self, entry: Entry, files: Mapping[str, bytes], *, is_replay: bool = False
    ) -> None:
        """Show one entry of the log; one that cannot be shown does not keep those after it from being shown."""
        try:
            await self._show(entry, files, is_replay=is_replay)
        except ConnectionError:
            raise
        except Exception:
            log.exception("entry %s cannot be shown", entry.id)

    async def _show(
        self, entry: Entry, files: Mapping[str, bytes], *, is_replay: bool = False
    ) -> None:
        """Show one entry of the log."""
        body = entry.body
        if not isinstance(body, Message):
            return
        id = entry.id
        if body.role is Role.USER and entry.seq in self._own and not is_replay:
            return
        if body.role is Role.SYSTEM:
            record = body.extra.get(RECORD)
            if isinstance(record, Mapping) and record.get("kind") == "refused":
                await self._update(agent_text(body.text, id=id))
            return
        if body.role is Role.ASSISTANT and not is_replay:
            for prompt in self._prompts.values():
                prompt.finish_reason = body.finish_reason
            if entry.turn_id == self._streamed.turn_id:
                body, id = _without(body, self._streamed), self._streamed.id
                self._streamed.next_message()
        for update in self._reader.updates(body, entry.seq, id=id, files=files):
            await self._update(update)

    async def _show_state(self, seen: Seen, held_back: str | None) -> None:
        """Show what changed besides the log, and answer the prompts that are done."""
        head = seen.head
        if head.shown_title != self._title:
            self._title = head.shown_title
            updated_at = time_text(head.last_active_at)
            update: Json = {"sessionUpdate": "session_info_update", "title": self._title}
            await self._update({**update, "updatedAt": updated_at})
        chosen = chosen_in(head.settings)
        if chosen != self._chosen:
            self._chosen = chosen
            await self.show_choices(chosen)
        if head.context_tokens != self._context_tokens and not head.running:
            self._context_tokens = head.context_tokens
            usage = self._describe_usage(head)
            if usage is not None:
                await self._update(usage)
        mine = {turn.id for _, turn in seen.prompts.values() if turn is not None}
        if seen.before is not None and seen.before.is_over and held_back != seen.before.id:
            if seen.before.id not in mine:
                await self._tell_end(seen.before)
            self._running = None
        if head.running_turn is not None:
            self._running = head.running_turn
        await self._asker.show(seen.questions)
        for id, (arrival, turn) in seen.prompts.items():
            result = _result_of(arrival, turn)
            is_held_back = turn is not None and held_back == turn.id
            if result is not None and not is_held_back and id in self._prompts:
                prompt = self._prompts.pop(id)
                if not prompt.done.done():
                    found = replace(result, finish_reason=prompt.finish_reason, usage=head.usage)
                    prompt.done.set_result(found)

    async def show_choices(self, chosen: Mapping[str, Any]) -> None:
        """Show which agent, model and persona the session has."""
        catalog = self._context.catalog
        options = choices.describe_options(catalog, chosen)
        await self._update({"sessionUpdate": "config_option_update", "configOptions": options})
        modes = choices.describe_modes(catalog, chosen)
        if modes is not None:
            mode = modes["currentModeId"]
            await self._update({"sessionUpdate": "current_mode_update", "currentModeId": mode})

    def _describe_usage(self, head: SessionHead) -> Json | None:
        """Return how full the model's window is; None if the window is not known."""
        catalog = self._context.catalog
        offer = catalog.offer(head.settings, platform=WEB)
        name = offer.name if offer is not None else catalog.only
        window = offer.window if offer is not None else None
        window = window or (None if name is None else catalog.known_window(name))
        if window is None or not head.context_tokens:
            return None
        update: Json = {
            "sessionUpdate": "usage_update",
            "used": head.context_tokens,
            "size": window,
        }
        cost = head.usage.cost_microusd
        return (
            update
            if cost is None
            else {**update, "cost": {"amount": cost / 1e6, "currency": "USD"}}
        )

    async def _tell_end(self, turn: Turn) -> None:
        """Tell that a turn did not finish, if it did not."""
        if turn.state in (TurnState.FAILED, TurnState.INTERRUPTED) and turn.stop is None:
            await self.tell(notices.unfinished(turn.state, turn.reason))

    async def _tell_last_end(self) -> None:
        found = await self._context.store.read(turns.list_page, self._no, before=_NEWEST, limit=1)
        for _, turn, _ in found:
            await self._tell_end(turn)

    def _fail_prompts(self, reason: str) -> None:
        for id in list(self._prompts):
            prompt = self._prompts.pop(id)
            if not prompt.done.done():
                prompt.done.set_result(PromptResult(str(TurnState.FAILED), reason))

    async def _update(self, update: Json) -> None:
        await self._editor.update(self._shown_as, update)


def look(
    tx: Tx,
    session_id: str,
    context: EngineContext,
    *,
    after: int,
    prompts: Iterable[str],
    before: str | None,
) -> Seen:
    """Return a page of what a session has after an entry, and what became of prompts and questions."""
    profile = context.profile
    head = read.get_head(tx, session_id, profile=profile)
    page: list[Entry] = []
    if head.last_seq > after:
        page = read.read_log(tx, session_id, profile=profile, after=after, limit=PAGE)
    found = {}
    for id in prompts:
        arrival = arrivals.get(tx, id, profile=profile)
        if arrival is not None:
            turn_id = find_turn_id(tx, arrival, profile=profile)
            found[id] = arrival, _get_turn(tx, turn_id, profile=profile)
    asked = [] if head.running_turn is None else question_actions.of_turn(tx, head.running_turn)
    return Seen(
        head,
        tuple(page),
        _read_files(tx, head, page),
        len(page) == PAGE,
        found,
        _get_turn(tx, before, profile=profile),
        tuple(each for each in asked if each.is_open),
    )


def read_page(
    tx: Tx, session_id: str, context: EngineContext, *, after: int, through: int
) -> tuple[Sequence[Entry], Mapping[str, bytes], bool]:
    """Return a page of the transcript with the files to show, and whether there is more up to an entry."""
    profile = context.profile
    head = read.get_head(tx, session_id, profile=profile)
    window = read.read_window(tx, session_id, profile=profile, after=after, limit=PAGE)
    entries = [entry for entry in window.entries if entry.seq <= through]
    has_more = window.more_after and len(entries) == len(window.entries)
    return entries, _read_files(tx, head, entries), has_more


def _is_of_agent(entry: Entry) -> bool:
    return isinstance(entry.body, Message) and entry.body.role in (Role.ASSISTANT, Role.TOOL)


def _continues(entry: Entry, turn_id: str) -> bool:
    """Whether an entry records that a turn was continued."""
    record = entry.body.extra.get(RECORD) if isinstance(entry.body, Message) else None
    is_record = isinstance(record, Mapping) and record.get("kind") == "resumed"
    return is_record and entry.turn_id == turn_id


def _get_turn(tx: Tx, id: str | None, *, profile: str) -> Turn | None:
    found = None if id is None else turns.get(tx, id, profile=profile)
    return None if found is None else found[0]


def _read_files(tx: Tx, head: SessionHead, entries: Iterable[Entry]) -> dict[str, bytes]:
    """Return the bytes of the attachments that are shown, as far as they are not too many."""
    found: dict[str, bytes] = {}
    left = _PAGE_BYTES
    for entry in entries:
        parts: Sequence[Part] = entry.body.parts if isinstance(entry.body, Message) else ()
        for part in parts:
            if not isinstance(part, Attachment) or not is_shown_file(part) or part.blob in found:
                continue
            if (part.size or MOST_FILE_BYTES) > left:
                continue
            try:
                found[part.blob] = file_actions.read_blob(tx, part.blob, session_no=head.no)
            except NotFound:
                continue
            left -= len(found[part.blob])
    return found


def _result_of(arrival: Arrival, turn: Turn | None) -> PromptResult | None:
    """Return how a prompt was answered; None while it is not."""
    if arrival.state is ArrivalState.REFUSED:
        return PromptResult(str(ArrivalState.REFUSED), arrival.reason)
    if turn is None or not turn.is_over:
        return None
    return PromptResult(str(turn.state), turn.reason, turn.stop is not None)


def _without(message: Message, streamed: _Streamed) -> Message:
    """Return a message of the agent without what was shown of it as it streamed."""
    parts = [part for part in message.parts if not isinstance(part, Text | Reasoning)]
    thoughts = "\n".join(part.text for part in message.parts if isinstance(part, Reasoning))
    words = _rest(message.text, streamed.text)
    rest = _rest(thoughts, streamed.thoughts)
    made: list[Part] = []
    if rest:
        made.append(Reasoning(rest))
    if words:
        made.append(Text(words))
    return replace(message, parts=(*made, *parts))


def _rest(text: str, streamed: str) -> str:
    """Return what follows the streamed beginning of a text; spaces between its parts do not count."""
    if not streamed:
        return text
    if text.startswith(streamed):
        return text[len(streamed) :]
    at = 0
    for char in streamed:
        if char.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != char:
            return f"\n\n{text}"  # something else was stored than has streamed: it is shown whole
        at += 1
    return text[at:].strip()
