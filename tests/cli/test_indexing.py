"""Waiting for the index: one line on a terminal that says how far it is, nothing anywhere else."""

import io
import sys
from typing import Any, cast

import pytest

from sessionary.app.context import AppContext
from sessionary.cli import indexing
from sessionary.cli.console import Console
from sessionary.store.database import Pending
from sessionary.store.search.indexer import IndexState


class SlowIndex:
    """A store whose index takes in a thousand changes at a time, unless it cannot be written."""

    def __init__(self, behind: int, *, is_stuck: bool = False) -> None:
        self.store = self
        self._watermark, self._behind = 0, behind
        self._step = 0 if is_stuck else 1_000

    def catch_up(self, seconds: float) -> Pending[Any]:
        taken = min(self._behind, self._step) if seconds else 0
        self._watermark, self._behind = self._watermark + taken, self._behind - taken
        pending: Pending[Any] = Pending()
        pending.settle(IndexState(self._watermark, self._behind), None)
        return pending


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, json: bool = False, stuck: bool = False
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = cast(AppContext, SlowIndex(3_000, is_stuck=stuck))
    done = indexing.catch_up(Console(json=json), app)
    return done, stream.getvalue()


def test_a_terminal_shows_how_far_the_index_is_how_fast_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, text = shown(Terminal(), monkeypatch)

    lines = text.split("\r")
    assert done == 3_000
    assert lines[1].startswith("Indexing: 1,000 of 3,000 changes, ")
    assert " per second, about " in lines[1]
    assert lines[2].startswith("Indexing: 2,000 of 3,000 changes, ")
    assert lines[3:] == ["\x1b[K"]
    assert "\n" not in text


def test_a_pipe_and_a_program_are_shown_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == (3_000, "")
    assert shown(Terminal(), monkeypatch, json=True) == (3_000, "")


def test_an_index_that_cannot_be_written_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Terminal(), monkeypatch, stuck=True) == (0, "")
