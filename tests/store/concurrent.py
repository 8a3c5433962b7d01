"""Two programs that do things at the same time."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from sessionary.actions import verify
from sessionary.errors import SessionaryError
from tests.support.world import World

T = TypeVar("T")
ROUNDS = 8
_NOTHING = object()


def at_once(*acts: Callable[[], T]) -> list[T | SessionaryError]:
    """Run the acts in threads that start together; what each came to."""
    barrier = threading.Barrier(len(acts))
    outcomes: list[Any] = [_NOTHING] * len(acts)

    def run(number: int, act: Callable[[], T]) -> None:
        barrier.wait()
        try:
            outcomes[number] = act()
        except SessionaryError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _NOTHING not in outcomes, "one ended with an error that is none of ours"
    return outcomes


def clean(world: World) -> bool:
    return verify.verify(world.store).broken == ()
