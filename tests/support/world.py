"""A store with a fake clock and predictable ids, and short helpers to fill it."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from sessionary.actions import inbox, turns
from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, log, read, routing
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.actions.sessions.log import Appended
from sessionary.actions.turns import Begun, Claim, Ending
from sessionary.clock import Moment, to_micros
from sessionary.model.message import Entry, Message, message
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import Kind, Opening, SessionFolder, SessionHead
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.model.transcript import Chat
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions
from sessionary.testing.fakes import FakeClock, SequentialIds

P = ParamSpec("P")
T = TypeVar("T")

ANN = Source("telegram", "ann-chat", user_id="ann", user_name="Ann")
BOB = Source("telegram", "bob-chat", user_id="bob", user_name="Bob")
NO_RESET = ResetPolicy()
LEASE_SECONDS = 30.0


class World:
    """What a test of a store needs. Every helper that writes moves the clock by a second."""

    def __init__(self, store: Store, *, profile: str = "main", name: str = "worker") -> None:
        self.store = store
        self.profile = profile
        self.name = name
        self.clock = FakeClock()
        # Two worlds on one store never make the same id.
        self.ids = SequentialIds(name if profile == "main" else profile)

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an action in a transaction and wait for its commit."""
        return self.store.write(action, *args, **kwargs).result()

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an action that only reads."""
        return self.store.read(action, *args, **kwargs).result()

    def moment(self) -> Moment:
        """The next moment."""
        return Moment(self.clock.tick(), self.ids)

    def key(self, source: Source) -> SessionKey:
        """The source's key in this world's profile."""
        return key_for(source, profile=self.profile)

    def session(
        self, *texts: str, source: Source = ANN, kind: Kind = Kind.CHAT, **fields: Any
    ) -> str:
        """Open a session without a key, with texts of a person and the agent in turn; return its id."""
        opening = Opening(self.profile, source, kind=kind, **fields)
        return self.write(_open, opening, texts or ("hello",), moment=self.moment())

    def append_text(self, session_id: str, text: str, role: str = "user", **how: Any) -> Appended:
        """Append a text to a session."""
        return self.append(session_id, message(role, text), **how)

    def append(self, session_id: str, new_message: Message, **how: Any) -> Appended:
        """Append a message to a session."""
        how.setdefault("profile", self.profile)
        return self.write(log.append, session_id, new_message, at=self.clock.tick(), **how)

    def arrive(self, source: Source, text: str, **how: Any) -> bool:
        """Put a message into the inbox; return whether it was new."""
        return self.arrive_as(self.key(source), source, text, **how)

    def arrive_as(self, key: SessionKey, source: Source, text: str, **how: Any) -> bool:
        """Put a message into the inbox under another key than the source's own."""
        new_message = message("user", text)
        return self.write(inbox.receive, key, source, new_message, moment=self.moment(), **how)[1]

    def begin(self, source: Source, *, policy: ResetPolicy = NO_RESET) -> Begun | None:
        """Begin a turn with what waits for the source's key."""
        claim = Claim(self.name, LEASE_SECONDS)
        key = self.key(source)
        return self.write(turns.begin, key, policy=policy, claim=claim, moment=self.moment())

    def begin_as(self, key: SessionKey) -> Begun:
        """Begin a turn with what is known to wait for a key."""
        claim = Claim(self.name, LEASE_SECONDS)
        begun = self.write(turns.begin, key, policy=NO_RESET, claim=claim, moment=self.moment())
        if begun is None:
            raise AssertionError("a turn is running already, or nothing waits")
        return begun

    def begin_in(self, session_id: str, text: str | None = None) -> Begun:
        """Begin a turn in a session that is named."""
        prompt = None if text is None else message("user", text)
        claim = Claim(self.name, LEASE_SECONDS)
        return self.write(
            turns.begin_in_session,
            session_id,
            prompt,
            profile=self.profile,
            claim=claim,
            moment=self.moment(),
        )

    def finish(self, begun: Begun, text: str | None = None, **ending: Any) -> list[Appended]:
        """End a turn, perhaps with a reply."""
        if text is not None:
            ending["messages"] = (message("assistant", text),)
        return self.write(
            turns.end, begun.lease, Ending(**ending), profile=self.profile, moment=self.moment()
        )

    def talk(
        self, text: str, reply: str = "hi!", *, source: Source = ANN, policy: ResetPolicy = NO_RESET
    ) -> str:
        """One whole exchange through inbox and turn; return its session."""
        self.arrive(source, text)
        begun = self.begin(source, policy=policy)
        if begun is None:
            raise AssertionError("a turn is running already, or nothing waits")
        self.finish(begun, reply)
        return begun.route.session_id

    def head(self, session_id: str) -> SessionHead:
        """The session's head."""
        return self.read(read.get_head, session_id, profile=self.profile)

    def current(self, source: Source) -> SessionHead | None:
        """The current session of the source's key."""
        return self.read(routing.get_current, self.key(source))

    def transcript(self, session_id: str) -> list[Entry]:
        """What people read of a session."""
        return self.read(read.read_transcript, session_id, profile=self.profile)

    def texts(self, session_id: str) -> list[str]:
        """The words people read of a session."""
        return [e.body.text for e in self.transcript(session_id) if isinstance(e.body, Message)]

    def context(self, session_id: str) -> list[Chat]:
        """What the model reads of a session."""
        return self.read(read.read_context, session_id, profile=self.profile)

    def fork(self, session_id: str, at_seq: int | None = None, **how: Any) -> SessionHead:
        """Fork a session."""
        return self.write(
            edit.fork,
            session_id,
            profile=self.profile,
            moment=self.moment(),
            at_seq=at_seq,
            **how,
        )

    def purge(self, session_id: str) -> purge.PurgeResult:
        """Purge a session."""
        return self.write(purge.purge, session_id, profile=self.profile, moment=self.moment())

    def everything(self) -> list[Any]:
        """All sessions that can be listed, with their whole logs, for a later comparison."""
        return self.read(_everything, self.profile)


def _open(tx: Tx, opening: Opening, texts: tuple[str, ...], *, moment: Moment) -> str:
    made = edit.open_session(tx, opening, moment=moment)
    messages = [message("assistant" if at % 2 else "user", text) for at, text in enumerate(texts)]
    if opening.read_only:
        _fill(tx, made, messages, profile=opening.profile, moment=moment)
    else:
        for each in messages:
            log.append(tx, made, each, profile=opening.profile, at=moment.now)
    return made


def _fill(tx: Tx, made: str, messages: list[Message], *, profile: str, moment: Moment) -> None:
    """Fill a session that takes no appends, as an import does."""
    no = log.lock_session(tx, made, profile=profile).no
    for seq, each in enumerate(messages, start=1):
        entries.insert(tx, no, seq, at=moment.now, body=each, turn_id=None)
    at = to_micros(moment.now)
    tx.run("set_end_of_log", no=no, last_seq=len(messages), last_active_at=at)
    sessions.set_counts(tx, no, log.count_log(tx, sessions.segments(tx, no)))


def _everything(tx: Tx, profile: str) -> list[Any]:
    pages = [
        list_sessions(tx, SessionFilters(folder=s), profile=profile, limit=1000)
        for s in SessionFolder
    ]
    heads = [head for page in pages for head in page.items if head.folder is not SessionFolder.GONE]
    return [(head, read.read_log(tx, head.id, profile=profile, limit=1000)) for head in heads]
