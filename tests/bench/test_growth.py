"""Growth runs, tiny, on both databases; the simulation answers as arithmetic does where it can."""

import csv
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import fleet, growth, populate, search_store
from benchmarks.corpus import Language, corpus
from benchmarks.fleet import FSYNC_SECONDS, MOST_BUSY, STEPS, STEPS_TO_REPLY, Costs
from benchmarks.growth_place import opened, running
from sessionary.actions import verify
from sessionary.actions.sessions.lists import SessionFilters, list_sessions

COST = Costs("SQLite", 0.002, 0.0, 0.001, 0.0, 20_000, 3_000)


@pytest.mark.timeout(600)
def test_every_operation_is_measured_at_every_size_on_both_databases(tmp_path: Path) -> None:
    lines: list[str] = []

    points = growth.main(scale="tiny", output=tmp_path / "growth.csv", echo=lines.append)

    extent = growth.EXTENTS["tiny"]
    measured = {(each.database, each.grown, each.operation): set[int]() for each in points}
    for each in points:
        measured[each.database, each.grown, each.operation].add(each.size)
        assert each.count > 0, each
        assert 0 < each.p50_ms <= each.p99_ms, each
    for (database, grown, _), sizes in measured.items():
        assert sizes == set(extent.sessions if grown == "sessions" else extent.messages), database
    assert len(lines) == len(points) + 1
    with (tmp_path / "growth.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(points)
    assert len(list(fleet.lines(fleet.read(tmp_path / "growth.csv"), [10**6]))) == 4


@pytest.mark.timeout(600)
def test_one_part_is_measured_anew_and_the_others_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "growth.csv"

    first = growth.main(scale="tiny", output=file, echo=_ignore, only=["sqlite-messages"])
    again = growth.main(scale="tiny", output=file, echo=_ignore, only=["sqlite-sessions"])

    kept = [(row["grown"], row["operation"], row["p50_ms"]) for row in fleet.read(file)]
    assert kept == [(each.grown, each.operation, str(each.p50_ms)) for each in (*first, *again)]


def test_a_run_that_is_ended_keeps_what_it_has_measured(tmp_path: Path) -> None:
    file = tmp_path / "growth.csv"
    lines: list[str] = []

    def until_the_third(line: str) -> None:
        lines.append(line)
        if len(lines) == 4:  # with the heading
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        growth.main(scale="tiny", output=file, echo=until_the_third, only=["sqlite-sessions"])

    assert len(fleet.read(file)) == 3


def test_a_server_gets_the_same_store_and_verify_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(populate.opened(path)) as store:
        search_store.fill(store, corpus(Language(), 300))
        populate.open_many(store, range(1_000, 1_010))
        wanted = store.read(list_sessions, SessionFilters(), profile=populate.PROFILE).result()

    with running() as server, server.copy_of(path) as place, closing(opened(place)) as copied:
        found = copied.read(list_sessions, SessionFilters(), profile=populate.PROFILE).result()
        assert found.items == wanted.items
        assert not verify.verify(copied).broken
        session = copied.write(populate.open_plain, 1).result()[0]
        copied.write(populate.fill, session, 0, 3).result()
        assert copied.catch_up(None).result().behind == 0


def _ignore(_: str) -> None:
    pass


def test_a_turn_that_is_alone_waits_for_its_own_steps_only() -> None:
    alone = fleet.simulate(COST, 0.2, seconds=400)

    cpu = (COST.cpu + COST.reading_cpu) * STEPS_TO_REPLY / STEPS
    assert alone.p50 == pytest.approx(cpu + STEPS_TO_REPLY * FSYNC_SECONDS)
    assert alone.busy == pytest.approx(0.2 * (COST.cpu + COST.reading_cpu), rel=0.3)


def test_those_who_wait_at_once_share_a_sync() -> None:
    quick = Costs("SQLite", 0.0001, 0.0, 0.0, 0.0, 1, 1)

    busy = fleet.simulate(quick, 2_000)

    assert busy.syncs <= 1 / FSYNC_SECONDS
    assert busy.syncs < 2_000 * STEPS / 10


def test_a_thousand_times_the_messages_need_as_many_more_processes_as_rates_say() -> None:
    small, large = fleet.need(COST, 10**6), fleet.need(COST, 10**9)

    assert small.processes == 1
    assert large.peak_turns == pytest.approx(1000 * small.peak_turns)
    assert large.cores / large.processes <= MOST_BUSY * 1.1
    assert large.bytes_a_year == pytest.approx(10**9 / 2 * 365 * COST.stored)
