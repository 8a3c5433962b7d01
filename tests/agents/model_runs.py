"""Asking a model that may fail."""

from collections.abc import Callable

import pytest

from sessionary.agents.model import ModelRunner
from sessionary.engine.ports import Event, Runner
from sessionary.errors import SessionaryError
from sessionary.testing.runner_suite import events_of, turn_request

KEY = "sk-very-secret"
MakeRunner = Callable[..., ModelRunner]


async def failure(runner: Runner, *words: str) -> SessionaryError:
    with pytest.raises(SessionaryError) as caught:
        await events_of(runner, turn_request("hello"))
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    return caught.value


async def watched(runner: Runner, seen: list[Event]) -> None:
    """Keep what comes, as far as it comes."""
    events = runner.run(turn_request("hello"))
    while True:
        try:
            seen.append(await anext(events))
        except StopAsyncIteration:
            return
