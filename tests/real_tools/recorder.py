"""Runs one tool in a network that has nothing but loopback, against the fake model server.

Started by the job under `unshare`; it writes the conversation to `talk.json` beside the tool's home directory.
"""

import asyncio
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.real_tools.comparison import Talk
from tests.real_tools.tools import HOME, PROJECT, TOOLS, Start, Tool
from tests.support.model_server import Answer, Ask, ModelServer, Reply, Tokens

START_SECONDS = 180
NOTES = "flour\nwater\n"
# The programs stand at the same path on every machine, too: some write down how they were called.
PROGRAMS = HOME.parent / "programs"
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41


class Failed(Exception):
    """A tool could not be run: why."""


class Model:
    """The fake model: the conversation's requests take the next answer, others get a title."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.waiting: list[Reply] = []

    def answer(self, ask: Ask) -> Answer:
        """The answer to one request."""
        if self._tool.is_main(ask) and self.waiting:
            return self.waiting.pop(0)
        return Reply("The mill", tokens=Tokens(fresh=1, output=1))


async def record(tool: Tool, folder: Path) -> Talk:
    """Start a tool as often as it says; raises `Failed`."""
    talk = Talk()
    async with ModelServer() as server:
        model = Model(tool)
        server.otherwise = model.answer
        for name, text in tool.files.items():
            path = HOME / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{url}", server.url))
        for number, start in enumerate(tool.starts, 1):
            model.waiting = list(start.answers)
            log = folder / f"start-{number}.log"
            code = await _run(tool, start, url=server.url, log=log)
            asks = [[ask.method, ask.path, ask.body] for ask in server.requests]
            (folder / "requests.json").write_text(json.dumps(asks))
            if code or model.waiting:
                last = log.read_text(errors="replace").strip().splitlines()[-3:]
                left = f"; {len(model.waiting)} answers were not asked for" if model.waiting else ""
                raise Failed(f"start {number} ended with {code}{left}: {' '.join(last)[:300]}")
            _count(talk, start)
    return talk


async def _run(tool: Tool, start: Start, *, url: str, log: Path) -> int:
    program = PROGRAMS / program_in(tool)
    environment = {
        "HOME": str(HOME),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
    }
    environment |= {name: text.replace("{url}", url) for name, text in tool.environment.items()}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program,
            *(each.replace("{prompt}", start.prompt) for each in start.arguments),
            cwd=PROJECT,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            return await asyncio.wait_for(process.wait(), START_SECONDS)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise Failed(f"it did not end in {START_SECONDS} seconds") from None


def _count(talk: Talk, start: Start) -> None:
    talk.prompts += [start.prompt, *start.asked]
    if start.is_compaction:
        talk.summaries += 1
        return
    for reply in start.answers:
        talk.answers += 1
        talk.texts += [reply.text] if reply.text else []
        talk.calls += [call.name for call in reply.calls]
        talk.results += len(reply.calls)
        if reply.tokens is not None:
            talk.input += reply.tokens.fresh
            talk.cached += reply.tokens.cache_read
            talk.output += reply.tokens.output


def program_in(tool: Tool) -> Path:
    """Where a program stands in the directory it was installed to."""
    folder = "bin" if tool.registry == "pypi" else "node_modules/.bin"
    return Path(tool.program, folder, tool.program)


def enter(home: Path, programs: Path) -> None:
    """Bring loopback up, and put the directories where every machine has them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, _SET_FLAGS, struct.pack("16sH14s", b"lo", _UP_AND_RUNNING, b""))
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", HOME.parent], check=True)
    for path, place in ((home, HOME), (programs, PROGRAMS)):
        place.mkdir()
        subprocess.run(["mount", "--bind", path, place], check=True)


def main(name: str, scratch: Path) -> None:
    """Record one tool."""
    tool = next(each for each in TOOLS if each.program == name)
    folder = scratch / "records" / name
    shutil.rmtree(folder, ignore_errors=True)
    home = folder / "home"
    (home / PROJECT.name).mkdir(parents=True)
    (home / PROJECT.name / "notes.txt").write_text(NOTES)
    enter(home, scratch / "installed")
    try:
        recorded = dataclasses.asdict(asyncio.run(record(tool, folder)))
    except Failed as error:
        recorded = {"failed": str(error)}
    (folder / "talk.json").write_text(json.dumps(recorded, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
