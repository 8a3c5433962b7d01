"""A process that appends as fast as it is answered, for a given time, and then says how it went."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from sessionary.actions.sessions import log
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.message import message
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.walks.writing_child import PROFILE, moment_of, nurse, open_with_message, write_in_time


class Appender(threading.Thread):
    """One thread: appends to a session of its own and to one that all processes share."""

    def __init__(self, store: Store, name: str, shared: str, until: float) -> None:
        super().__init__(name=name, daemon=True)
        self._store = store
        self._shared = shared
        self._until = until
        self.session = ""
        self.appended: list[tuple[str, int, str]] = []
        self.latencies: list[float] = []
        self.error: str | None = None

    def run(self) -> None:
        try:
            first = message("user", f"{self.name}.open")
            made = write_in_time(self._store, open_with_message, first, moment_of(), self.name)
            self.session = made.session_id
            while time.monotonic() < self._until:
                number = len(self.appended)
                self._append(
                    f"{self.name}.{number}", self._shared if number % 4 == 0 else made.session_id
                )
        except BaseException as error:
            self.error = repr(error)

    def _append(self, token: str, session: str) -> None:
        began = time.monotonic()
        done = write_in_time(
            self._store,
            log.append,
            session,
            message("user", token),
            profile=PROFILE,
            at=SystemClock().now(),
            idempotency_key=token,
        )
        self.latencies.append(time.monotonic() - began)
        self.appended.append((session, done.seq, token))


def child(order: dict[str, Any]) -> None:
    """Append for `seconds`, then write the report."""
    store = open_store(order["url"], create=False, clock=SystemClock(), ids=RandomIds())
    until = time.monotonic() + order["seconds"]
    threads = [
        Appender(store, f"{order['name']}.{n}", order["shared"], until)
        for n in range(order["threads"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    report = {
        "errors": [thread.error for thread in threads if thread.error],
        "appended": [each for thread in threads for each in thread.appended],
        "worst": max((late for thread in threads for late in thread.latencies), default=0.0),
    }
    Path(order["report"]).write_text(json.dumps(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    nurse(child)
