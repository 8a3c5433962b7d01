"""`docs/format.md` describes every field of every line, and its example is read."""

import re
from pathlib import Path

import msgspec
import pytest

from sessionary.model import record
from sessionary.model.record import BindingFact, CloseLine, Header, ProjectFact

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
LINES = (
    record.SessionLine,
    record.TurnLine,
    record.BlobLine,
    record.EntryLine,
    record.UsageLine,
    record.EndLine,
    record.DropLine,
    CloseLine,
    ProjectFact,
    BindingFact,
)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.__name__)
def test_every_field_is_described(line: type[msgspec.Struct]) -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE))

    assert set(line.__struct_fields__) - named == set()


def test_the_example_is_what_is_read_and_written() -> None:
    example = PAGE.split("```")[1].strip().splitlines()

    lines = [record.read(text.encode()) for text in example]

    assert isinstance(lines[0], Header)
    assert isinstance(lines[-1], CloseLine)
    assert [record.write(line).strip() for line in lines] == example
