"""Count the files and functions that one message, search, import or append goes through.

    .venv/bin/python -m tools.trace [--list]

Every function of the package that runs between the beginning of the operation and its end is
counted, in every thread.
"""

import asyncio
import inspect
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sessionary

PACKAGE = str(Path(sessionary.__file__).parent)
NOT_COUNTED = ("/testing/", "/bench/")


class Trace:
    """The functions that ran while the trace was on, in the order of their first call."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[CodeType] = []
        self.stacks: dict[str, list[str]] = {}

    def install(self) -> None:
        """Watch this thread and every thread that starts from now on."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if self.is_on and event == "call":
            self.calls.append(frame.f_code)
            if is_counted(frame.f_code):
                self._keep_stack(frame)

    def _keep_stack(self, frame: FrameType) -> None:
        """Keep the stack of the first write and of the first function of the inbox's table."""
        file, name = place_of(frame.f_code)
        key = "write" if name.endswith("Store.write") else "row" if "arrivals" in file else None
        if key is not None and key not in self.stacks:
            stack: list[str] = []
            at: FrameType | None = frame
            while at is not None:
                if is_counted(at.f_code):
                    stack.append("{}: {}".format(*place_of(at.f_code)))
                at = at.f_back
            self.stacks[key] = stack[::-1]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record what is called inside the block."""
        self.calls.clear()
        self.stacks.clear()
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False

    def functions(self) -> dict[tuple[str, str], None]:
        """Return the distinct functions, each with its file, in the order of their first call."""
        return dict.fromkeys(place_of(code) for code in self.calls if is_counted(code))


def is_counted(code: CodeType) -> bool:
    """Whether it is a function of the package, not the body of a class or a module."""
    file = code.co_filename
    return (
        file.startswith(PACKAGE)
        and not any(part in file for part in NOT_COUNTED)
        and not code.co_name.startswith("<")
        and bool(code.co_flags & inspect.CO_OPTIMIZED)
    )


def place_of(code: CodeType) -> tuple[str, str]:
    """Return the file below the package, and the function's name."""
    return code.co_filename.removeprefix(PACKAGE + "/"), code.co_qualname


def report(name: str, trace: Trace, *, is_listed: bool) -> None:
    """Print how many files and functions an operation went through."""
    functions = trace.functions()
    files = {file for file, _ in functions}
    print(f"{name:32} {len(files):3} files {len(functions):4} functions")
    if is_listed:
        for file, function in functions:
            print(f"    {file}: {function}")


async def trace_message(trace: Trace, folder: Path, *, is_listed: bool) -> None:
    """Send a message through a fake Telegram and wait for the reply."""
    from sessionary.clock import RandomIds, SystemClock
    from sessionary.store.open import open_store
    from sessionary.testing.channel_world import ChannelWorld
    from tests.support.fake_telegram import FakeTelegram

    store = open_store(
        str(folder / "message.db"), create=True, clock=SystemClock(), ids=RandomIds()
    )
    async with FakeTelegram() as platform:
        settings = ChannelWorld(store, platform).context().settings
        # The loops that run beside the message would be counted with it.
        settings = replace(settings, poll_seconds=3600.0, sweep_seconds=3600.0)
        world = ChannelWorld(store, platform, settings=settings)
        async with world.running() as engine:
            await platform.says("first", number=1)
            await world.until(lambda: len(platform.seen()) == 1)
            await world.settle(engine)
            with trace.on():
                await platform.says("hello", number=2)
                await world.until(lambda: len(platform.seen()) == 2)
    store.close()
    report("a message and its reply", trace, is_listed=is_listed)
    path = trace.stacks["write"] + trace.stacks["row"]
    print(f"{'  calls from the poll to the row':32} {len(path):14}")
    if is_listed:
        print("\n".join(f"    {each}" for each in path))


def trace_client(trace: Trace, folder: Path, *, is_listed: bool) -> None:
    """Append a message and search for it, as a Python program would."""
    source = sessionary.Source(platform="web", chat_id="alice")
    with sessionary.Sessionary(folder / "client.db") as client:
        client.session(source).append("user", "first")
        with trace.on():
            client.session(source).append("user", "hello lisbon")
        report("append", trace, is_listed=is_listed)
        client.search("first")
        with trace.on():
            client.search("lisbon")
        report("search", trace, is_listed=is_listed)


def trace_import(trace: Trace, folder: Path, *, is_listed: bool) -> None:
    """Import one Claude Code session from a file."""
    from sessionary.cli import main

    line = (
        '{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s1","timestamp":"2026-01-01T00:00:00Z",'
        '"cwd":"/project","version":"2.1.0","message":{"role":"user","content":"hello"}}\n'
        '{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"s1","timestamp":"2026-01-01T00:00:01Z",'
        '"message":{"id":"m1","role":"assistant","model":"claude-sonnet-4-5","stop_reason":"end_turn",'
        '"content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":1,"output_tokens":1}}}\n'
    )
    file = folder / "projects" / "-project" / "s1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(line)
    with trace.on():
        main(["--home", str(folder / "home"), "import", "claude-code", str(file)])
    report("import", trace, is_listed=is_listed)


def run(*, is_listed: bool) -> None:
    """Trace the four operations, each on a store of its own."""
    trace = Trace()
    trace.install()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace_client(trace, folder, is_listed=is_listed)
        asyncio.run(trace_message(trace, folder, is_listed=is_listed))
        trace_import(trace, folder, is_listed=is_listed)


if __name__ == "__main__":
    run(is_listed="--list" in sys.argv)
