"""The server looks for damage in its own file, also when it could not look at first."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sessionary.app import server
from sessionary.errors import Damaged, RetryLater, SessionaryError, StoreUnavailable
from sessionary.store.sqlite import db_file


class Noting:
    """A store as far as the check uses it."""

    def __init__(self) -> None:
        self.damage: Damaged | None = None

    def note_damage(self, error: Damaged) -> None:
        self.damage = error


@pytest.mark.parametrize("first", [RetryLater("Busy."), StoreUnavailable("Away.")])
async def test_a_check_that_the_store_refused_is_made_again(
    monkeypatch: pytest.MonkeyPatch, first: SessionaryError
) -> None:
    store: Any = Noting()
    answers = iter([first])

    def find(path: str, *, is_stopped: Callable[[], bool]) -> str | None:
        for error in answers:
            raise error
        return "page 7 is wrong"

    monkeypatch.setattr(db_file, "find_damage", find)
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.0, raising=False)
    monkeypatch.setattr(server, "CHECK_SECONDS", 1000.0)
    async with asyncio.timeout(10):
        await server._check_regularly(store, "a.db", threading.Event(), at_once=True)

    assert store.damage is not None
    assert "page 7 is wrong" in str(store.damage)


async def test_a_file_that_is_too_damaged_to_be_opened_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store: Any = Noting()
    error = Damaged("a.db is damaged.")

    def find(path: str, *, is_stopped: Callable[[], bool]) -> str | None:
        raise error

    monkeypatch.setattr(db_file, "find_damage", find)
    async with asyncio.timeout(10):
        await server._check_regularly(store, "a.db", threading.Event(), at_once=True)

    assert store.damage is error
