"""Every promise, attack and fault names tests that are there."""

import re
from pathlib import Path

from tests.project.code import PACKAGE, ROOT

PAGE = ROOT / "docs" / "internals" / "faults.md"
ROW = re.compile(r"^\| ([PSF]\d+) \| .* \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+)::(test_\w+)`")
MEASURED = {"F20"}


def rows() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


def file_of(name: str) -> Path:
    """A file of tests, or a suite that we ship."""
    if name.startswith("testing/") and not (ROOT / "tests" / f"{name}.py").exists():
        return PACKAGE / f"{name}.py"
    return ROOT / "tests" / f"{name}.py"


def test_every_promise_attack_and_fault_is_listed() -> None:
    wanted = [f"P{n}" for n in range(1, 23)]
    wanted += [f"S{n}" for n in range(1, 29)]
    wanted += [f"F{n}" for n in range(1, 29)]

    assert list(rows()) == wanted


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"{file}::{test}"
        for file, test in NAMED.findall(PAGE.read_text(encoding="utf-8"))
        if not file_of(file).exists()
        or f"def {test}(" not in file_of(file).read_text(encoding="utf-8")
    ]

    assert missing == []


def test_each_has_a_test() -> None:
    without = [name for name, shown in rows().items() if not NAMED.search(shown)]

    assert set(without) == MEASURED
