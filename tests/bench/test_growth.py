"""Growth runs, tiny, on both databases; the simulation answers as arithmetic does where it can."""

import csv
from pathlib import Path

import pytest

from benchmarks import fleet, growth
from benchmarks.fleet import FSYNC_SECONDS, MOST_BUSY, STEPS, Costs

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


def test_a_turn_that_is_alone_waits_for_its_own_steps_only() -> None:
    alone = fleet.simulate(COST, 0.2, seconds=400)

    assert alone.p50 == pytest.approx(COST.cpu + COST.reading_cpu + STEPS * FSYNC_SECONDS)
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
