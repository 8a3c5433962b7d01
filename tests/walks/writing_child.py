"""A process that writes to a store until it is killed, and reports every answer it got.

The program is a fork server: it imports everything once and forks a writing child for each line on its
standard input, so that a child writes within milliseconds. A report is a line in a file, written
before the call and after its answer; what was written is there whenever the child is killed.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import sessionary.store.postgres.store  # noqa: F401  # imported before the fork, like everything else
from sessionary.actions import inbox, turns
from sessionary.actions.sessions import edit, log
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.errors import Conflict, RetryLater, SessionaryError
from sessionary.model.message import Message, Text, message
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import Opening
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.model.usage import Usage
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from tests.support.dead_turns import interrupt_dead_turns

PROFILE = "main"
CHATS = 5
LEASE_SECONDS = 0.4
# After CALLS_AT_FULL_SPEED calls a thread pauses between calls, so that the checker keeps up on a slow machine.
CALLS_AT_FULL_SPEED = 200
PAUSE_SECONDS = 0.01
NEVER = ResetPolicy()

P = ParamSpec("P")
T = TypeVar("T")


def moment_of() -> Moment:
    """This moment."""
    return Moment(SystemClock().now(), RandomIds())


def source_of(chat: int) -> Source:
    """Where the messages of a chat come from."""
    return Source("telegram", str(chat), user_id="7", user_name="Ada")


def key_of(chat: int) -> SessionKey:
    """The key that all children share for a chat."""
    return key_for(source_of(chat), profile=PROFILE)


def write_in_time(
    store: Store, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Write, and try again as a caller should whom a busy store refuses without having written."""
    while True:
        try:
            return store.write(action, *args, **kwargs).result()
        except RetryLater as error:
            if error.committed != "no":
                raise
            time.sleep(PAUSE_SECONDS)


def open_with_message(
    tx: Tx, message: Message, moment: Moment, idempotency_key: str
) -> log.Appended:
    """Open a session with its first message in one transaction."""
    session = edit.open_session(tx, Opening(PROFILE, Source("terminal")), moment=moment)
    return log.append(
        tx, session, message, profile=PROFILE, at=moment.now, idempotency_key=idempotency_key
    )


