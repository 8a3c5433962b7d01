"""What every program here does: read its arguments, have conversations, print the answers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sessionary import Sessionary

MODEL = "gpt-4o-mini"


@dataclass
class Task:
    """The arguments of the program."""

    urls: list[str]
    model: str
    name: str
    prompts: list[str]
    die: bool
    _asked: dict[str, int] = field(default_factory=dict)
    _waiting: int = 0
    _all_wait: asyncio.Event = field(default_factory=asyncio.Event)

    async def weather(self, city: str) -> str:
        """The weather in a city. The second city is deadly, once every conversation has come to it."""
        if self.die and city == "Porto":
            self._waiting += 1
            if self._waiting == len(self.urls):
                os.kill(os.getpid(), signal.SIGKILL)
            await self._all_wait.wait()
        return f"{city}: 21 degrees and sunny"


Converse = Callable[[Task, Sessionary], Awaitable[list[str]]]


def main(converse: Converse) -> None:
    """Have the same conversation on every store, at once; print the last answers."""
    asyncio.run(_main(Task(**json.loads(sys.argv[1])), converse))


async def _main(task: Task, converse: Converse) -> None:
    answers = await asyncio.gather(*(_one(task, url, converse) for url in task.urls))
    print(json.dumps([each[-1] for each in answers]), flush=True)


async def _one(task: Task, url: str, converse: Converse) -> list[str]:
    with Sessionary(url) as store_client:
        return await converse(task, store_client)


def said(answer: Any) -> str:
    """An answer as text."""
    return str(answer)
