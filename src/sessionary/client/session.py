"""One session of an open client: reading, writing, turns."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sessionary.actions import files, turns
from sessionary.actions.retention import purge
from sessionary.actions.sessions import append, edit, log, read, revise, routing
from sessionary.actions.sessions import holds as hold_actions
from sessionary.actions.sessions.holds import Hold
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound
from sessionary.model.message import Message, Part, Role, message
from sessionary.model.session import Kind, Opening, SessionHead
from sessionary.model.source import Person, SessionKey, Source
from sessionary.model.transcript import Chat
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Tx

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary
    from sessionary.formats.message_input import File

LEASE_SECONDS = 60.0
T = TypeVar("T")
Content = str | Sequence["Mapping[str, Any] | Part | File"]


class Session:
    """One conversation: named by its id, found through a source, or about to be opened."""

    def __init__(
        self,
        client: "Sessionary",
        *,
        id: str | None = None,
        key: SessionKey | None = None,
        source: Source,
        title: str | None = None,
        kind: Kind = Kind.CHAT,
    ) -> None:
        self._client = client
        self._key = key
        self._title = title
        self._kind = kind
        self.source = source
        self.id = id

    def append(
        self,
        role: str,
        content: Content,
        *,
        idempotency_key: str | None = None,
        usage: Usage | None = None,
        at: datetime | None = None,
        **fields: Any,
    ) -> log.Appended:
        """Add one message, durable when this returns; the same idempotency key adds it once.

        `content` is a text or a list of parts: ours, those of the OpenAI and Anthropic interfaces,
        and `File`s. Raises `BadInput` for a part of unknown type, and `Conflict` for an
        idempotency key that another message was written with.
        """
        if at is not None and not isinstance(at, datetime):
            raise BadInput(f"A time is a datetime with a zone, not {at!r}.")
        if at is not None and at.tzinfo is None:
            raise BadInput(f"The time {at} has no zone; give it one, such as datetime.UTC.")
        moment = self._client.moment()
        written, files = self._message(role, content, fields)
        priced = self._client.priced(usage, at=at)
        saying = append.NewMessage(
            written, at=at, idempotency_key=idempotency_key, usage=priced, files=files
        )
        client = self._client
        if self._key is not None:
            policy = client.policies.choose(self.source)
            pending = client.writing(
                append.append_to_source,
                self._key,
                self.source,
                saying,
                policy=policy,
                moment=moment,
            )
        elif self.id is None:
            pending = client.writing(
                append.append_to_new_session, self._opening(), saying, moment=moment
            )
        else:
            pending = client.writing(
                append.append_to_session, self.id, saying, profile=client.profile, moment=moment
            )
        return client.answer(pending.map(self._noted))

    def turn(
        self,
        content: Content | None = None,
        *,
        agent: str | None = None,
        idempotency_key: str | None = None,
    ) -> "RunningTurn":
        """Begin a turn, perhaps with a message: `with chat.turn("hello") as turn: …`."""
        written: Message | None = None
        files: tuple[bytes, ...] = ()
        if content is not None:
            written, files = self._message("user", content, {})
        return RunningTurn(
            self._client, self, written, agent=agent, idempotency_key=idempotency_key, files=files
        )

    def head(self) -> SessionHead:
        """Return the session's head: its title, counts and state."""
        return self._read(read.get_head)

    def context(self) -> list[Chat]:
        """Return the messages that a model reads."""
        return self._client.answer(
            self._client.reading(_context, self._key, self.id, profile=self._client.profile)
        )

    def messages(
        self,
        *,
        limit: int = 60,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
    ) -> read.TranscriptWindow:
        """Return a part of the transcript: its end, or before, after or around an entry."""
        return self._read(read.read_window, limit=limit, before=before, after=after, around=around)

    def read_file(self, blob: str) -> bytes:
        """Return the bytes of an attachment of this session, named by the `blob` of its part."""
        return self._read(_read_file, blob)

    def rename(self, title: str) -> SessionHead:
        """Give the session a title; an empty one removes it."""
        return self._write(edit.rename, title)

    def pin(self, *, pinned: bool = True) -> SessionHead:
        """Keep the session at the top of lists, or stop doing so."""
        return self._write(edit.pin, pinned=pinned)

    def archive(self, *, archived: bool = True) -> SessionHead:
        """Move the session to the archive, or back."""
        return self._write(edit.archive, archived=archived)

    def trash(self) -> SessionHead:
        """Move the session and its subagents to the trash for 30 days."""
        return self._write(edit.trash, moment=self._client.moment())

    def restore(self) -> SessionHead:
        """Take the session out of the trash, with the subagents that were trashed with it."""
        return self._write(edit.restore)

    def purge(self) -> purge.PurgeResult:
        """Delete the session's messages forever."""
        return self._write(purge.purge, moment=self._client.moment())

    def end(self, reason: str = "closed") -> SessionHead:
        """Close the session; one that has ended keeps its reason."""
        return self._write(edit.end, reason=reason, moment=self._client.moment())

    def reopen(self) -> SessionHead:
        """Open an ended session again."""
        return self._write(edit.reopen)

    def hold(self, reason: str, *, until: datetime | None = None) -> Hold:
        """Keep the session from being reset by its policy: until a time, or until `release`.

        The same reason again sets another end. A command such as `/new` still ends the session.
        """
        return self._write(hold_actions.add_hold, reason, until=until, moment=self._client.moment())

    def release(self, reason: str | None = None) -> list[Hold]:
        """Release the hold with this reason, or all holds; return those that were released.

        Raises `NotFound` for a reason that does not hold the session.
        """
        return self._write(hold_actions.release_hold, reason, moment=self._client.moment())

    def holds(self) -> list[Hold]:
        """Return the holds that keep the session from being reset by its policy."""
        return self._read(_holds, now=self._client.moment().now)

    def undo(self, rounds: int = 1) -> SessionHead:
        """Take back the person's last messages and the replies to them."""
        return self._write(revise.undo, rounds=rounds, at=self._client.moment().now)

    def retract(self, after: int, *, reason: str = "undo") -> SessionHead:
        """Take back everything after an entry."""
        return self._write(revise.retract, after=after, reason=reason, at=self._client.moment().now)

    def compact(self, summary: str, *, through: int) -> SessionHead:
        """Replace everything up to an entry by a summary, for the model only."""
        return self._write(revise.compact, summary, through=through, at=self._client.moment().now)

    def fork(self, at: int | None = None, *, title: str | None = None) -> "Session":
        """Begin a session with this one's history up to an entry."""
        client = self._client
        made = self._pending(
            client.writing, edit.fork, at_seq=at, title=title, moment=client.moment()
        )
        return client.answer(made.map(lambda head: Session(client, id=head.id, source=head.source)))

    def _opening(self) -> Opening:
        return Opening(self._client.profile, self.source, kind=self._kind, title=self._title)

    def _read(self, action: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        pending: Pending[T] = self._pending(self._client.reading, action, *args, **kwargs)
        return self._client.answer(pending)

    def _write(self, action: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        pending: Pending[T] = self._pending(self._client.writing, action, *args, **kwargs)
        return self._client.answer(pending)

    def _pending(
        self, how: Callable[..., Pending[T]], action: Callable[..., T], *args: Any, **kwargs: Any
    ) -> Pending[T]:
        profile = self._client.profile
        return how(_named, self._key, self.id, action, *args, profile=profile, **kwargs)

    def _message(
        self, role: str, content: Content, fields: Mapping[str, Any]
    ) -> tuple[Message, tuple[bytes, ...]]:
        person: Person | None = fields.get("person") or (
            self.source.person if role == "user" else None
        )
        return _read_message(role, content, {**fields, "person": person})

    def _noted(self, done: log.Appended) -> log.Appended:
        self.id = done.session_id
        return done


class RunningTurn:
    """A turn that holds the session's lease; leaving the block ends it, an error fails it."""

    def __init__(
        self,
        client: "Sessionary",
        session: Session,
        written: Message | None,
        *,
        agent: str | None,
        idempotency_key: str | None = None,
        files: tuple[bytes, ...] = (),
    ) -> None:
        self._files = files
        self._client = client
        self._session = session
        self._message = written
        self._agent = agent
        self._idempotency_key = idempotency_key
        self._begun: turns.Begun | None = None

    @property
    def id(self) -> str:
        """The turn's id."""
        return self.begun.lease.turn_id

    @property
    def begun(self) -> turns.Begun:
        """What beginning the turn returned."""
        if self._begun is None:
            raise NotFound("The turn has not begun: use it in a `with` block.")
        return self._begun

    def append(
        self, role: str, content: Content, *, usage: Usage | None = None, **fields: Any
    ) -> log.Appended:
        """Add a finished step."""
        client = self._client
        written, files = _read_message(role, content, fields)
        used = client.priced(usage, at=None)
        pending = client.writing(
            turns.add_step,
            self.begun.lease,
            written,
            used,
            profile=client.profile,
            moment=client.moment(),
            files=files,
        )
        return client.answer(pending)

    def checkpoint(self, text: str) -> None:
        """Store the text streamed so far."""
        return self._client.answer(self._client.writing(turns.checkpoint, self.begun.lease, text))

    def renew(self, seconds: float = LEASE_SECONDS) -> None:
        """Extend the lease; call this before it expires."""
        now = self._client.moment().now
        return self._client.answer(
            self._client.writing(turns.renew, self.begun.lease, seconds=seconds, now=now)
        )

    def __enter__(self) -> Self:
        self._note(self._beginning().result())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ending(error).result()

    async def __aenter__(self) -> Self:
        self._note(await self._beginning())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._ending(error)

    def _beginning(self) -> Pending[turns.Begun]:
        client, session = self._client, self._session
        moment = client.moment()
        claim = turns.Claim(client.holder, LEASE_SECONDS, self._agent)
        if session._key is not None and self._message is not None:
            policy = client.policies.choose(session.source)
            return client.writing(
                turns.begin_for_source,
                session._key,
                session.source,
                self._message,
                policy=policy,
                claim=claim,
                moment=moment,
                idempotency_key=self._idempotency_key,
                files=self._files,
            )
        return client.writing(
            _begin,
            session._key,
            session.id,
            session._opening(),
            self._message,
            claim=claim,
            moment=moment,
            idempotency_key=self._idempotency_key,
            files=self._files,
        )

    def _ending(self, error: BaseException | None) -> Pending[Any]:
        client, lease, moment = self._client, self.begun.lease, self._client.moment()
        if error is None:
            return client.writing(
                turns.end, lease, turns.Ending(), profile=client.profile, moment=moment
            )
        state = TurnState.FAILED if isinstance(error, Exception) else TurnState.INTERRUPTED
        return client.writing(
            turns.end_failed,
            lease,
            state=state,
            reason=f"{type(error).__name__}: {error}",
            profile=client.profile,
            moment=moment,
        )

    def _note(self, begun: turns.Begun) -> None:
        self._begun = begun
        self._session.id = begun.route.session_id


def _begin(
    tx: Tx,
    key: SessionKey | None,
    id: str | None,
    opening: Opening,
    written: Message | None,
    *,
    claim: turns.Claim,
    moment: Moment,
    idempotency_key: str | None = None,
    files: tuple[bytes, ...] = (),
) -> turns.Begun:
    """Begin a turn; the first message of a new session creates it."""
    if key is None and id is None and written is not None:
        id = edit.open_session(tx, opening, moment=moment)
    return turns.begin_in_session(
        tx,
        _id(tx, key, id),
        written,
        profile=opening.profile,
        claim=claim,
        moment=moment,
        idempotency_key=idempotency_key,
        files=files,
    )


def _read_message(
    role: str, content: Content, fields: Mapping[str, Any]
) -> tuple[Message, tuple[bytes, ...]]:
    """Return the message, and the bytes of its files."""
    if isinstance(content, str) and role != Role.TOOL:
        return message(role, content, **fields), ()
    # Loads msgspec and a Markdown parser: 0.1 s that a program which only writes texts saves.
    from sessionary.formats.message_input import read_message

    made = read_message(role, content, **fields)
    return made.message, made.files


def _named(
    tx: Tx,
    key: SessionKey | None,
    id: str | None,
    action: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run an action on the session of a key or an id."""
    return action(tx, _id(tx, key, id), *args, **kwargs)


def _read_file(tx: Tx, id: str, blob: str, *, profile: str) -> bytes:
    return files.read_blob(tx, blob, session_no=read.get_head(tx, id, profile=profile).no)


def _holds(tx: Tx, id: str, *, profile: str, now: datetime) -> list[Hold]:
    return hold_actions.list_holds(tx, read.get_head(tx, id, profile=profile), now=now)


def _context(tx: Tx, key: SessionKey | None, id: str | None, *, profile: str) -> list[Chat]:
    try:
        return read.read_context(tx, _id(tx, key, id), profile=profile)
    except NotFound:
        if id is None:
            return []  # there is no message yet
        raise


def _id(tx: Tx, key: SessionKey | None, id: str | None) -> str:
    head = None if key is None else routing.get_current(tx, key)
    found = head.id if head is not None else id
    if found is None:
        raise NotFound("The session has no messages yet.")
    return found
