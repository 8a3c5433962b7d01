"""Functions that tests use as agents."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.model.message import Message, message
from sessionary.model.transcript import last_user_text

closed = threading.Event()


def returns(request: TurnRequest) -> str:
    return f"You said {last_user_text(request.context)}"


async def returns_later(request: TurnRequest) -> str:
    await asyncio.sleep(0)
    return returns(request)


def gives_a_message(request: TurnRequest) -> Message:
    return message("assistant", returns(request))


def yields(request: TurnRequest) -> Iterator[str]:
    try:
        yield "You "
        yield f"said {last_user_text(request.context)}"
    finally:
        closed.set()


async def yields_steps(request: TurnRequest) -> AsyncIterator[Event | str]:
    yield Delta("hm", thinking=True)
    yield Step(message("assistant", "First."))
    yield "You "
    yield f"said {last_user_text(request.context)}"


def hangs(request: TurnRequest) -> str:
    time.sleep(30)
    return "never"


async def hangs_politely(request: TurnRequest) -> str:
    await asyncio.sleep(60)
    return "never"


def silent(request: TurnRequest) -> None:
    return None


def numbers(request: TurnRequest) -> int:
    return 7


def fails(request: TurnRequest) -> Iterator[str]:
    yield "so "
    raise LookupError("no tea")


class Made:
    @staticmethod
    def inside(request: TurnRequest) -> str:
        return returns(request)
