"""The workbench and what it asks for: a real server on a large store, and a real browser."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from benchmarks import web_page
from benchmarks.corpus import Language
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Goal, Sample, Scale, repeat
from benchmarks.web_server import Asked, Web, serve

FLOOR = "GET /healthz"
LIST, SEARCH, OPEN = "the first page of the list", "a search, 30 hits", "the last 60 of 2,000"
DRAFT, TURN = "a draft", "a turn, durable"
LIST_BYTES = 25_000
_MEGABYTE = 1024 * 1024


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """What the page asks for, then the page."""
    language = Language()
    with ExitStack() as stack:
        web = serve(folder, language, scale, stack)
        yield _reading(web, language)
        # Before anything is written: the long session stands first in the list.
        yield from web_page.cases(web, scale, stack)
        yield _writing(web)
        yield _afterwards(web)


def _reading(web: Web, language: Language) -> Case:
    page = web.ask("GET", "/sessions")
    words = cycle(
        [*language.words[60_000::4_000], *language.words[2_000:2_030], *language.words[:15]]
    )
    searched = f"/sessions/{web.long_id}/entries?limit=60"
    return Case(
        "what the page reads",
        (
            _asking(LIST, lambda: web.ask("GET", "/sessions")),
            _asking(SEARCH, lambda: web.ask("GET", f"/search?q={next(words)}&limit=30")),
            _asking(OPEN, lambda: web.ask("GET", searched)),
            _floor(web),
        ),
        (
            _within(LIST, 30),
            at_most(LIST_BYTES, "bytes", lambda _: len(page.body), of=LIST),
            _within(SEARCH, 150),
            _within(OPEN, 40),
        ),
        by="p50",
    )


def _writing(web: Web) -> Case:
    heads = web.json("/session-rows?limit=200&fields=id")["items"]
    ids = cycle([head["id"] for head in heads if head["id"] != web.long_id])
    return Case(
        "what the page writes",
        (
            _asking(
                DRAFT, lambda: web.ask("PATCH", f"/sessions/{next(ids)}", {"draft": "half a line"})
            ),
            Contestant(TURN, "product", _turns(web, ids)),
            _floor(web),
        ),
        (_within(DRAFT, 20), _within(TURN, 20)),
        by="p50",
    )


def _turns(web: Web, ids: Iterator[str]) -> Callable[[float], Sample]:
    """One message after the other, each when the one before it has been answered."""

    def run(seconds: float) -> Sample:
        latencies: list[float] = []
        began = time.perf_counter()
        while not latencies or time.perf_counter() - began < seconds:
            id = next(ids)
            asked = web.ask("POST", f"/sessions/{id}/turns", {"text": "hi"})
            latencies.append(asked.seconds)
            web.json(f"/arrivals/{json.loads(asked.body)['arrival_id']}?wait=30")
        return Sample(len(latencies), sum(latencies), latencies)

    return run


def _afterwards(web: Web) -> Case:
    resident = web.resident_bytes or 0
    return Case(
        "the server afterwards",
        (_floor(web),),
        (at_most(120, "MiB resident", lambda _: resident / _MEGABYTE),),
    )


def _asking(name: str, ask: Callable[[], Asked]) -> Contestant:
    def one() -> None:
        ask()

    return Contestant(name, "product", repeat(one))


def _floor(web: Web) -> Contestant:
    def one() -> None:
        web.ask("GET", "/healthz", api=False)

    run: Callable[[float], Sample] = repeat(one)
    return Contestant(FLOOR, "floor", run)


def _within(name: str, milliseconds: float) -> Goal:
    return at_most(
        milliseconds, "ms", lambda got: got.percentile(name, 95) * 1000, of=f"p95 of {name}"
    )
