"""Before and after: an older revision runs in the same rounds, and what it cannot run is said."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import command, comparison, profiles, table
from benchmarks.comparison import NOT_MEASURABLE
from benchmarks.measure import AS_IT_IS, SCALES, Row
from benchmarks.profiles import Line
from benchmarks.revisions import ROOT, Revision
from benchmarks.sides import Older, Side, measure
from sessionary.errors import BadInput
from tools import benchmarks_page

OpenSide = Callable[[Revision, Path], Side]


@pytest.fixture
def open_side(tmp_path: Path) -> OpenSide:
    def opened(revision: Revision, benchmarks: Path) -> Side:
        folder = tmp_path / f"{revision.name}-{len(list(tmp_path.iterdir()))}" / "own"
        folder.mkdir(parents=True)
        return Side(
            revision,
            "open",
            disk=AS_IT_IS,
            scale="tiny",
            folder=folder,
            environ=dict(os.environ),
            benchmarks=benchmarks,
        )

    return opened


@pytest.mark.timeout(300)
def test_an_older_revision_is_measured_in_the_same_rounds(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    lines: list[str] = []

    command.main(["open"], scale="tiny", output=output, against="HEAD", echo=lines.append)

    after, before = table.read(output), table.read(comparison.before_path(output))
    assert [(row.case, row.name) for row in before] == [(row.case, row.name) for row in after]
    goals = [row for row in after if row.kind == "goal"]
    assert all(comparison.Before(before).figure(goal) != NOT_MEASURABLE for goal in goals)
    assert any(line.startswith("before and after: open") for line in lines)
    described = json.loads((tmp_path / "rows.machine.json").read_text())
    assert described["after"].startswith(described["before"])


def test_a_revision_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="git rev-parse"):
        command.main(["open"], scale="tiny", against="no-such-revision", echo=print)


@pytest.mark.timeout(300)
def test_what_an_older_revision_cannot_run_gets_a_row_that_says_why(
    tmp_path: Path, open_side: OpenSide
) -> None:
    empty = tmp_path / "empty"
    (empty / "src" / "sessionary").mkdir(parents=True)
    (empty / "src" / "sessionary" / "__init__.py").touch()
    tree, old = Revision("now", ROOT), Revision("old", empty)

    with open_side(tree, ROOT) as after:
        older = Older(lambda benchmarks: open_side(old, benchmarks), ROOT)
        measured = list(measure(after, older, SCALES["tiny"]))
        older.side.close()

    assert any(row.kind == "product" for each in measured for row in each.after)
    missing = [row for each in measured for row in each.before]
    assert {row.kind for row in missing} == {"missing"}
    assert all("ModuleNotFoundError" in row.figure for row in missing)


def test_a_goal_is_compared_with_the_same_goal_of_another_bound() -> None:
    then = Row("import", AS_IT_IS, "files", "", "goal", 0, 0, 0, goal="at least 60,000 messages")
    now = Row("import", AS_IT_IS, "files", "", "goal", 0, 0, 0, goal="at least 35,000 messages")
    then_reached = Row(**{**asdict(then), "figure": "20,425"})

    assert comparison.Before([then_reached]).figure(now) == "20,425"


def test_the_page_shows_both_revisions_and_their_profiles(tmp_path: Path) -> None:
    ours = Row("engine", AS_IT_IS, "16 at once", "ours", "product", 1000, 1, 2, cpu_us=900)
    goal = Row(
        "engine", AS_IT_IS, "16 at once", "", "goal", 0, 0, 0, goal="at most 0.98 ms", met="met"
    )
    new = Row("engine", AS_IT_IS, "a new case", "", "goal", 0, 0, 0, goal="at most 1 s", met="met")
    after = [ours, Row(**{**asdict(goal), "figure": "0.9"}), new]
    before = [
        Row(**{**asdict(ours), "cpu_us": 1300.0}),
        Row(**{**asdict(goal), "figure": "1.3", "met": "not met"}),
        Row(
            "engine",
            AS_IT_IS,
            "a new case",
            "",
            "missing",
            0,
            0,
            0,
            figure="there was no such call",
        ),
    ]
    line = Line("engine", "after (abc)", 1, "all (store.py)", 25.0, 200.0, "turn", 800.0)
    table.write(after, tmp_path / "table.csv", {"cores": "2"})
    table.write(before, tmp_path / "table.before.csv")
    table.write([line], tmp_path / "profile.engine.csv")

    page = benchmarks_page.page("", tmp_path)

    assert f"| engine | {AS_IT_IS} | 16 at once | at most 0.98 ms | 1.3 | 0.9 | met | 0.0 |" in page
    assert f"| engine | {AS_IT_IS} | a new case | at most 1 s | {NOT_MEASURABLE} |" in page
    assert "- engine, a new case: there was no such call" in page
    assert "| 1 | `all (store.py)` | 25.0 % | 200.0 |" in page
    assert "| 16 at once |  | ours | 1,000 | 1 | 2 | 900 |  |  | 1,000 | 1,300 |" in page


def test_a_profile_weighs_each_thread_by_its_cpu_time() -> None:
    stacks = (
        "thread (7): MainThread;main (app.py:1);work (app.py:9) 30\n"
        "thread (7): MainThread;main (app.py:1) 10\n"
        "thread (8): waiting;wait (threading.py:5) 40\n"
    )

    own = profiles.own_time(stacks, {7: 2.0, 8: 0.0})

    assert own == {"work (app.py)": 1.5, "main (app.py)": 0.5, "wait (threading.py)": 0.0}


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(BadInput, match="no profile 'fly'"):
        profiles.main(["fly"], echo=print)
