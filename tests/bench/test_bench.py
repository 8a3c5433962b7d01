"""The benchmarks run, tiny: every contestant does its work. No test is timed."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import command, slow_disk, table
from benchmarks.append import in_threads
from benchmarks.measure import Case, Contestant, Goal, Results, Sample, rows
from sessionary.errors import BadInput


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", command.NAMES)
def test_a_benchmark_runs_and_prints_its_table(name: str, tmp_path: Path) -> None:
    lines: list[str] = []

    found = command.main([name], scale="tiny", output=tmp_path / "rows.json", echo=lines.append)

    assert {row.kind for row in found} >= {"product", "floor"}
    assert all(row.rate > 0 for row in found if row.kind != "goal")
    assert any(line.startswith(f"{name}, disk as it is") for line in lines)
    assert len(json.loads((tmp_path / "rows.json").read_text())) == len(found)


def test_an_unknown_benchmark_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="no benchmark 'fly'"):
        command.main(["append", "fly"], echo=print)


def test_the_rows_can_be_had_as_csv(tmp_path: Path) -> None:
    found = command.main(["open"], scale="tiny", output=tmp_path / "rows.csv", echo=lambda _: None)

    with (tmp_path / "rows.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [row.name for row in found]


def test_the_slow_disk_makes_sqlite_wait(tmp_path: Path) -> None:
    library = slow_disk.build(tmp_path)
    assert library is not None
    program = (
        "import sys; from pathlib import Path; from benchmarks.raw import RawLog;"
        "raw = RawLog(Path(sys.argv[1]), sessions=1);"
        "[raw.append(1) for _ in range(50)]"
    )
    environ = slow_disk.environment(library) | {"SESSIONARY_BENCH_SYNC_MICROS": "20000"}
    began = time.monotonic()

    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "raw.db")], env=environ, check=True
    )

    assert time.monotonic() - began > 50 * 0.020
    assert "LD_PRELOAD" not in os.environ


def test_a_sample_is_not_empty_when_its_time_is_over_before_it_begins() -> None:
    sample = in_threads(lambda _: None, 2, seconds=0.0)

    assert sample.count == 2


def test_a_ratio_is_taken_round_by_round_and_a_goal_is_judged() -> None:
    fast = Contestant("fast", "product", lambda _: Sample(30, 1.0, [0.1]))
    slow = Contestant("slow", "floor", lambda _: Sample(10, 1.0, [0.3]))

    def thrice(got: Results) -> bool:
        return got.ratio("fast", "slow") == 3

    case = Case("race", (fast, slow), (Goal("three times", thrice),))
    results = Results({"fast": [fast.run(1)], "slow": [slow.run(1)]}, {"fast": [0.002]})
    found = rows("sample", "as it is", case, results)

    assert [row.ratio for row in found] == [3, None, None]
    assert [row.cpu_us for row in found] == [2000, None, None]
    assert found[-1].met == "met"


def test_a_second_run_keeps_the_rows_of_the_other_benchmarks(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    for name in ("load", "open"):
        command.main([name], scale="tiny", output=output, echo=lambda _: None)

    assert {row.bench for row in table.read(output)} == {"load", "open"}


def test_a_resumed_run_measures_only_what_the_file_does_not_have(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    command.main(["open"], scale="tiny", output=output, echo=lambda _: None)
    written = table.read(output)
    lines: list[str] = []

    found = command.main(["open"], scale="tiny", output=output, resume=True, echo=lines.append)

    assert found == []
    assert "open, disk as it is: kept" in lines
    assert table.read(output) == written
