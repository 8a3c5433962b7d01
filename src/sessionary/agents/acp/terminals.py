"""Programs that an agent runs through us: their output within a limit, and their end with the turn."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.agents.program import READ_BYTES, Program, ProgramOptions, start_program
from sessionary.errors import BadInput, NotFound
from sessionary.formats.acp import LONGEST_OUTPUT
from sessionary.model.transcript import cut_middle

MOST_TERMINALS = 32
_MOST_OUTPUT = 1024 * 1024
# Of how many terminals that were released the output is kept.
_MOST_SHOWN = 64


@dataclass(eq=False, slots=True)
class _Terminal:
    program: Program
    most: int
    output: bytearray = field(default_factory=bytearray)
    is_cut: bool = False
    is_ended: bool = False
    reading: "asyncio.Task[None] | None" = None

    async def read(self) -> None:
        """Keep the end of what the program writes."""
        while chunk := await self.program.stdout.read(READ_BYTES):
            self.output += chunk
            if len(self.output) > self.most:
                del self.output[: len(self.output) - self.most]
                self.is_cut = True

    @property
    def text(self) -> str:
        """What it shows: whole characters, also where the beginning was cut off."""
        data = bytes(self.output)
        if self.is_cut:
            # The rest of a character whose beginning is gone.
            data = data.lstrip(bytes(range(0x80, 0xC0)))
        return data.decode(errors="replace")

    def exit_status(self) -> dict[str, Any] | None:
        code = self.program.returncode
        if code is None:
            return None
        return {"exitCode": code} if code >= 0 else {"signal": str(-code)}


class Terminals:
    """The terminals of one turn."""

    def __init__(self) -> None:
        self._running: dict[str, _Terminal] = {}
        # What terminals have shown, also after they were released.
        self._shown: dict[str, str] = {}
        self._count = 0

    async def create(self, options: ProgramOptions, *, most_output: int | None = None) -> str:
        """Start a program; return the id of its terminal."""
        if len(self._running) >= MOST_TERMINALS:
            raise BadInput(f"There are {MOST_TERMINALS} terminals already: release one.")
        program = await start_program(options, joins_errors=True)
        await program.__aenter__()
        program.stdin.close()
        self._count += 1
        id = f"terminal-{self._count}"
        terminal = _Terminal(program, min(most_output or _MOST_OUTPUT, _MOST_OUTPUT))
        terminal.reading = asyncio.create_task(terminal.read())
        self._running[id] = terminal
        return id

    def output(self, id: str) -> dict[str, Any]:
        """Return what a terminal shows, as the protocol has it."""
        terminal = self._get(id)
        status = terminal.exit_status()
        shown = {"output": terminal.text, "truncated": terminal.is_cut}
        return shown if status is None else shown | {"exitStatus": status}

    async def wait(self, id: str) -> dict[str, Any]:
        """Return how the program of a terminal has ended, when it has, and all of its output was read."""
        terminal = self._get(id)
        await terminal.program.gone()
        if terminal.reading is not None:
            await asyncio.wait({terminal.reading}, timeout=1.0)
        return terminal.exit_status() or {}

    async def end(self, id: str, *, forget: bool) -> None:
        """End the program of a terminal; its output can still be read unless it is forgotten."""
        terminal = self._get(id)
        if forget:
            del self._running[id]
        await self._end(id, terminal)

    async def close(self) -> None:
        """End all programs."""
        running, self._running = self._running, {}
        for id, terminal in running.items():
            await self._end(id, terminal)

    def shown(self) -> Mapping[str, str]:
        """Return what each terminal shows or has shown, by its id."""
        return self._shown | {id: each.text for id, each in self._running.items()}

    async def _end(self, id: str, terminal: _Terminal) -> None:
        if not terminal.is_ended:
            terminal.is_ended = True
            await terminal.program.__aexit__()
            if terminal.reading is not None:
                await asyncio.wait({terminal.reading}, timeout=1.0)
                terminal.reading.cancel()
        # All of it can be read until it is released; then only the result of its call shows it.
        self._shown[id] = cut_middle(terminal.text, LONGEST_OUTPUT)
        if len(self._shown) > _MOST_SHOWN:
            del self._shown[next(iter(self._shown))]

    def _get(self, id: str) -> _Terminal:
        found = self._running.get(id)
        if found is None:
            raise NotFound(f"There is no terminal {id}.")
        return found
