"""A call in a thread of its own, for functions that may take for ever."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """What a call returns. No exit waits for its thread, as it would for one of the loop's own."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = call()
        except BaseException as failure:
            # Raised again in the loop; a thread has nobody to tell.
            error = failure
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, answer, value, error)

    threading.Thread(target=work, name="sessionary-aside", daemon=True).start()
    return await answer


def _settle(answer: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)
