"""`sessionary serve` as a process: what a start costs, how much memory it holds, what a turn costs there."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import populate, web_server, web_turn
from benchmarks.cold import Cold
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Sample, Scale
from benchmarks.raw import TEXT
from benchmarks.web_server import Web

READY = "sessionary serve, to its first answer"
EMPTY = "an empty Python"
TALKS = 100
STARTS = 3
_MEGABYTE = 2**20


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Starts a server in each round; one server is used for a while before."""
    requests = scale.messages // 5
    path = populate.build(folder, scale.sizes[1])
    store = populate.opened(path)
    token = web_server.add_token(store)
    store.close()
    home = web_server.make_home(folder, path)
    idle, after = _memory(home, token, requests)
    cpu, clock = _start(folder, home, token)
    yield Case(
        f"{scale.sizes[1]:,} sessions; used for {requests:,} requests",
        (
            Contestant(READY, "product", _starts(home, token)),
            Contestant(EMPTY, "floor", _empty),
        ),
        (
            at_most(90, "MiB resident", lambda _: idle, of="idle"),
            at_most(150, "MiB resident", lambda _: after, of="after use"),
            at_most(1.0, "s of CPU", lambda _: cpu, of="to the first answer, with bytecode"),
            at_most(1.0, "s", lambda _: clock, of="to the first answer, with bytecode"),
        ),
        by="p50",
    )
    of_turns = folder / "turns"
    of_turns.mkdir()
    yield from web_turn.cases(of_turns)


def _memory(home: Path, token: str, requests: int) -> tuple[float, float]:
    """How much it holds when it has answered once, and after so many requests."""
    with Web(home, token, "") as web:
        web.ask("GET", "/sessions?limit=1")
        idle = web.resident_bytes or 0
        for number in range(requests):
            _use(web, number)
        return idle / _MEGABYTE, (web.resident_bytes or 0) / _MEGABYTE


def _start(folder: Path, home: Path, token: str) -> tuple[float, float]:
    """What a start costs as an installed program, in CPU and by the clock.

    The first, which writes the bytecode, is left out.
    """
    environ = Cold(folder).environ
    spent, took = [], []
    for _ in range(1 + STARTS):
        began = time.perf_counter()
        with Web(home, token, "", environ=environ) as web:
            web.ask("GET", "/healthz", api=False)
            took.append(time.perf_counter() - began)
            spent.append(web.cpu_seconds or 0.0)
    return statistics.median(spent[1:]), statistics.median(took[1:])


def _use(web: Web, number: int) -> None:
    """What a day is made of: people write, lists are looked at, sessions opened, words sought."""
    match number % 5:
        case 0 | 1:
            source = {"platform": "api", "chat_id": f"talk{number % TALKS}"}
            web.ask("POST", "/arrivals", {"source": source, "text": f"{number} {TEXT}"})
        case 2:
            web.ask("GET", "/sessions?limit=50")
        case 3:
            id = web.json("/sessions?limit=1")["items"][0]["id"]
            web.ask("GET", f"/sessions/{id}/entries?limit=200")
        case _:
            web.ask("GET", f"/search?q=fox+{number}")


def _starts(home: Path, token: str) -> Callable[[float], Sample]:
    def run(_: float) -> Sample:
        began = time.perf_counter()
        with Web(home, token, "") as web:
            web.ask("GET", "/healthz", api=False)
            took = time.perf_counter() - began
        return Sample(1, took, [took])

    return run


def _empty(_: float) -> Sample:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    took = time.perf_counter() - began
    return Sample(1, took, [took])
