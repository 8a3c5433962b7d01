"""Sessions of the OpenAI Agents SDK.

session = SessionarySession("alice", client)
await Runner.run(agent, "Hello", session=session)

A run that stops for approvals can wait for them in a turn of the program: see `park_run` and `resume_run`. A program
that asks people itself stores the run with the session: see `SessionarySession.save_run` and `load_run`.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from sessionary.actions import turns
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment, to_micros
from sessionary.errors import BadInput, Conflict, SessionaryError, TurnLost
from sessionary.formats import openai_items
from sessionary.formats.parts import Content
from sessionary.integrations import parked_runs, thread
from sessionary.integrations.base import (
    NewFiles,
    SessionaryClient,
    parts_of,
    read_nothing,
    require_extra,
    wait_for_write,
)
from sessionary.integrations.parked_runs import PendingCall, ProgramTurn
from sessionary.integrations.thread import ExternalThread
from sessionary.model import codec
from sessionary.model.message import Entry, Message, Part, Reasoning, Role
from sessionary.model.question import Question, outcome_text
from sessionary.model.source import Person
from sessionary.model.transcript import chats_of
from sessionary.model.turn import Lease, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import checkpoints as stored_runs

with require_extra("openai-agents", "The storage for the OpenAI Agents SDK"):
    from agents.memory import SessionSettings
    from agents.run_state import SUPPORTED_SCHEMA_VERSIONS
    from agents.usage import RequestUsage

    from agents import (
        Agent,
        RunContextWrapper,
        RunResult,
        RunResultStreaming,
        RunState,
        ToolApprovalItem,
    )
logger = logging.getLogger(__name__)
PLATFORM = "openai-agents"
LEASE_SECONDS = 60.0
Item = dict[str, Any]
NATIVE = "openai-agents"


@dataclass(frozen=True, slots=True)
class About:
    """What a run's context says about it: whose it is, and which model answers."""

    profile: str | None = None
    person: Person | None = None
    model: str | None = None


_NOTHING = About()


@dataclass(frozen=True, slots=True)
class _Turn:
    """The turn of an exclusive session, and the task that keeps its lease."""

    lease: Lease
    profile: str
    renewing: "asyncio.Task[None]"


@dataclass(frozen=True, slots=True)
class _Row:
    """An item, and the entry that it stands in."""

    entry: Entry
    item: Item


@dataclass(frozen=True, slots=True)
class _Latest:
    """The latest items of a session; `complete` when there are no earlier ones."""

    rows: list[_Row]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the SDK's compaction reads: its own class of this form is private."""

    items: list[Item]
    complete: bool
    replace_suffix: Callable[[int, list[Item]], Awaitable[bool]]


@dataclass(slots=True)
class _Run:
    """What of a run's model calls is in the ledger."""

    name: str
    counted: int = 0


