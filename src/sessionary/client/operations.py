"""Operations on sessions: what one call does at once, and a transaction does together with others."""

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sessionary.actions import files, questions, turns
from sessionary.actions.sessions import append as append_actions
from sessionary.actions.sessions import edit, holds, log, projects, read, revise, routing
from sessionary.actions.sessions.append import NewMessage
from sessionary.actions.sessions.choice import choose
from sessionary.actions.sessions.holds import Hold
from sessionary.actions.sessions.log import Appended
from sessionary.app.context import AppContext
from sessionary.client.values import (
    Content,
    Handover,
    InputMessage,
    Reply,
    RoleName,
    StoredMessage,
    stored_message,
)
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound
from sessionary.model import choice
from sessionary.model.choice import Changes, ChoiceChange
from sessionary.model.message import Entry, Message
from sessionary.model.session import Kind, Opening, SessionHead, folder_of
from sessionary.model.source import NAMED, WEB, Person, SessionKey, Source
from sessionary.model.turn import Arrival, Lease, TurnState
from sessionary.model.usage import Usage, UsageTotal
from sessionary.store.database import Store, Tx
from sessionary.store.tables import arrivals, sessions

if TYPE_CHECKING:
    from sessionary.app.ask import AgentAnswer, AskRequest
    from sessionary.engine.ports import AgentFunction, Delta
    from sessionary.model.record import ExportOptions

P = ParamSpec("P")
T = TypeVar("T")
LEASE_SECONDS = 60.0
# How often a waiting turn checks whether a turn of another process has ended.
POLL_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class SessionTarget:
    """Which session is meant: the one of a key, the one with an id, or one that its first message opens."""

    source: Source
    key: SessionKey | None = None
    id: str | None = None
    title: str | None = None
    kind: Kind = Kind.CHAT
    model: str | None = None
    settings: Mapping[str, object] | None = None
    system_prompt: str | None = None
    labels: tuple[str, ...] = ()
    # The agent, model, persona and tools that were chosen for the session that its first message opens.
    chosen: Changes = field(default_factory=dict)

    def opening(self, profile: str) -> Opening:
        """Return what is known of a session that is about to be opened."""
        named = {} if self.model is None else {"model": self.model}
        return Opening(
            profile,
            self.source,
            kind=self.kind,
            title=self.title,
            model=self.model,
            settings={**(self.settings or {}), **named} or None,
            system_prompt=self.system_prompt,
            labels=self.labels,
            chosen=ChoiceChange(self.chosen, self.source.person) if self.chosen else None,
        )


# The ids of the sessions that a transaction has opened so far.
Opened = dict[SessionTarget, str]
Operation = Callable[[Tx, Opened], T]


def source_of(name: str | Source) -> Source:
    """Return the source that a name stands for."""
    if isinstance(name, Source):
        return name
    given: object = name  # a program without a type checker may give anything
    if not isinstance(given, str) or not given.strip() or given.startswith(NAMED):
        raise BadInput(
            f"A session is found by a name or a sessionary.Source, not by {name!r}; "
            "`find` takes an id or a title."
        )
    return Source(WEB, given)


def find_id(tx: Tx, target: SessionTarget, opened: Opened) -> str | None:
    """Return the id of the session that is meant now; None if it has no messages yet."""
    head = None if target.key is None else routing.get_current(tx, target.key)
    return head.id if head is not None else opened.get(target, target.id)


def get_id(tx: Tx, target: SessionTarget, opened: Opened) -> str:
    """Return the id of the session that is meant; raise `NotFound` if it has no messages yet."""
    found = find_id(tx, target, opened)
    if found is None:
        raise NotFound("The session has no messages yet: append one first.")
    return found


