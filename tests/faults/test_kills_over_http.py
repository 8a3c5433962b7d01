"""The server is killed again and again while people write to it; every answer it gave stays true."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.crowd import Crowd
from tests.faults.server import Served, wait_until
from tests.support.history import Outcome, judge
from tests.support.postgres import Server

SEED = 20260302


@pytest.fixture(params=("sqlite", "postgres"))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    if request.param == "sqlite":
        made = Served(tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'sessionary.db'}")
        yield made
        made.close()
    else:
        postgres: Server = request.getfixturevalue("postgres")
        url = postgres.create_database()
        made = Served(tmp_path / "home", url)
        yield made
        made.close()
        postgres.drop_database(url)


def wait_for_outcomes(server: Served, crowd: Crowd) -> None:
    """Every arrival that was accepted comes to an end: done, failed or interrupted."""
    waiting = set(crowd.arrivals.values())

    def all_ended() -> bool:
        for arrival in list(waiting):
            _, answer = server.ask("GET", f"/arrivals/{arrival}")
            if answer.get("turn_state") in {"done", "interrupted", "failed"}:
                waiting.discard(arrival)
        return not waiting

    wait_until(all_ended, seconds=150)


def torment(server: Served, crowd: Crowd, rng: random.Random, kills: int) -> None:
    """Kill the server at any instant, as soon as it has answered a few people."""
    for _ in range(kills):
        wanted = crowd.answered + 10
        wait_until(lambda wanted=wanted: crowd.answered >= wanted)
        time.sleep(rng.uniform(0, 0.2))
        server.kill()
        server.start()
    wanted = crowd.answered + 10
    wait_until(lambda: crowd.answered >= wanted)


@pytest.mark.timeout(900)
def test_a_server_that_is_killed_keeps_every_promise(
    server: Served, kills: int, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(SEED)
    server.start()
    crowd = Crowd(server, seed=SEED)
    crowd.start()
    try:
        torment(server, crowd, rng, kills)
    finally:
        crowd.stop()
    crowd.settle()

    wait_for_outcomes(server, crowd)
    tokens = rng.sample(sorted(crowd.arrivals), 15)
    broken = judge(crowd.history.attempts, server.read(tokens))
    code = server.stop()
    checked = server.command("verify", "--json")

    requests = len(crowd.history.attempts)
    unknown = crowd.history.count(Outcome.UNKNOWN)
    named = Counter(each.invariant for each in broken)
    record_property(
        "counts",
        f"kills={kills} requests={requests} acknowledged={crowd.answered} "
        f"unanswered={unknown} lost={named['no loss']} "
        f"doubled={named['no duplicate']} broken={len(broken)}",
    )
    assert broken == []
    assert unknown > 0, "no request was cut off: the kills came at the wrong time"
    assert code == 0
    assert json.loads(checked)["ok"]
