# Generated from async_session.py by tools/make_sync_client.py: change that file, and run the tool.
"""One session: reading, writing, and the things that hang on it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec import UNSET, UnsetType

from sessionary.actions.retention import purge
from sessionary.actions.retention.purge import PurgeResult
from sessionary.actions.sessions import edit, holds, pins, projects, read, revise
from sessionary.actions.sessions.holds import Hold
from sessionary.actions.sessions.log import Appended
from sessionary.actions.sessions.read import TranscriptWindow
from sessionary.client import operations
from sessionary.client.operations import (
    Operation,
    SessionReference,
    SessionTarget,
)
from sessionary.client.pages import Page
from sessionary.client.sync_runtime import finish, paginate, prepare_prices, run_async
from sessionary.client.turn import RunningTurn
from sessionary.client.values import (
    Content,
    InputMessage,
    RoleName,
    StoredMessage,
    stored_message,
)
from sessionary.errors import BadInput
from sessionary.model.message import Entry
from sessionary.model.session import SessionHead
from sessionary.model.source import Person
from sessionary.model.transcript import Chat
from sessionary.model.turn import Arrival, Turn
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

if TYPE_CHECKING:
    from sessionary.actions.sessions.model_calls import (
        ListedTurn,
        ModelCall,
        SentContext,
        SessionContextSize,
    )
    from sessionary.actions.sessions.overview import Overview
    from sessionary.client.client import Sessionary

P = ParamSpec("P")
T = TypeVar("T")


class Session(SessionReference):
    """One conversation. It is stored from its first message on; before that it is empty everywhere."""

    def __init__(self, client: "Sessionary", target: SessionTarget) -> None:
        self._client = client
        self._target = target

    def append(
        self,
        role: RoleName,
        content: Content,
        *,
        idempotency_key: str | None = None,
        usage: Usage | None = None,
        at: datetime | None = None,
        person: Person | None = None,
        model: str | None = None,
        finish_reason: str | None = None,
        token_count: int | None = None,
        platform_message_id: str | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> Appended:
        """Add one message, durable when this returns; the same idempotency key adds it once.

        `content` is a text or a list of parts: ours, those of the OpenAI and Anthropic interfaces, and `File`s.
        Raises `BadInput` for a part of unknown type, and `Conflict` for an idempotency key that another message was
        written with, for a session that has ended, and while a turn is running.
        """
        given = InputMessage(
            role,
            content,
            idempotency_key=idempotency_key,
            usage=usage,
            at=at,
            person=person,
            model=model,
            finish_reason=finish_reason,
            token_count=token_count,
            platform_message_id=platform_message_id,
            extra=extra,
        )
        prepare_prices([usage])
        operation = operations.append_message(self._client.app, self._target, given)
        done = self._run(operation)
        self._target.id = done.session_id
        return done

    def append_many(self, messages: Sequence[InputMessage]) -> list[Appended]:
        """Add several messages in one transaction: all of them or none."""
        prepare_prices(given.usage for given in messages)
        app = self._client.app
        each = [operations.append_message(app, self._target, given) for given in messages]
        done = self._run(lambda tx, opened: [append(tx, opened) for append in each])
        if done:
            self._target.id = done[-1].session_id
        return done

    def turn(
        self,
        content: Content | None = None,
        *,
        agent: str | None = None,
        idempotency_key: str | None = None,
        wait: float | None = None,
    ) -> RunningTurn:
        """Begin a turn, perhaps with a person's message: `with chat.turn("hello") as turn: …`.

        While it runs, nobody else can write to the session; its lease is renewed in the background. If another turn is
        running, `Conflict` is raised, with `wait` only after that many seconds.
        """
        client, target = self._client, self._target
        prompt = None if content is None else InputMessage("user", content).read(target.source)
        return RunningTurn(
            client,
            target,
            lambda: operations.begin_turn(
                client.app, target, prompt, agent=agent, idempotency_key=idempotency_key
            ),
            wait=wait,
        )

    def resume_turn(self, *, wait: float | None = None) -> RunningTurn:
        """Go on with the turn of a program that waits for people: `with chat.resume_turn() as turn: …`.

        `turn.questions` are its questions with the answers, and `turn.state` is the text that `turn.wait_for` stored.
        If the program dies in this block, the turn is interrupted: nobody goes on with it again.

        Raises `NotFound` if no such turn waits here, and `Conflict` if one of its questions is open, with `wait` only
        after that many seconds; if another process goes on with it; and if it was stopped.
        """
        from sessionary.client import program_turns  # few programs ask

        client, target = self._client, self._target
        return RunningTurn(
            client, target, lambda: program_turns.resume_turn(client.app, target), wait=wait
        )

    def send(self, content: Content, *, idempotency_key: str | None = None) -> Arrival:
        """Leave a person's message for the agent of a running server; durable when this returns.

        `client.arrivals.get(arrival.id)` says what became of it. To run the agent in this process, use `client.ask`.
        """
        return self._client.arrivals._submit(self._target, content, idempotency_key=idempotency_key)

    def head(self) -> SessionHead:
        """Return the session's head: its title, counts and state. Before the first message its id is empty."""
        app, target = self._client.app, self._target
        now = app.clock.now()

        def look(tx: Tx) -> SessionHead:
            id = operations.find_id(tx, target, {})
            if id is None:
                return operations.empty_head(target, profile=app.profile, now=now)
            return read.get_head(tx, id, profile=app.profile)

        head = finish(app.store.read(look))
        self._target.id = head.id or None
        return head

    def exists(self) -> bool:
        """Return whether the session has a message yet."""
        return (self.head()).no != 0

    def context(self) -> list[Chat]:
        """Return the messages that a model reads, as OpenAI-style dictionaries; empty before the first message."""
        return self._read(read.read_context, [], profile=self._profile)

    def messages(self, *, after: int = 0, limit: int = 100) -> Page[StoredMessage]:
        """Return all messages that people see, from the first or from after an entry; `limit` is the size of a page."""

        def fetch(cursor: str | None) -> Page[StoredMessage]:
            start = after if cursor is None else operations.parse_seq(cursor)
            window = self.entries(after=start, limit=limit)
            found = tuple(
                message
                for entry in window.entries
                if (message := stored_message(entry)) is not None
            )
            following = str(window.entries[-1].seq) if window.more_after else None
            return Page(found, following, fetch)

        return paginate(fetch)

    def entries(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = 60,
    ) -> TranscriptWindow:
        """Return a part of the transcript, with compactions: its end, or before, after or around an entry."""
        if len([each for each in (before, after, around) if each is not None]) > 1:
            raise BadInput("Use one of `before`, `after` and `around`.")
        return self._read(
            read.read_window,
            TranscriptWindow((), False, False),
            profile=self._profile,
            limit=limit,
            before=before,
            after=after,
            around=around,
        )

    def count_rounds(self, *, since: int = 0) -> int:
        """Count the rounds after an entry: one or more messages of users, then at least one of the assistant.

        The database counts them without reading a message.
        """
        return self._read(read.count_rounds, 0, profile=self._profile, since=since)

    def log(self, *, after: int = 0, limit: int = 500) -> Page[Entry]:
        """Return the raw log: retracted entries and the marks of compactions and retractions too."""

        def fetch(cursor: str | None) -> Page[Entry]:
            start = after if cursor is None else operations.parse_seq(cursor)
            found = self._read(read.read_log, [], profile=self._profile, after=start, limit=limit)
            following = str(found[-1].seq) if len(found) == limit else None
            return Page(tuple(found), following, fetch)

        return paginate(fetch)

    def read_file(self, blob: str) -> bytes:
        """Return the bytes of an attachment of this session, named by the `blob` of its part."""
        return self._run(
            operations.on_session(self._target, operations.read_file, blob, profile=self._profile),
            reads=True,
        )

    def rename(self, title: str) -> SessionHead:
        """Give the session a title; an empty one removes it. Raises `Conflict` if another session has it."""
        return self._write(edit.rename, title, profile=self._profile)

    def pin(self, *, pinned: bool = True) -> SessionHead:
        """Keep the session at the top of lists, or stop doing so."""
        return self._write(edit.pin, profile=self._profile, pinned=pinned)

    def pin_message(self, seq: int) -> SessionHead:
        """Pin a message of a user or the assistant: the model reads it word for word also after a compaction.

        Raises `NotFound` if there is no such message, and `Conflict` if 20 messages are pinned or a turn is running.
        """
        moment = self._client.app.moment()
        return self._write(pins.pin_message, seq, profile=self._profile, by=None, moment=moment)

    def unpin_message(self, seq: int) -> SessionHead:
        """Unpin a message. Raises `NotFound` if it is not pinned, and `Conflict` while a turn is running."""
        moment = self._client.app.moment()
        return self._write(pins.unpin_message, seq, profile=self._profile, by=None, moment=moment)

    def pinned_messages(self) -> list[StoredMessage]:
        """Return the pinned messages, in the order of the log."""
        found = self._read(pins.list_pinned_messages, [], profile=self._profile)
        return [message for entry in found if (message := stored_message(entry)) is not None]

    def archive(self, *, archived: bool = True) -> SessionHead:
        """Move the session to the archive, or back."""
        return self._write(edit.archive, profile=self._profile, archived=archived)

    def choose(
        self,
        *,
        agent: str | UnsetType | None = UNSET,
        model: str | UnsetType | None = UNSET,
        persona: str | UnsetType | None = UNSET,
        tools: Sequence[str] | UnsetType | None = UNSET,
        by: Person | None = None,
    ) -> SessionHead:
        """Change the session's agent, model, persona or tools, and record it in the log; None means the default.

        `tools` are names or shell patterns; an empty list means none. While a turn is running, the change takes effect,
        and is recorded, with the next one. Raises `BadInput` for a name that the settings do not have.
        """
        given = {"agent": agent, "model": model, "persona": persona, "tools": tools}
        changes = {name: value for name, value in given.items() if value is not UNSET}
        return self._write(operations.choose_in, self._client.app, changes, by=by)

    def set_labels(self, labels: Sequence[str]) -> SessionHead:
        """Replace the session's labels."""
        return self._write(edit.set_labels, labels, profile=self._profile)

    def move(self, project: str | None) -> SessionHead:
        """Move the session to a project, or with None out of its project."""
        return self._write(projects.move_session, project, profile=self._profile)

    def set_draft(self, text: str) -> None:
        """Store what a person has typed and not sent; an empty text removes it."""
        moment = self._client.app.moment()
        self._write(edit.set_draft, text, profile=self._profile, moment=moment)

    def draft(self) -> str | None:
        """Return what a person has typed and not sent."""
        return self._read(operations.get_draft, None, profile=self._profile)

    def mark_read(self, through: int | None = None) -> SessionHead:
        """Note that a person has read up to an entry, by default to the end; it never goes back."""
        return self._write(operations.mark_read, through, profile=self._profile)

    def trash(self) -> SessionHead:
        """Move the session and its subagents to the trash for 30 days."""
        moment = self._client.app.moment()
        return self._write(edit.trash, profile=self._profile, moment=moment)

    def restore(self) -> SessionHead:
        """Take the session out of the trash, with the subagents that were trashed with it."""
        return self._write(edit.restore, profile=self._profile)

    def purge(self) -> PurgeResult:
        """Delete the session's messages forever."""
        moment = self._client.app.moment()
        return self._write(purge.purge, profile=self._profile, moment=moment)

    def end(self, reason: str = "closed") -> SessionHead:
        """Close the session; one that has ended keeps its reason."""
        moment = self._client.app.moment()
        return self._write(edit.end, profile=self._profile, moment=moment, reason=reason)

    def reopen(self) -> SessionHead:
        """Open an ended session again."""
        return self._write(edit.reopen, profile=self._profile)

    def hold(self, reason: str, *, until: datetime | None = None) -> Hold:
        """Keep the session from being reset by its policy: until a time, or until `release`.

        The same reason again sets another end. A command such as `/new` still ends the session.
        """
        moment = self._client.app.moment()
        return self._write(
            holds.add_hold, reason, profile=self._profile, moment=moment, until=until
        )

    def release(self, reason: str | None = None) -> list[Hold]:
        """Release the hold with this reason, or all holds; return those that were released.

        Raises `NotFound` for a reason that does not hold the session.
        """
        moment = self._client.app.moment()
        return self._write(holds.release_hold, reason, profile=self._profile, moment=moment)

    def holds(self) -> list[Hold]:
        """Return the holds that keep the session from being reset by its policy."""
        now = self._client.app.clock.now()
        return self._read(operations.list_holds, [], profile=self._profile, now=now)

    def undo(self, rounds: int = 1) -> SessionHead:
        """Take back the person's last messages and the replies to them; nothing is deleted."""
        now = self._client.app.clock.now()
        return self._write(revise.undo, profile=self._profile, rounds=rounds, at=now)

    def retract(self, after: int, *, reason: str = "undo") -> SessionHead:
        """Take back everything after an entry; nothing is deleted."""
        now = self._client.app.clock.now()
        return self._write(
            revise.retract, profile=self._profile, after=after, reason=reason, at=now
        )

    def compact(
        self,
        summary: str | None = None,
        *,
        through: int | None = None,
        focus: str | None = None,
        agent: str | None = None,
    ) -> SessionHead:
        """Replace everything up to an entry, by default everything, by a summary, for the model only.

        Without a summary the agent writes one of everything, about `focus` if that is given; the usage is recorded.
        """
        app, head = self._client.app, self.head()
        if summary is None:
            operations.id_of(self)
            if through is not None:
                raise BadInput("An agent summarizes everything: use `through` with a summary.")
            from sessionary.app import ask  # an agent's libraries take 0.3 s to load

            return run_async(lambda: ask.compact(app, head, agent=agent, focus=focus))
        now = app.clock.now()
        return self._write(
            revise.compact,
            summary,
            profile=self._profile,
            through=head.last_seq if through is None else through,
            at=now,
        )

    def fork(self, at: int | None = None, *, title: str | None = None) -> "Session":
        """Begin a session with this one's history up to an entry; nothing is copied."""
        moment = self._client.app.moment()
        head = self._write(edit.fork, profile=self._profile, moment=moment, at_seq=at, title=title)
        return Session(self._client, SessionTarget(head.source, id=head.id))

    def stop(self, reason: str = "stopped by you") -> bool:
        """Ask the running turn, in whatever process, to stop; return whether one is running.

        A turn whose process has ended is ended at once.
        """
        app = self._client.app
        is_running, is_dead = self._write(
            operations.stop_turn, profile=self._profile, reason=reason, moment=app.moment()
        )
        if is_dead:
            head = self.head()
            from sessionary.app import ask  # an agent's libraries take 0.3 s to load

            run_async(lambda: ask.stop_turn(app, head, reason=reason))
        return is_running

    def running_turn(self) -> Turn | None:
        """Return the turn that is running, with its text so far in `partial`; None if none is."""
        return self._read(read.get_running_turn, None, profile=self._profile)

    def turns(self, *, limit: int = 50) -> "Page[ListedTurn]":
        """Return the session's turns, newest first; `limit` is the size of a page."""

        def fetch(cursor: str | None) -> "Page[ListedTurn]":
            from sessionary.actions.sessions import model_calls  # few programs need it

            found = self._read(
                model_calls.list_turns,
                model_calls.TurnPage((), None),
                profile=self._profile,
                limit=limit,
                cursor=cursor,
            )
            return Page(found.items, found.next, fetch)

        return paginate(fetch)

    def model_calls(self, turn_id: str) -> "list[ModelCall]":
        """Return the model calls of a turn, oldest first. Raises `NotFound` if there is no such turn."""
        from sessionary.actions.sessions import model_calls  # few programs need it

        app = self._client.app
        return finish(app.store.read(model_calls.list_calls, turn_id, profile=self._profile))

    def sent_context(self, turn_id: str, *, call: int | None = None) -> "SentContext":
        """Return what the model was sent in a turn: in the call with this number, from 1, by default in the last one.

        It is made again from the log, by the same rules as when it was sent. Raises `NotFound` if there is no such turn
        or call.
        """
        from sessionary.actions.sessions import model_calls  # few programs need it

        app = self._client.app
        return finish(
            app.store.read(
                model_calls.read_sent_context, turn_id, profile=self._profile, number=call
            )
        )

    def context_size(self) -> "SessionContextSize":
        """Return how large the model's context is now, by kind. Raises `NotFound` before the first message."""
        from sessionary.actions.sessions import model_calls  # few programs need it

        return self._run(
            operations.on_session(self._target, model_calls.measure_context, profile=self._profile),
            reads=True,
        )

    def waiting(self) -> list[Arrival]:
        """Return the messages that wait for a turn in this session."""
        return self._read(operations.list_waiting, [], profile=self._profile)

    def children(self) -> list[SessionHead]:
        """Return the sessions that came from this one: forks, continuations, subagents."""
        return self._read(operations.list_children, [], profile=self._profile)

    def overview(self) -> "Overview":
        """Return what was asked, which files were touched, how full the context is, and the family."""
        from sessionary.actions.sessions import overview  # only this call needs it

        empty = overview.Overview((), (), {}, (), ())
        return self._read(overview.overview, empty, profile=self._profile)

    @property
    def _profile(self) -> str:
        return self._client.app.profile

    def _run(self, operation: Operation[T], *, reads: bool = False) -> T:
        """Run one operation in a transaction of its own."""
        store = self._client.app.store
        act = operations.run_at_once(operation)
        value, opened = finish(store.read(act) if reads else store.write(act))
        for target, id in opened.items():
            target.id = id
        return value

    def _write(
        self,
        action: Callable[Concatenate[Tx, str, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return self._run(operations.on_session(self._target, action, *args, **kwargs))

    def _read(
        self,
        action: Callable[Concatenate[Tx, str, P], T],
        empty: T,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an action that reads; a session without messages gives `empty`."""
        target = self._target

        def look(tx: Tx) -> T:
            id = operations.find_id(tx, target, {})
            return empty if id is None else action(tx, id, *args, **kwargs)

        return finish(self._client.app.store.read(look))
