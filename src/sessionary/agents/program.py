"""Programs that an agent starts: their settings, their environment, and their end with all their children."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from sessionary import config
from sessionary.config.setting import Setting, Texts, TextTable
from sessionary.errors import AgentFailed, BadInput

READ_BYTES = 65_536
_ERROR_LINES = 20
_ERROR_LINE_BYTES = 500
_ERROR_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_BURIAL_SECONDS = 5.0

# The environment variables that every program gets: paths and locale. Any other variable may hold a secret of the
# server, such as an API key or a database URL, and must be named in the settings.
_PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
    | {"TEMP", "TMP", "NO_COLOR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"}
    # Programs on Windows do not start without these.
    | {"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE"}
    | {"APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES"}
)
_PASSED_PREFIX = "LC_"


def program_environment(
    environ: Mapping[str, str],
    *,
    names: Collection[str] = (),
    added: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a program: the variables that are safe, those that are named, and the added ones."""
    passed = {
        name: value
        for name, value in environ.items()
        if name.upper() in _PASSED or name.startswith(_PASSED_PREFIX) or name in names
    }
    return passed | dict(added or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """A program, its working directory and its environment."""

    command: Annotated[Texts, Setting("the program and its arguments", example=["./my-agent"])]
    folder: Annotated[str | None, Setting("where it is started", example=".")] = None
    pass_env: Annotated[
        Texts,
        Setting("environment variables to pass on, besides PATH, HOME, LANG and the like"),
    ] = ()
    env: Annotated[TextTable, Setting("further environment variables")] = field(
        default_factory=dict, repr=False
    )
    # Not in the file: the whole environment of the program. It has a secret of the server only if the settings name it.
    environ: Mapping[str, str] = field(
        default_factory=lambda: program_environment(config.environment()), repr=False
    )
    # How long it may take to end by itself when its input is closed; then it is told to end, and then killed.
    close_seconds: float = 0.0
    kill_after_seconds: float = 1.0

    def check_program(self) -> None:
        """Refuse a program that cannot be started, without starting it."""
        folder = self.folder or os.curdir
        if not os.path.isdir(folder):
            raise BadInput(f"The folder {folder} of the agent's program is not there.")
        name = self.command[0]
        # A name with a slash is looked for in the folder, as the system does when it starts it.
        path = os.path.join(folder, name) if os.sep in name else name
        search = self.environ.get("PATH")
        if shutil.which(path, path=search) is None:
            raise BadInput(
                f"The program {name} cannot be started: it is not there, or may not be run."
            )


class Program:
    """A running program whose standard error is read; leaving the context ends its whole process group."""

    def __init__(self, process: Process, options: ProgramOptions) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._close_seconds = options.close_seconds
        self._kill_after_seconds = options.kill_after_seconds
        self._tail: deque[str] = deque(maxlen=_ERROR_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self.name = options.command[0]
        self.stdin = process.stdin
        self.stdout = process.stdout

    async def __aenter__(self) -> "Program":
        self._tasks = [
            asyncio.create_task(self._keep_errors()),
            asyncio.create_task(self._end_with_leader()),
        ]
        return self

    async def __aexit__(self, *failure: object) -> None:
        try:
            self.stdin.close()
            if self._close_seconds:
                await self._gone_within(self._close_seconds)
            if self._process.returncode is None:
                _signal_group(self._process, kill=False)
                await self._gone_within(self._kill_after_seconds)
        finally:
            _signal_group(self._process, kill=True)
            await self._gone_within(_BURIAL_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # A process that left the group may keep our pipes open for ever: close our ends.
            if self.unread_bytes:
                self.stdin.transport.abort()
            self._process._transport.close()  # type: ignore[attr-defined]

    @property
    def returncode(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.returncode

    @property
    def is_listening(self) -> bool:
        """Whether the program runs and has not closed its input, as far as is known."""
        return self._process.returncode is None and not self.stdin.is_closing()

    @property
    def unread_bytes(self) -> int:
        """How much of what was written for the program waits in this process."""
        return self.stdin.transport.get_write_buffer_size()

    async def gone(self) -> None:
        """Wait until the program has ended."""
        # `wait` alone may wait for every holder of our pipes, not only for the program.
        waiting = asyncio.create_task(self._process.wait())
        try:
            while self._process.returncode is None:
                await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
        finally:
            waiting.cancel()

    async def errors_read(self) -> None:
        """Give the last output of a program that has ended a moment to come out of the pipe."""
        await asyncio.wait(self._tasks[:1], timeout=_ERROR_SECONDS)

    def last_words(self) -> str:
        """Return the last lines of the standard error, to append to a sentence."""
        return f" It said: {' / '.join(self._tail)}" if self._tail else ""

    async def _keep_errors(self) -> None:
        if self._process.stderr is None:  # it is a part of the output
            return
        kept = b""
        while chunk := await self._process.stderr.read(READ_BYTES):
            *finished, kept = (kept[-_ERROR_LINE_BYTES:] + chunk).split(b"\n")
            for line in filter(None, (each.strip() for each in finished)):
                self._tail.append(line[:_ERROR_LINE_BYTES].decode(errors="replace"))
        if kept.strip():
            self._tail.append(kept.strip()[:_ERROR_LINE_BYTES].decode(errors="replace"))

    async def _end_with_leader(self) -> None:
        """A child that outlives the program would keep our pipes open for ever."""
        await self.gone()
        _signal_group(self._process, kill=True)

    async def _gone_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.gone()


async def start_program(options: ProgramOptions, *, joins_errors: bool = False) -> Program:
    """Start a program in a process group of its own; raise `AgentFailed` if that is not possible.

    `joins_errors`: what it writes to its standard error is a part of its output.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *options.command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT if joins_errors else PIPE,
            cwd=options.folder,
            env=dict(options.environ),
            start_new_session=sys.platform != "win32",
        )
    )
    try:
        # Cancelled in the middle of it, asyncio would end the program without the children that it has by then.
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            async with Program(await starting, options):
                pass
        raise
    except OSError as error:
        raise AgentFailed(
            f"The program {options.command[0]} cannot be started: {error.strerror or error}."
        ) from error
    return Program(process, options)


def _signal_group(process: Process, *, kill: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
