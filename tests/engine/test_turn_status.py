"""What accompanies a turn ends with it, and one half of it does not depend on the other."""

import asyncio
from contextlib import suppress

from sessionary.engine.ports import Capabilities
from sessionary.errors import Unreachable
from sessionary.model.source import Channel
from sessionary.testing.adapter_suite import SlowRunner
from sessionary.testing.fakes import LoopbackAdapter
from tests.support.engine_world import EngineWorld


class Shy(LoopbackAdapter):
    """Shows words, but refuses to show typing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.capabilities = Capabilities(shows_typing=True, streams=True)
        self.error = error
        self.shown: list[str] = []

    async def typing(self, channel: Channel) -> None:
        """Refuse."""
        raise self.error

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Remember the words."""
        self.shown.append(text)


async def one_turn(world: EngineWorld, adapter: Shy) -> list[str]:
    """What is left of what accompanied a turn."""
    world.use(adapters={"loopback": adapter})
    runner = SlowRunner()
    engine = await world.started(runner=runner)
    await world.says(engine, "a story")
    await world.until(lambda: bool(adapter.shown) or not isinstance(adapter.error, Unreachable))
    runner.may_finish.set()
    await world.settle(engine)
    with suppress(TimeoutError):
        await world.until(lambda: not _accompanying())
    left = _accompanying()
    await engine.stop()
    return left


def _accompanying() -> list[str]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name in ("Showing._show", "Showing._type")]


async def test_words_are_shown_where_typing_is_refused(world: EngineWorld) -> None:
    adapter = Shy(Unreachable("typing is not for bots"))

    assert await one_turn(world, adapter) == []
    # The rest may be shown too, if the turn takes long to end.
    assert adapter.shown[0] == "Once upon "


async def test_what_breaks_leaves_nothing_behind(world: EngineWorld) -> None:
    assert await one_turn(world, Shy(OSError("broken pipe"))) == []