class SessionarySession:
    """A session of the SDK. `about` reads tenant, person and model from a run's own context.

    With `exclusive=True` it is used in `async with`: the block takes a turn, and until it is left
    nobody else writes to the session.
    """

    def __init__(
        self,
        session_id: str,
        client: SessionaryClient,
        *,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        model: str | None = None,
        about: Callable[[Any], About] | None = None,
        exclusive: bool = False,
    ) -> None:
        self._source = thread.source_for(PLATFORM, session_id)
        self.session_id = session_id
        self.session_settings = session_settings
        self._exclusive = exclusive
        self._turn: _Turn | None = None
        self._client = client
        self._model = model
        self._about = about
        self._last: tuple[About, str | None, ExternalThread] | None = None
        self._runs: WeakKeyDictionary[Any, _Run] = WeakKeyDictionary()

    @property
    def session_settings(self) -> SessionSettings | None:
        return self._settings

    @session_settings.setter
    def session_settings(self, given: SessionSettings | Mapping[str, Any] | None) -> None:
        self._settings = _settings_of(given)

    async def __aenter__(self) -> Self:
        if self._exclusive:
            if self._turn is not None:
                raise Conflict("A run is using this session object already; wait for its end.")
            client = self._client
            where = self._thread(_NOTHING)
            lease = await wait_for_write(
                client.store.write(
                    thread.begin_turn,
                    where,
                    holder=client.holder,
                    seconds=LEASE_SECONDS,
                    note=f"{PLATFORM}:opened",
                    moment=client.moment(),
                )
            )
            self._turn = _Turn(lease, where.profile, asyncio.create_task(self._renew(lease)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        turn.renewing.cancel()
        await asyncio.wait([turn.renewing])
        write, moment = self._client.store.write, self._client.moment()
        if error is None:
            ending = turns.Ending()
            await wait_for_write(
                write(turns.end, turn.lease, ending, profile=turn.profile, moment=moment)
            )
            return
        state = TurnState.FAILED if isinstance(error, Exception) else TurnState.INTERRUPTED
        reason = f"{type(error).__name__}: {error}"
        await wait_for_write(
            write(
                turns.end_failed,
                turn.lease,
                state=state,
                reason=reason,
                profile=turn.profile,
                moment=moment,
            )
        )

    async def _renew(self, lease: Lease) -> None:
        """Keep the lease while the block runs. Once it is lost, the next write raises `TurnLost`."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            now = self._client.moment().now
            try:
                await self._client.store.write(turns.renew, lease, seconds=LEASE_SECONDS, now=now)
            except TurnLost as error:
                logger.warning("The turn in session %s was lost: %s", lease.session_id, error)
                return
            except SessionaryError as error:
                logger.warning(
                    "The lease of session %s is not renewed: %s", lease.session_id, error
                )

    def _lease(self, where: ExternalThread) -> Lease | None:
        """The lease to write with; an exclusive session is written to only inside its block."""
        if not self._exclusive:
            return None
        if self._turn is None:
            raise BadInput(
                "An exclusive session is used in a block: `async with session:` around the run."
            )
        if self._turn.profile != where.profile:
            raise BadInput("An exclusive session stays in its client's profile.")
        return self._turn.lease

    async def get_items(
        self, limit: int | None = None, *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> list[Any]:
        """Return the latest `limit` items of the conversation, in order.

        As in the SDK's own sessions, a negative limit is no limit.
        """
        if wrapper is not None and wrapper not in self._runs:
            # What a run that is resumed has used before is in the ledger already.
            self._run(wrapper).counted = len(wrapper.usage.request_usage_entries)
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        where = self._thread(self._facts(wrapper))
        self._lease(where)
        if limit is not None and limit < 0:
            limit = None
        return await self._client.store.read(_items, where, limit=limit)

    async def add_items(
        self, items: list[Any], *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> None:
        """Append items, all or none; they are durable when this returns."""
        if not items:
            await self._client.store.read(read_nothing)
            return
        facts = self._facts(wrapper)
        model = facts.model or self._model
        files = NewFiles()
        new_messages = [message_of(item, files, model=model_of(item) or model) for item in items]
        model = model or next((one.model for one in reversed(new_messages) if one.model), None)
        calls, counted = self._calls(wrapper, model)
        where = self._thread(facts, model=model)
        await wait_for_write(
            self._client.store.write(
                _add,
                where,
                [NewMessage(one) for one in new_messages],
                files=files,
                calls=calls,
                moment=self._client.moment(),
                lease=self._lease(where),
            )
        )
        if wrapper is not None:
            self._run(wrapper).counted = counted

    async def pop_item(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> Any:
        """Retract and return the newest item; None if there is none."""
        where = self._thread(self._facts(wrapper))
        moment, lease = self._client.moment(), self._lease(where)
        return await wait_for_write(
            self._client.store.write(_pop, where, moment=moment, lease=lease)
        )

    async def clear_session(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> None:
        """Retract all messages; they stay in the log."""
        where = self._thread(self._facts(wrapper))
        moment, lease = self._client.moment(), self._lease(where)
        await wait_for_write(
            self._client.store.write(thread.clear, where, moment=moment, lease=lease)
        )

    async def save_run(
        self,
        run: "RunState[Any, Agent[Any]] | RunResult | RunResultStreaming",
        *,
        context_serializer: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        """Store a run with the session, in the place of an earlier one, so that any process can go on with it.

        `context_serializer` is for a run whose context is no mapping, as in the SDK's `RunState.to_json`.
        """
        state = run if isinstance(run, RunState) else run.to_state()
        told = {
            "version": version("openai-agents"),
            "run": state.to_json(context_serializer=context_serializer),
        }
        where = self._thread(self._facts(state._context))
        await wait_for_write(
            self._client.store.write(
                _save_run,
                where,
                json.dumps(told),
                moment=self._client.moment(),
                lease=self._lease(where),
            )
        )

    async def load_run(
        self,
        agent: "Agent[Any]",
        *,
        wrapper: "RunContextWrapper[Any] | None" = None,
        context_override: "Mapping[str, Any] | RunContextWrapper[Any] | None" = None,
        context_deserializer: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> "RunState[Any, Agent[Any]] | None":
        """Return the run that is stored with the session; None if there is none.

        It stays stored until `save_run` replaces it or `delete_run` deletes it. A session with `about` needs the
        context of the run as `wrapper`. The last two parameters are those of the SDK's `RunState.from_json`. Raise
        `BadInput` if a version of the SDK stored it that this one cannot read.
        """
        where = self._thread_of_run(wrapper)
        self._lease(where)
        text = await self._client.store.read(_load_run, where)
        if text is None:
            return None
        told = json.loads(text)
        return await _read_run(
            agent,
            told["run"],
            stored_by=told["version"],
            context_override=context_override,
            context_deserializer=context_deserializer,
        )

    async def delete_run(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> bool:
        """Delete the run that is stored with the session; say whether there was one.

        A session with `about` needs the context of the run as `wrapper`.
        """
        where = self._thread_of_run(wrapper)
        moment, lease = self._client.moment(), self._lease(where)
        return await wait_for_write(
            self._client.store.write(_delete_run, where, moment=moment, lease=lease)
        )

    # What the SDK's `OpenAIResponsesCompactionSession` asks of the session it wraps, so that a
    # compaction replaces items in one transaction.

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace all items."""
        where = self._thread(_NOTHING)
        files = NewFiles()
        new_messages = [NewMessage(message_of(item, files, model=model_of(item))) for item in items]
        moment, lease = self._client.moment(), self._lease(where)
        write = self._client.store.write
        await wait_for_write(
            write(_replace_all, where, new_messages, files=files, moment=moment, lease=lease)
        )
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> "_Snapshot | None":
        """The latest items, and a function that replaces the last of them if nothing has changed."""
        if prune_prefix is not None:
            return None  # the SDK's encrypted sessions; they then replace everything
        where = self._thread(_NOTHING)
        found = await self._client.store.read(_latest, where, limit=limit)

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            files = NewFiles()
            new_messages = [
                NewMessage(message_of(item, files, model=model_of(item))) for item in output
            ]
            moment, lease = self._client.moment(), self._lease(where)
            write = self._client.store.write
            return await wait_for_write(
                write(
                    _replace_suffix,
                    where,
                    found.rows,
                    start,
                    new_messages,
                    files=files,
                    moment=moment,
                    lease=lease,
                )
            )

        items = [row.item for row in found.rows]
        return _Snapshot(items, found.complete, replace_suffix)

    def _facts(self, wrapper: "RunContextWrapper[Any] | None") -> About:
        if wrapper is None or self._about is None:
            return _NOTHING
        return self._about(wrapper.context)

    def _thread(self, facts: About, *, model: str | None = None) -> ExternalThread:
        known = self._last
        if known is not None and known[:2] == (facts, model):
            return known[2]
        source, person = self._source, facts.person
        if person is not None:
            source = thread.source_for(
                PLATFORM, self.session_id, user_id=person.id, user_name=person.name
            )
        made = ExternalThread(facts.profile or self._client.profile, source, model=model)
        self._last = (facts, model, made)
        return made

    def _thread_of_run(self, wrapper: "RunContextWrapper[Any] | None") -> ExternalThread:
        """Where a run is stored; without its context it could be taken for the run of another profile."""
        if self._about is not None and wrapper is None:
            raise BadInput(
                "A session with `about` finds a run by its context: give it as "
                "wrapper=RunContextWrapper(context)."
            )
        return self._thread(self._facts(wrapper))

    def _run(self, wrapper: "RunContextWrapper[Any]") -> _Run:
        if wrapper not in self._runs:
            self._runs[wrapper] = _Run(self._client.moment().new_id())
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
        priced = [self._client.priced(call, at=None) for call in calls]
        return [call for call in priced if call is not None], len(made)


def _items(tx: Tx, where: ExternalThread, *, limit: int | None) -> list[Item]:
    if limit is not None and limit <= 0:
        return []
    found = thread.native_messages(tx, where, NATIVE, item_in, limit=limit)
    given = [
        items_of(thread.entry_message(each)) if isinstance(each, Entry) else [each]
        for each in found
    ]
    items = [item for each in given for item in each]
    return items if limit is None else items[-limit:]


def _add(
    tx: Tx,
    where: ExternalThread,
    new_messages: Sequence[NewMessage],
    *,
    files: NewFiles,
    calls: Sequence[Usage],
    moment: Moment,
    lease: Lease | None,
) -> None:
    files.keep(tx)
    thread.append(tx, where, new_messages, moment=moment, lease=lease)
    thread.record_usage(tx, where, calls, moment=moment)


def _save_run(
    tx: Tx, where: ExternalThread, run: str, *, moment: Moment, lease: Lease | None
) -> None:
    _hold(tx, lease, moment=moment)
    head = thread.get_or_open(tx, where, moment=moment, note=f"{PLATFORM}:run")
    stored_runs.put_run(tx, head.no, PLATFORM, run, at=to_micros(moment.now))


def _load_run(tx: Tx, where: ExternalThread) -> str | None:
    head = thread.find_session(tx, where)
    return None if head is None else stored_runs.get_run(tx, head.no, PLATFORM)


def _delete_run(tx: Tx, where: ExternalThread, *, moment: Moment, lease: Lease | None) -> bool:
    _hold(tx, lease, moment=moment)
    head = thread.lock_session(tx, where)
    return head is not None and stored_runs.delete_run(tx, head.no, PLATFORM)


def _hold(tx: Tx, lease: Lease | None, *, moment: Moment) -> None:
    """Raise `TurnLost` if somebody else has taken over an exclusive session."""
    if lease is not None:
        turns.renew(tx, lease, seconds=LEASE_SECONDS, now=moment.now)


def _pop(tx: Tx, where: ExternalThread, *, moment: Moment, lease: Lease | None) -> Item | None:
    thread.lock_session(tx, where)
    while found := thread.visible_entries(tx, where, limit=1):
        thread.retract_from(tx, where, found[0], moment=moment, lease=lease)
        items = items_of(thread.entry_message(found[0]))
        if items:
            # A message that did not come from the SDK may be several items: the others stay.
            others = [NewMessage(message_of(item, NewFiles())) for item in items[:-1]]
            thread.append(tx, where, others, moment=moment, lease=lease)
            return items[-1]
    return None


def _replace_all(
    tx: Tx,
    where: ExternalThread,
    new_messages: Sequence[NewMessage],
    *,
    files: NewFiles,
    moment: Moment,
    lease: Lease | None,
) -> None:
    thread.clear(tx, where, moment=moment, lease=lease)
    files.keep(tx)
    thread.append(tx, where, new_messages, moment=moment, lease=lease)


def _latest(tx: Tx, where: ExternalThread, *, limit: int) -> _Latest:
    found = thread.visible_entries(tx, where, limit=limit + 1)
    rows = [_Row(entry, item) for entry in found for item in items_of(thread.entry_message(entry))]
    return _Latest(rows[-limit:], complete=len(found) <= limit and len(rows) <= limit)


def _replace_suffix(
    tx: Tx,
    where: ExternalThread,
    rows: Sequence[_Row],
    start: int,
    new_messages: Sequence[NewMessage],
    *,
    files: NewFiles,
    moment: Moment,
    lease: Lease | None,
) -> bool:
    """Put messages in place of the rows from `start` on; False when these are no longer the last."""
    expected = rows[start:]
    if not expected or thread.lock_session(tx, where) is None:
        return False
    first = expected[0].entry
    named = list(dict.fromkeys((row.entry.session_id, row.entry.seq) for row in expected))
    last = thread.visible_entries(tx, where, limit=len(named))
    if [(entry.session_id, entry.seq) for entry in last] != named:
        return False
    # A message that did not come from the SDK may be several items: those before `start` stay.
    kept = items_of(thread.entry_message(first))[
        : -sum(row.entry.seq == first.seq for row in expected)
    ]
    thread.retract_from(tx, where, first, moment=moment, reason="compaction", lease=lease)
    files.keep(tx)
    staying = [NewMessage(message_of(item, NewFiles())) for item in kept]
    thread.append(tx, where, [*staying, *new_messages], moment=moment, lease=lease)
    return True


def _settings_of(given: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
    """The SDK's settings, also out of a dictionary; unknown names and wrong values are refused."""
    if isinstance(given, SessionSettings):
        return given
    if given is None:
        return SessionSettings()
    if not isinstance(given, Mapping):
        raise BadInput(f"session_settings is a SessionSettings or a dict, not {given!r}.")
    known = [each.name for each in fields(SessionSettings)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise BadInput(
            f"session_settings has no {', '.join(map(repr, unknown))}; it has {', '.join(known)}."
        )
    try:
        return SessionSettings(**given)
    except ValueError as error:
        raise BadInput(f"session_settings cannot be used: {given!r}.") from error


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


def message_of(item: Mapping[str, Any], files: NewFiles, *, model: str | None = None) -> Message:
    """An item as a message that people read, with the item itself beside it, to the letter."""
    role, parts = _readable(item, files)
    return Message(
        role,
        parts,
        model=model if role is Role.ASSISTANT else None,
        extra={NATIVE: json.dumps(item)},
    )


def items_of(message: Message) -> list[Item]:
    """The item as it came; of a message that came another way, the items that say the same."""
    found = item_in(message.extra.get(NATIVE))
    if found is not None:
        return [found]
    return [item for chat in chats_of(message) for item in _from_chat(chat)]


def item_in(text: Any) -> Item | None:
    """The item that a text is, as it came; None when it is none, or was spoilt."""
    try:
        found = codec.decode(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def model_of(item: Mapping[str, Any]) -> str | None:
    """The model that made an item, where the item says so."""
    data = item.get("provider_data")
    found = data.get("model") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else None


def _readable(item: Mapping[str, Any], files: NewFiles) -> tuple[Role, tuple[Part, ...]]:
    content = Content()
    role = openai_items.add_item(content, dict(item))
    return Role(role), tuple(map(_without_details, parts_of(content, files, form="openai")))


def _without_details(part: Part) -> Part:
    """Without what only the model can read of its thoughts: that is long, and in the item."""
    return replace(part, details=None) if isinstance(part, Reasoning) else part


def _from_chat(chat: Mapping[str, Any]) -> list[Item]:
    if chat["role"] == "tool":
        call_id, output = chat["tool_call_id"], chat["content"]
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    content = chat["content"]
    items: list[Item] = []
    if content:
        items.append({"role": chat["role"], "content": _words(content)})
    for call in chat.get("tool_calls", ()):
        function = call["function"]
        items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        str(piece.get("text") or f"[{piece.get('name') or 'a file'}]") for piece in content
    )


# Runs that stop for approvals.


async def park_run(
    turn: ProgramTurn,
    result: RunResult | RunResultStreaming,
    *,
    context_serializer: Callable[[Any], Mapping[str, Any]] | None = None,
) -> tuple[Question, ...]:
    """Ask people for the approvals that a run has stopped for, and store the run with the turn; return the questions.

    Leave the block of the turn after this. `context_serializer` is for a run whose context is no mapping, as in the
    SDK's `RunState.to_json`. Raise `BadInput` if the run waits for no approval.
    """
    state = result.to_state()
    calls = [_pending(item) for item in state.get_interruptions()]
    run = state.to_json(context_serializer=context_serializer)
    return await parked_runs.park(turn, PLATFORM, calls, run)


async def resume_run(
    turn: ProgramTurn,
    agent: Agent[Any],
    *,
    context_override: Mapping[str, Any] | RunContextWrapper[Any] | None = None,
    context_deserializer: Callable[[Mapping[str, Any]], Any] | None = None,
) -> RunState[Any, Agent[Any]]:
    """Return the run that a turn was parked with, with what people decided: `Runner.run(agent, state)` goes on with it.

    A denied call is rejected with its reason. The SDK cannot change the arguments of a call: if somebody approved other
    ones, the call is rejected, and the model reads which arguments it may call the tool with. The last two parameters
    are those of the SDK's `RunState.from_json`.
    """
    parked = parked_runs.load(turn, PLATFORM)
    state = await _read_run(
        agent,
        parked.run,
        context_override=context_override,
        context_deserializer=context_deserializer,
    )
    for item in state.get_interruptions():
        question = parked.question_about(_pending(item))
        answered = question.answered
        if answered is None or not question.is_approved:
            state.reject(item, rejection_message=f"The call was not run. {outcome_text(question)}")
        elif answered.answer.arguments is not None:
            wanted = json.dumps(answered.answer.arguments, ensure_ascii=False)
            state.reject(
                item,
                rejection_message="The call was not run. It may be called with other arguments: "
                f"{wanted}. Call the tool again with exactly these.",
            )
        else:
            state.approve(item)
    return state


async def _read_run(
    agent: Agent[Any],
    run: dict[str, Any],
    *,
    context_override: Mapping[str, Any] | RunContextWrapper[Any] | None,
    context_deserializer: Callable[[Mapping[str, Any]], Any] | None,
    stored_by: str = "another version",
) -> RunState[Any, Agent[Any]]:
    """Return a run that was stored by this version of the SDK or an older one."""
    schema = run.get("$schemaVersion")
    if schema not in SUPPORTED_SCHEMA_VERSIONS:
        raise BadInput(
            f"The run was stored by openai-agents {stored_by} in a form ({schema}) that openai-agents "
            f"{version('openai-agents')} cannot read; it was left as it is. Update openai-agents here."
        )
    return await RunState.from_json(
        agent,
        run,
        context_override=context_override,
        context_deserializer=context_deserializer,
    )


def _pending(item: ToolApprovalItem) -> PendingCall:
    """Return the call that waits for an approval, with everything that is known of what it does."""
    if not item.call_id:
        raise BadInput(f"A call of {item.name} has no id, so nobody can be asked about it.")
    tool = item.qualified_name or item.name or "a tool of the model's provider"
    return PendingCall(item.call_id, tool, _arguments(item))


def _arguments(item: ToolApprovalItem) -> dict[str, Any]:
    given = item.arguments
    if given is not None:
        try:
            read = json.loads(given) if given.strip() else {}
        except ValueError:
            read = None
        return read if isinstance(read, dict) else {"arguments": given}
    raw: Any = item.raw_item
    facts = raw if isinstance(raw, Mapping) else raw.model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in facts.items() if name not in _IDENTITY}


# What a call has besides what it does.
_IDENTITY = frozenset({"type", "id", "call_id", "status"})
