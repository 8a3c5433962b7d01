"""People who write to a server at once, and write again when they get no answer."""

import itertools
import random
import threading
import time

from tests.faults.server import Gone, Served
from tests.support.history import Attempt, History, Outcome

CHATS = 10


class Crowd:
    """Threads that send messages until they are stopped; all they did is in the history."""

    def __init__(self, server: Served, *, seed: int, size: int = 4) -> None:
        self.server = server
        self.history = History()
        self.arrivals: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._seed = seed
        self._counter = itertools.count()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(n,)) for n in range(size)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)

    def settle(self) -> None:
        """Ask again for everything that got no answer, with the same keys."""
        for attempt in self.history.unknown():
            self._send(attempt.token, attempt.place)

    @property
    def answered(self) -> int:
        return self.history.count(Outcome.OK)

    def _live(self, number: int) -> None:
        rng = random.Random(f"{self._seed}/{number}")
        open_questions: list[tuple[str, str]] = []
        while not self._stopping.is_set():
            if open_questions and rng.random() < 0.5:
                token, place = open_questions.pop()
            else:
                token = f"tok{number}q{next(self._counter)}"
                place = f"chat-{rng.randrange(CHATS)}"
            if self._send(token, place).outcome is Outcome.UNKNOWN:
                open_questions.append((token, place))
                time.sleep(0.1)

    def _send(self, token: str, place: str) -> Attempt:
        with self.history.attempt(token, place) as attempt:
            body = {
                "source": {"platform": "test", "chat_id": place},
                "text": f"{token} said in {place}",
                "platform_message_id": token,
            }
            try:
                status, answer = self.server.ask("POST", "/arrivals", body)
            except Gone:
                return attempt
            if status == 202:
                attempt.answered(answer["session_id"])
                self.arrivals[token] = answer["arrival_id"]
            elif answer.get("committed") == "no":
                attempt.refused()
        return attempt