def on_session(
    target: SessionTarget,
    action: Callable[Concatenate[Tx, str, P], T],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Operation[T]:
    """Return the operation that runs an action on the session."""

    def run(tx: Tx, opened: Opened) -> T:
        return action(tx, get_id(tx, target, opened), *args, **kwargs)

    return run


def chosen_for(app: AppContext, source: Source, **changes: Any) -> Changes:
    """Return what a caller chose for a new session; raise `BadInput` for what there is not."""
    given = choice.clean({name: value for name, value in changes.items() if value is not None})
    return app.catalog.check({}, given, platform=source.platform) if given else given


def choose_if_opened(tx: Tx, app: AppContext, target: SessionTarget, *, moment: Moment) -> None:
    """Choose for the session that the next message opens; one that is open keeps its own."""
    if target.chosen and target.key is not None:
        routing.choose_if_opened(
            tx,
            target.key,
            target.source,
            target.chosen,
            policy=app.policies.choose(target.source),
            catalog=None,  # they were checked before
            moment=moment,
        )


def choose_in(
    tx: Tx, id: str, app: AppContext, changes: Changes, *, by: Person | None
) -> SessionHead:
    """Change the agent, model, persona or tools of a session."""
    head = read.get_head(tx, id, profile=app.profile)
    return choose(tx, head, changes, by=by, moment=app.moment(), catalog=app.catalog)


def append_message(
    app: AppContext, target: SessionTarget, given: InputMessage
) -> Operation[Appended]:
    """Return the operation that adds a message; the first one of a new session opens it."""
    message, files = given.read(target.source)
    new = NewMessage(
        message,
        at=given.at,
        idempotency_key=given.idempotency_key,
        usage=app.priced(given.usage, at=given.at),
        files=files,
    )
    moment, profile = app.moment(), app.profile
    policy = app.policies.choose(target.source)

    def run(tx: Tx, opened: Opened) -> Appended:
        if target.key is not None:
            choose_if_opened(tx, app, target, moment=moment)
            return append_actions.append_to_source(
                tx, target.key, target.source, new, policy=policy, moment=moment
            )
        known = opened.get(target, target.id)
        if known is not None:
            return append_actions.append_to_session(tx, known, new, profile=profile, moment=moment)
        done = append_actions.append_to_new_session(tx, target.opening(profile), new, moment=moment)
        opened[target] = done.session_id
        return done

    return run


class SessionReference:
    """What `Session` and `AsyncSession` have in common: which session they mean."""

    _target: SessionTarget

    @property
    def id(self) -> str | None:
        """The session's id; None before its first message, or if only its source is known yet."""
        return self._target.id

    @property
    def source(self) -> Source:
        """Where the conversation takes place."""
        return self._target.source

    def __repr__(self) -> str:
        target = self._target
        name = f" {target.key}" if target.key is not None else ""
        return f"<{type(self).__name__}{name} {target.id or 'without messages'}>"


@dataclass(slots=True)
class Deferred(Generic[T]):
    """The result of an operation of a transaction; it is there after the block."""

    _values: list[T] = field(default_factory=list)

    def result(self) -> T:
        """Return the result; raise `BadInput` while the transaction is not committed."""
        if not self._values:
            raise BadInput(
                "The transaction is not committed; its results are there after its block."
            )
        return self._values[0]

    def settle(self, value: T) -> None:
        """Record the result."""
        self._values[:] = [value]


class OperationList:
    """The operations of a transaction, in the order in which they were given."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._operations: list[Operation[Callable[[], None]]] = []

    def append(
        self,
        session: SessionReference,
        role: RoleName,
        content: Content,
        *,
        idempotency_key: str | None = None,
        usage: Usage | None = None,
        at: datetime | None = None,
        person: Person | None = None,
        finish_reason: str | None = None,
    ) -> Deferred[Appended]:
        """Add a message to a session; see `Session.append`."""
        given = InputMessage(
            role,
            content,
            idempotency_key=idempotency_key,
            usage=usage,
            at=at,
            person=person,
            finish_reason=finish_reason,
        )
        return self._add(append_message(self._app, session._target, given))

    def rename(self, session: SessionReference, title: str) -> Deferred[SessionHead]:
        """Give a session a title; an empty one removes it."""
        return self._on(session, edit.rename, title, profile=self._app.profile)

    def pin(self, session: SessionReference, *, pinned: bool = True) -> Deferred[SessionHead]:
        """Keep a session at the top of lists, or stop doing so."""
        return self._on(session, edit.pin, profile=self._app.profile, pinned=pinned)

    def archive(self, session: SessionReference, *, archived: bool = True) -> Deferred[SessionHead]:
        """Move a session to the archive, or back."""
        return self._on(session, edit.archive, profile=self._app.profile, archived=archived)

    def set_labels(self, session: SessionReference, labels: Sequence[str]) -> Deferred[SessionHead]:
        """Replace a session's labels."""
        return self._on(session, edit.set_labels, labels, profile=self._app.profile)

    def move(self, session: SessionReference, project: str | None) -> Deferred[SessionHead]:
        """Move a session to a project, or with None out of its project."""
        return self._on(session, projects.move_session, project, profile=self._app.profile)

    def set_draft(self, session: SessionReference, text: str) -> Deferred[None]:
        """Store what a person has typed and not sent; an empty text removes it."""
        app = self._app
        return self._on(session, edit.set_draft, text, profile=app.profile, moment=app.moment())

    def mark_read(
        self, session: SessionReference, through: int | None = None
    ) -> Deferred[SessionHead]:
        """Note that a person has read up to an entry, by default to the end; it never goes back."""
        return self._on(session, mark_read, through, profile=self._app.profile)

    def end(self, session: SessionReference, reason: str = "closed") -> Deferred[SessionHead]:
        """Close a session; one that has ended keeps its reason."""
        app = self._app
        return self._on(session, edit.end, profile=app.profile, moment=app.moment(), reason=reason)

    def reopen(self, session: SessionReference) -> Deferred[SessionHead]:
        """Open an ended session again."""
        return self._on(session, edit.reopen, profile=self._app.profile)

    def trash(self, session: SessionReference) -> Deferred[SessionHead]:
        """Move a session and its subagents to the trash for 30 days."""
        app = self._app
        return self._on(session, edit.trash, profile=app.profile, moment=app.moment())

    def restore(self, session: SessionReference) -> Deferred[SessionHead]:
        """Take a session out of the trash."""
        return self._on(session, edit.restore, profile=self._app.profile)

    def retract(
        self, session: SessionReference, after: int, *, reason: str = "undo"
    ) -> Deferred[SessionHead]:
        """Take back everything after an entry; nothing is deleted."""
        app = self._app
        return self._on(
            session,
            revise.retract,
            profile=app.profile,
            after=after,
            reason=reason,
            at=app.clock.now(),
        )

    def compact(
        self, session: SessionReference, summary: str, *, through: int
    ) -> Deferred[SessionHead]:
        """Replace everything up to an entry by a summary, for the model only."""
        app = self._app
        return self._on(
            session,
            revise.compact,
            summary,
            profile=app.profile,
            through=through,
            at=app.clock.now(),
        )

    def hold(
        self, session: SessionReference, reason: str, *, until: datetime | None = None
    ) -> Deferred[Hold]:
        """Keep a session from being reset by its policy."""
        app = self._app
        return self._on(
            session,
            holds.add_hold,
            reason,
            profile=app.profile,
            moment=app.moment(),
            until=until,
        )

    def release(self, session: SessionReference, reason: str | None = None) -> Deferred[list[Hold]]:
        """Release the hold with this reason, or all holds."""
        app = self._app
        return self._on(
            session, holds.release_hold, reason, profile=app.profile, moment=app.moment()
        )

    def _on(
        self,
        session: SessionReference,
        action: Callable[Concatenate[Tx, str, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Deferred[T]:
        return self._add(on_session(session._target, action, *args, **kwargs))

    def _add(self, operation: Operation[T]) -> Deferred[T]:
        deferred: Deferred[T] = Deferred()

        def run(tx: Tx, opened: Opened) -> Callable[[], None]:
            value = operation(tx, opened)
            return lambda: deferred.settle(value)

        self._operations.append(run)
        return deferred

    def _run_all(self, tx: Tx) -> tuple[Opened, list[Callable[[], None]]]:
        """Run the operations in one transaction; return what to do after the commit."""
        opened: Opened = {}
        return opened, [each(tx, opened) for each in self._operations]

    def _settle(self, outcome: tuple[Opened, list[Callable[[], None]]]) -> None:
        opened, settlements = outcome
        for target, id in opened.items():
            target.id = id
        for settle in settlements:
            settle()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._operations)} operations>"


def run_at_once(operation: Operation[T]) -> Callable[[Tx], tuple[T, Opened]]:
    """Return a function of a transaction that runs one operation, for `Store.write` and `Store.read`."""

    def run(tx: Tx) -> tuple[T, Opened]:
        opened: Opened = {}
        return operation(tx, opened), opened

    return run


def empty_head(target: SessionTarget, *, profile: str, now: datetime) -> SessionHead:
    """Return the head of a session that has no messages yet; its id is empty."""

    return SessionHead(
        no=0,
        id="",
        profile=profile,
        key=None if target.key is None else str(target.key),
        source=target.source,
        kind=target.kind,
        folder=folder_of(kind=target.kind, archived=False, trashed=False, purged=False),
        title=target.title,
        title_by=None,
        preview=None,
        model=None,
        project=None,
        pinned=False,
        archived=False,
        read_only=False,
        labels=(),
        began_at=now,
        last_active_at=now,
        ended_at=None,
        end_reason=None,
        trashed_at=None,
        last_seq=0,
        base_seq=0,
        read_through=0,
        last_reply_seq=0,
        message_count=0,
        tool_call_count=0,
        usage=UsageTotal(),
        running_turn=None,
        parent_id=None,
        lineage=None,
    )


def parse_seq(cursor: str) -> int:
    """Return the entry after which a page of a log begins."""
    if not cursor.isascii() or not cursor.isdigit():
        raise BadInput("That cursor is not one of ours; begin again without it.")
    return int(cursor)


def read_file(tx: Tx, id: str, blob: str, *, profile: str) -> bytes:
    """Return the bytes of an attachment of a session."""
    return files.read_blob(tx, blob, session_no=read.get_head(tx, id, profile=profile).no)


def get_draft(tx: Tx, id: str, *, profile: str) -> str | None:
    """Return what a person has typed and not sent."""
    return sessions.details(tx, read.get_head(tx, id, profile=profile).no).draft


def mark_read(tx: Tx, id: str, through: int | None, *, profile: str) -> SessionHead:
    """Note how far a person has read, by default to the end."""
    if through is None:
        through = read.get_head(tx, id, profile=profile).last_seq
    edit.mark_read(tx, id, through, profile=profile)
    return read.get_head(tx, id, profile=profile)


def list_holds(tx: Tx, id: str, *, profile: str, now: datetime) -> list[Hold]:
    """Return the holds of a session that have not expired."""
    return holds.list_holds(tx, read.get_head(tx, id, profile=profile), now=now)


def stop_turn(tx: Tx, id: str, *, profile: str, reason: str, moment: Moment) -> tuple[bool, bool]:
    """Ask the running turn to stop; return whether one is running, and whether its process has ended."""
    head = log.lock_session(tx, id, profile=profile)
    return turns.stop(tx, head.no, reason=reason, moment=moment)


def list_waiting(tx: Tx, id: str, *, profile: str) -> list[Arrival]:
    """Return what waits for a session under any of its keys, in the order of arrival."""
    head = read.get_head(tx, id, profile=profile)
    waiting = [
        arrival
        for key in sessions.keys_of_session(tx, head.no)
        for arrival in arrivals.waiting(tx, key, profile=profile, limit=turns.MOST_ARRIVALS)
    ]
    return sorted(waiting, key=lambda arrival: arrival.no)


def list_questions(
    tx: Tx,
    *,
    profile: str,
    session: SessionReference | str | None,
    only_open: bool,
    limit: int,
    cursor: str | None,
) -> questions.QuestionPage:
    """Return a page of questions, of a session or of all."""
    id = find_id(tx, session._target, {}) if isinstance(session, SessionReference) else session
    if id is None and session is not None:
        return questions.QuestionPage((), None)
    head = None if id is None else read.get_head(tx, id, profile=profile)
    page = questions.list_questions(
        tx,
        profile=profile,
        limit=limit,
        session_no=None if head is None else head.no,
        only_open=only_open,
        cursor=cursor,
    )
    found = tuple(each for each in page.items if each.is_open or not only_open)
    return questions.QuestionPage(found, page.next)


def list_children(tx: Tx, id: str, *, profile: str) -> list[SessionHead]:
    """Return the sessions that came from a session."""
    return read.list_children(tx, read.get_head(tx, id, profile=profile))


def begin_turn(
    app: AppContext,
    target: SessionTarget,
    prompt: tuple[Message, tuple[bytes, ...]] | None,
    *,
    agent: str | None,
    idempotency_key: str | None,
) -> Callable[[Tx], turns.Begun]:
    """Return the transaction that begins a turn; the first message of a new session opens it."""
    moment, profile = app.moment(), app.profile
    claim = turns.Claim(app.holder, LEASE_SECONDS, agent)
    policy = app.policies.choose(target.source)

    def run(tx: Tx) -> turns.Begun:
        message, files = prompt or (None, ())
        if target.key is not None and message is not None:
            choose_if_opened(tx, app, target, moment=moment)
            return turns.begin_for_source(
                tx,
                target.key,
                target.source,
                message,
                policy=policy,
                claim=claim,
                moment=moment,
                idempotency_key=idempotency_key,
                files=files,
            )
        id = find_id(tx, target, {})
        if id is None:
            if message is None:
                raise NotFound(
                    "The session has no messages yet: append one first, or begin the turn with one."
                )
            id = edit.open_session(tx, target.opening(profile), moment=moment)
        return turns.begin_in_session(
            tx,
            id,
            message,
            profile=profile,
            claim=claim,
            moment=moment,
            idempotency_key=idempotency_key,
            files=files,
        )

    return run


class LiveEvents:
    """Publishes what happens in a turn to a server that runs in this process, from the first streamed text on."""

    def __init__(self, app: AppContext, lease: Lease) -> None:
        self._app = app
        self._lease = lease
        self._has_begun = False

    def begin(self) -> None:
        """Announce the turn, unless that was done."""
        if not self._has_begun and self._app.live is not None:
            self._has_begun = True
            self.publish("began")

    def publish(self, kind: str, data: object = None) -> None:
        """Publish an event of a turn that was announced."""
        publish = self._app.live
        if publish is None or not self._has_begun:
            return
        from sessionary.engine.context import LiveEvent  # the server has loaded it

        publish(LiveEvent(self._lease.session_id, self._lease.turn_id, kind, data))


def id_of(session: SessionReference | str) -> str:
    """Return the id of a session that is named by its id or by an object."""
    found = session.id if isinstance(session, SessionReference) else session
    if found is None:
        raise NotFound("The session has no messages yet: append one first.")
    return found


def read_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(f"There is no time zone {name!r}; write one like Europe/Berlin.") from error


class Exporter(Protocol):
    """Makes the pieces of an export."""

    def __call__(
        self, store: Store, ids: Sequence[str] | None, *, profile: str, options: "ExportOptions"
    ) -> Iterator[str]:
        """Return the pieces, one after the other."""


def exporter(format: str) -> Exporter:
    """Return what exports sessions in a format."""
    from sessionary.actions.transfer import export as exports  # loads msgspec: 60 ms

    known: dict[str, Exporter] = {
        "jsonl": exports.export_jsonl,
        "md": exports.export_markdown,
        "html": exports.export_html,
    }
    if format not in known:
        raise BadInput(f"There is no format {format!r}: use one of {', '.join(known)}.")
    return known[format]


def export_options(
    *, tools: bool, reasoning: bool, redact: bool, mask_secrets: bool
) -> "ExportOptions":
    """Return what an export shows."""
    from sessionary.model.record import ExportOptions  # loads msgspec: 60 ms

    return ExportOptions(tools=tools, reasoning=reasoning, redact=redact, mask_secrets=mask_secrets)


def write_state(
    app: AppContext,
    path: str | os.PathLike[str],
    ids: Sequence[str] | None,
    *,
    options: "ExportOptions",
    overwrite: bool,
) -> int:
    """Write sessions as a file with Hermes' tables, and return how many."""
    from sessionary.compat.hermes.state_file import export_state  # loads msgspec: 60 ms

    return export_state(
        app.store, Path(path), ids, profile=app.profile, options=options, overwrite=overwrite
    )


def make_handover(
    app: AppContext, id: str, tool: str, *, budget: int | None, options: "ExportOptions"
) -> Handover:
    """Return a session as a file for another tool."""
    from sessionary.actions.transfer import export as exports  # loads msgspec: 60 ms
    from sessionary.model.handover.forms import HANDOVER_FORMATS

    if tool not in HANDOVER_FORMATS:
        raise BadInput(f"There is no tool {tool!r}: use one of {', '.join(HANDOVER_FORMATS)}.")
    form = HANDOVER_FORMATS[tool]
    excerpt = exports.handover_excerpt(
        app.store,
        id,
        profile=app.profile,
        budget=exports.HANDOVER_BUDGET if budget is None else budget,
        options=options,
    )
    name = f"sessionary-{tool}.{form.suffix}"
    return Handover(
        tool=tool,
        title=form.title,
        file_name=name,
        text="".join(form.pieces(excerpt)),
        messages=len(excerpt.lines),
        left_out=excerpt.left_out,
        summarized=excerpt.summary is not None,
        advice=form.advice(excerpt, name),
    )


def question_for(
    app: AppContext, target: SessionTarget, content: Content, *, idempotency_key: str | None
) -> "AskRequest":
    """Return a question in the conversation of a source, else in a session, else in a new one."""
    from sessionary.app.ask import AskRequest  # the engine takes 0.2 s to load

    message, files = InputMessage("user", content).read(target.source)
    if target.key is not None:
        return AskRequest(
            message, files, idempotency_key, source=target.source, chosen=target.chosen
        )
    if target.id is not None:
        return AskRequest(message, files, idempotency_key, session_id=target.id)
    return AskRequest(message, files, idempotency_key, opening=target.opening(app.profile))


async def reply_events(
    app: AppContext,
    target: SessionTarget,
    question: "AskRequest",
    *,
    agent: "AgentFunction | str | None",
    seconds: float | None,
) -> "AsyncGenerator[Delta | StoredMessage | Reply]":
    """Ask an agent, and yield what it writes as the client gives it."""
    from sessionary.app import ask  # the engine takes 0.2 s to load

    async with aclosing(ask.stream(app, question, agent=agent, seconds=seconds)) as events:
        async for event in events:
            if isinstance(event, ask.AgentAnswer):
                target.id = event.session_id or target.id
                yield reply_of(event)
            elif isinstance(event, Entry):
                message = stored_message(event)
                if message is not None:
                    yield message
            else:
                yield event


def reply_of(answer: "AgentAnswer") -> Reply:
    """Return the answer of an agent as the client gives it."""
    messages = [message for entry in answer.entries if (message := stored_message(entry))]
    state = TurnState.DONE if answer.turn is None else answer.turn.state
    return Reply(
        answer.text,
        answer.session_id,
        None if answer.turn is None else answer.turn.id,
        answer.usage,
        tuple(messages),
        TurnState.WAITING if answer.questions else state,
        answer.questions,
    )
