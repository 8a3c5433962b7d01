"""A gateway that records its chats through `SessionStore` and `SessionDB` until it is killed.

Each call is a line in a report before it is made and after it has returned. Run as a program, it
forks such a gateway for each line on standard input, as `tests.walks.writing_child` does.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import sessionary.store.postgres.store  # noqa: F401  # imported before the fork, like everything else
from sessionary.compat.hermes.config import GatewayConfig, Platform, SessionResetPolicy
from sessionary.compat.hermes.session import SessionEntry, SessionSource, SessionStore
from sessionary.compat.hermes.state import SessionDB
from tests.walks.writing_child import Reporter, nurse

T = TypeVar("T")
CHATS = 3
# The checker must keep up on a slow machine.
TURNS_AT_FULL_SPEED = 30
PAUSE_SECONDS = 0.02


class Chat(threading.Thread):
    """One chat: every turn is recorded as a Hermes gateway records it."""

    def __init__(self, db: SessionDB, chat: str, name: str, *, seed: int, report: Reporter) -> None:
        super().__init__(name=f"{name}.{chat}", daemon=True)
        self._db = db
        never = SessionResetPolicy(mode="none")
        self._store = SessionStore(None, GatewayConfig(default_reset_policy=never), db=db)
        self._source = SessionSource(Platform.TELEGRAM, chat, user_id=chat)
        self._chat = chat
        self._random = random.Random(f"{seed}{chat}")
        self._report = report
        self._count = 0

    def run(self) -> None:
        try:
            for turn in range(1_000_000):
                if turn > TURNS_AT_FULL_SPEED:
                    time.sleep(PAUSE_SECONDS)
                self._turn()
        except BaseException as error:
            self._report.tell("crash", self.name, error=repr(error))
            raise

    def _turn(self) -> None:
        store, db = self._store, self._db
        entry = self._call(
            "entry",
            lambda token: store.get_or_create_session(self._source),
            answer=_session_of,
        )
        id, key = entry.session_id, entry.session_key
        self._call(
            "say",
            lambda token: store.append_to_transcript(id, {"role": "user", "content": token}),
            session=id,
        )
        self._call(
            "append",
            lambda token: db.append_message(
                id, "assistant", token, tool_calls=[{"id": token}], finish_reason="tool_calls"
            ),
            answer=lambda number: {"number": number},
            session=id,
        )
        self._call(
            "batch",
            lambda token: db.append_messages_batch(
                id,
                [
                    {"role": "tool", "content": f"{token}.a", "tool_call_id": token},
                    {"role": "assistant", "content": f"{token}.b", "finish_reason": "stop"},
                ],
            ),
            session=id,
        )
        self._call("count", lambda token: db.update_token_counts(id, input_tokens=1), session=id)
        store.update_session(key, last_prompt_tokens=self._count)
        match self._random.randrange(10):
            case 0:
                self._call("title", lambda token: db.set_session_title(id, token), session=id)
            case 1:
                self._call("note", lambda token: db.set_meta(f"note-{self._chat}", token))
            case 2:
                self._call("rewrite", self._rewrite, session=f"notes-{self._chat}")
            case 3:
                self._call(
                    "reset",
                    lambda token: store.reset_session(key),
                    answer=_session_of,
                )
            case 4:
                self._compress(id, key)

    def _rewrite(self, token: str) -> None:
        messages = [{"role": "user", "content": f"{token}.{n}"} for n in range(3)]
        self._store.rewrite_transcript(f"notes-{self._chat}", messages)

    def _compress(self, id: str, key: str) -> None:
        """Continue in a new session that begins with a summary."""
        new = f"{id}_{self.name}_{self._count}"
        if not self._db.try_acquire_compression_lock(id, self.name, ttl_seconds=0.1):
            return
        self._call("end", lambda token: self._db.end_session(id, "compression"), session=id)
        self._call(
            "create",
            lambda token: self._db.create_session(new, "telegram", parent_session_id=id),
            session=new,
        )
        self._call(
            "summary",
            lambda token: self._db.replace_messages(new, [{"role": "user", "content": token}]),
            session=new,
        )
        self._call(
            "switch",
            lambda token: self._store.switch_session(key, new),
            answer=_session_of,
        )
        self._db.release_compression_lock(id, self.name)

    def _call(
        self,
        op: str,
        call: Callable[[str], T],
        *,
        answer: Callable[[T], dict[str, Any]] = lambda _: {},
        **facts: Any,
    ) -> T:
        self._count += 1
        token = f"{self.name}.{self._count}"
        self._report.tell("try", token, op=op, chat=self._chat, **facts)
        returned = call(token)
        self._report.tell("ok", token, op=op, chat=self._chat, **facts | answer(returned))
        return returned


def _session_of(entry: SessionEntry | None) -> dict[str, Any]:
    return {} if entry is None else {"session": entry.session_id}


def gateway(order: dict[str, Any]) -> None:
    """Serve chats until killed."""
    report = Reporter(order["report"])
    db = SessionDB(order["url"])
    chats = [
        Chat(db, f"{order['slot']}{n}", order["name"], seed=order["seed"], report=report)
        for n in range(CHATS)
    ]
    for each in chats:
        each.start()
    time.sleep(order["seconds"])


if __name__ == "__main__":
    nurse(gateway)
