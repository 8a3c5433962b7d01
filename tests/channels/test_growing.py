"""A message that grows: what the platform has is known, whoever stops watching."""

import asyncio

from sessionary.channels.growing import Growing
from sessionary.model.source import Channel

HERE = Channel("telegram", "7")


class SlowPlatform:
    """Takes its time to say which message it was."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.is_there = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def put(self, _: Channel, number: str | None, text: str) -> str:
        found = number or f"m{len(self.messages) + 1}"
        self.messages[found] = text
        self.is_there.set()
        await self.may_answer.wait()
        return found


async def test_who_stops_watching_leaves_no_message_that_nobody_knows() -> None:
    """The end of a turn ends what accompanies it, at any moment."""
    platform = SlowPlatform()
    growing = Growing(platform.put, pause_of=lambda _: 0.0)
    watching = asyncio.ensure_future(growing.show(HERE, "turn", "Once upon …"))
    await platform.is_there.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)

    async def edit(number: str) -> None:
        platform.messages[number] = "Once upon a time"

    finishing = asyncio.ensure_future(growing.finish("turn", edit))
    await asyncio.sleep(0)
    platform.may_answer.set()

    assert await finishing == "m1"
    assert platform.messages == {"m1": "Once upon a time"}
