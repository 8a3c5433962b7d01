"""The display of a turn ends with it; a partial reply is shown even if typing cannot be."""

import asyncio
from contextlib import suppress

from sessionary.engine.outbox import TurnStatusDisplay
from sessionary.engine.ports import Capabilities
from sessionary.errors import Unreachable
from sessionary.model.source import Channel
from sessionary.testing.adapter_suite import SlowRunner
from sessionary.testing.fakes import LoopbackAdapter
from tests.support.engine_world import EngineWorld

# By reference: a renamed method must not make these tests pass for nothing.
DISPLAY_TASKS = {
    TurnStatusDisplay._show_typing.__qualname__,
    TurnStatusDisplay._show_text.__qualname__,
}


class NoTypingAdapter(LoopbackAdapter):
    """Shows partial replies, but fails to show typing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.capabilities = Capabilities(shows_typing=True, streams=True)
        self.error = error
        self.failed = 0
        self.shown: list[str] = []

    async def typing(self, channel: Channel) -> None:
        """Fail."""
        self.failed += 1
        raise self.error

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Record the text."""
        self.shown.append(text)


async def run_turn(world: EngineWorld, adapter: NoTypingAdapter, *, shows_text: bool) -> list[str]:
    """Run a turn until its status is displayed, then to its end; return the display tasks that are left."""
    world.use(adapters={"loopback": adapter})
    runner = SlowRunner()
    engine = await world.started(runner=runner)
    await world.says(engine, "a story")
    await world.until(lambda: adapter.failed > 0)
    if shows_text:
        await world.until(lambda: bool(adapter.shown))
        assert _display_tasks() == sorted(DISPLAY_TASKS), "both run while the turn does"
    runner.may_finish.set()
    await world.settle(engine)
    with suppress(TimeoutError):
        await world.until(lambda: not _display_tasks())
    left = _display_tasks()
    await engine.stop()
    return left


def _display_tasks() -> list[str]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return sorted(name for name in names if name in DISPLAY_TASKS)


async def test_partial_replies_are_shown_where_typing_is_refused(world: EngineWorld) -> None:
    adapter = NoTypingAdapter(Unreachable("typing is not for bots"))

    assert await run_turn(world, adapter, shows_text=True) == []
    # The rest may be shown too, if the turn takes long to end.
    assert adapter.shown[0] == "Once upon "


async def test_a_display_that_breaks_leaves_no_task_behind(world: EngineWorld) -> None:
    adapter = NoTypingAdapter(OSError("broken pipe"))

    assert await run_turn(world, adapter, shows_text=False) == []
