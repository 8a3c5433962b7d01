"""How long an event loop stands still while the first message with a model's usage is appended.

The usage gets its cost, and the first cost loads the table of prices. That happens once in a process, so each
measurement is a process of its own: `python -m benchmarks.first_usage FILE usage`.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Results, Sample
from sessionary import AsyncSessionary, Usage

WITH, WITHOUT = "sessionary, with usage", "sessionary, without usage"
MOST_MS = 5
_STARTS = 2
_TICK_SECONDS = 0.001


def case(folder: Path) -> Case:
    """The longest time that other tasks wait for, with usage and without."""
    cpu: dict[str, list[float]] = {WITH: [], WITHOUT: []}

    def run(name: str, kind: str) -> Callable[[float], Sample]:
        def starts(_: float) -> Sample:
            found = [_start(folder, kind) for _ in range(_STARTS)]
            cpu[name] += [each["cpu_seconds"] for each in found]
            waited = [each["seconds"] for each in found]
            return Sample(_STARTS, sum(waited), waited, sum(each["cpu_seconds"] for each in found))

        return starts

    def still(_: Results) -> float:
        # By CPU: what a busy machine adds does not count, what another thread does while it holds
        # the interpreter's lock does.
        return statistics.median(cpu[WITH]) * 1000

    return Case(
        "the event loop stands still in the first append",
        (
            Contestant(WITH, "product", run(WITH, "usage")),
            Contestant(WITHOUT, "floor", run(WITHOUT, "plain")),
        ),
        (at_most(MOST_MS, "ms of CPU", still, of="with usage"),),
        by="p50",
    )


def _start(folder: Path, kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_usage", str(folder / "usage.db"), kind]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def main(path: str, kind: str) -> None:
    """Append a message while another task looks how often it gets its turn."""
    used = Usage(model="claude-sonnet-4-5", input_tokens=900, output_tokens=80)
    waits: list[tuple[float, float]] = []

    async def tick() -> None:
        while True:
            began, cpu_began = time.perf_counter(), time.process_time()
            await asyncio.sleep(_TICK_SECONDS)
            waited = time.perf_counter() - began - _TICK_SECONDS
            waits.append((max(0.0, waited), time.process_time() - cpu_began))

    async with AsyncSessionary(f"sqlite:///{path}") as client:
        session = client.session("first usage")
        await session.append("user", "hello")
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(20 * _TICK_SECONDS)
        waits.clear()
        await session.append("assistant", "hi", usage=used if kind == "usage" else None)
        await asyncio.sleep(20 * _TICK_SECONDS)
        ticking.cancel()
    seconds, cpu_seconds = (max(values) for values in zip(*waits, strict=True))
    sys.stdout.write(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