class Reporter:
    """Writes down each call before it is made and after it was answered."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, what: str, token: str, **facts: Any) -> None:
        """One line, written at once."""
        line = {"what": what, "token": token, "at": time.monotonic_ns(), **facts}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


class Writer(threading.Thread):
    """One thread of a child: direct appends to a session of its own, turns in shared chats."""

    def __init__(self, store: Store, name: str, seed: int, report: Reporter) -> None:
        super().__init__(name=name, daemon=True)
        self._store = store
        self._random = random.Random(seed)
        self._report = report
        self._count = 0
        self._session = ""

    def run(self) -> None:
        try:
            self._open()
            while True:
                if self._count > CALLS_AT_FULL_SPEED:
                    time.sleep(PAUSE_SECONDS)
                if self._random.random() < 0.4:
                    self._append_direct()
                else:
                    self._take_turn(self._random.randrange(CHATS))
        except BaseException as error:
            self._report.tell("crash", self.name, error=repr(error))
            raise

    def retry(self, wanted: list[dict[str, str]]) -> None:
        """Repeat appends whose answer a killed child never got, with their keys."""
        for each in wanted:
            self._append(each["token"], each["session"], tell_try=False)

    def _token(self) -> str:
        self._count += 1
        return f"{self.name}.{self._count}"

    def _call(self, op: str, token: str, action: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a call that may be refused; a refusal is an answer too."""
        facts = kwargs.pop("facts", {})
        self._report.tell("try", token, op=op, **facts)
        try:
            answer = write_in_time(self._store, action, *args, **kwargs)
        except Conflict as error:
            self._report.tell("no", token, op=op, error=type(error).__name__)
            return None
        except SessionaryError as error:
            self._report.tell("crash", token, op=op, error=repr(error))
            raise
        where = {}
        if isinstance(answer, log.Appended):
            where = {"session": answer.session_id, "no": answer.session_no, "seq": answer.seq}
        self._report.tell("ok", token, op=op, **facts | where)
        return answer

    def _open(self) -> None:
        token = self._token()
        made = self._call(
            "open", token, open_with_message, message("user", token), moment_of(), token
        )
        self._session = made.session_id

    def _append_direct(self) -> None:
        token = self._token()
        first = self._append(token, self._session)
        if self._random.random() < 0.1:
            again = self._append(token, self._session, tell_try=False)
            if first != again and (first.seq, True) != (again.seq, again.repeated):
                self._report.tell("crash", token, error=f"{first} became {again}")

    def _append(self, token: str, session: str, *, tell_try: bool = True) -> Any:
        at = SystemClock().now()
        new_message = message("user", token)
        if tell_try:
            facts = {"session": session, "idempotency_key": token}
            return self._call(
                "append",
                token,
                log.append,
                session,
                new_message,
                profile=PROFILE,
                at=at,
                idempotency_key=token,
                facts=facts,
            )
        return write_in_time(
            self._store,
            log.append,
            session,
            new_message,
            profile=PROFILE,
            at=at,
            idempotency_key=token,
        )

    def _take_turn(self, chat: int) -> None:
        token = self._token()
        self._call(
            "receive",
            token,
            inbox.receive,
            key_of(chat),
            source_of(chat),
            message("user", token),
            moment=moment_of(),
            idempotency_key=token,
        )
        if self._random.random() < 0.1:
            write_in_time(self._store, interrupt_dead_turns, moment=moment_of())
        claim = turns.Claim(self.name, LEASE_SECONDS)
        begun = write_in_time(
            self._store, turns.begin, key_of(chat), policy=NEVER, claim=claim, moment=moment_of()
        )
        if begun is not None:
            self._speak(begun.lease, chat)

    def _speak(self, lease: Any, chat: int) -> None:
        turn = {"turn": lease.turn_id}
        for _ in range(self._random.randrange(3)):
            token = self._token()
            at = SystemClock().now()
            if self._random.random() < 0.5:
                self._call("checkpoint", token, turns.checkpoint, lease, token, facts=turn)
            else:
                self._call(
                    "step", token, turns.append_step, lease, message("assistant", token),
                    profile=PROFILE, at=at, idempotency_key=token, facts=turn,
                )  # fmt: skip
        token = self._token()
        channel = source_of(chat).channel
        assert channel is not None
        ending = turns.Ending(
            messages=(message("tool", token + ".a"), message("assistant", token + ".b")),
            usage=(Usage(call_id=token, input_tokens=3, cost_microusd=2),),
            replies=(turns.TurnReply(channel, (Text(token),)),),
        )
        self._call(
            "end", token, turns.end, lease, ending, profile=PROFILE, moment=moment_of(), facts=turn
        )


def child(order: dict[str, Any]) -> None:
    """Write until killed; `seconds` ends it sooner, for those who may live."""
    report = Reporter(order["report"])
    store = open_store(order["url"], create=True, clock=SystemClock(), ids=RandomIds())
    writers = [
        Writer(store, f"{order['name']}.{n}", order["seed"] + n, report)
        for n in range(order["threads"])
    ]
    writers[0].retry(order["retry"])
    for writer in writers:
        writer.start()
    time.sleep(order["seconds"])
    os._exit(0)


def nurse(bear: Callable[[dict[str, Any]], None]) -> None:
    """Fork a child for each order on standard input, and say its number."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        number = os.fork()
        if number == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                bear(order)
                os._exit(0)
            except BaseException as error:
                Reporter(order["report"]).tell("crash", order["name"], error=repr(error))
            finally:
                os._exit(1)
        print(number, flush=True)


if __name__ == "__main__":
    nurse(child)
