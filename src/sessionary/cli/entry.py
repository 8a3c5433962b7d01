"""From the shell into a command and back: exit codes, and one clear line for every failure."""

import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import click

from sessionary import config
from sessionary.cli.root import root
from sessionary.errors import Committed, SessionaryError
from sessionary.model.terminal import safe_terminal

FAILED = 1
USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], None]


@dataclass(frozen=True, slots=True)
class Report:
    """How a failure is told: one line for people, one document for programs."""

    json: bool = False
    debug: bool = False

    @classmethod
    def asked_for(cls, args: Sequence[str]) -> Self:
        """Look at the words themselves: a command line that makes no sense has a mode, too."""
        words = args[: args.index("--")] if "--" in args else args
        return cls("--json" in words, "--debug" in words)

    def tell(self, kind: str, message: str, *, committed: Committed = "no") -> None:
        """Say what happened."""
        line = " ".join(safe_terminal(message, keep_newlines=True).split())
        if self.json:
            error = {"type": kind, "message": line, "committed": committed}
            sys.stdout.write(json.dumps({"error": error}) + "\n")
        sys.stderr.write(f"sessionary: {line}\n")


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    given = list(sys.argv[1:] if args is None else args)
    report = Report.asked_for(given)
    if not report.debug:
        sys.excepthook = _tell_our_fault(report)
    _open_closed_streams()
    # A terminal that cannot show a letter gets an escape, not a failure.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = None
    try:
        code = _run(given, report)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return PIPE_CLOSED
    except OSError as error:
        _forget_output()
        done = (
            "What was asked for was done." if code == 0 else "It may have been done all the same."
        )
        Report().tell("failed", f"The answer could not be written: {error.strerror}. {done}")
        return FAILED
    if args is None:
        gc.freeze()  # The process ends: nobody need look for garbage in all of it once more.
    return code


def _run(given: list[str], report: Report) -> int:
    """Run the command and tell of its failure."""
    try:
        _invoke(given)
    except click.exceptions.Exit as stopped:
        return stopped.exit_code
    except click.ClickException as error:
        report.tell("usage", _usage_line(error))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        report.tell("interrupted", "Interrupted.", committed="unknown")
        return INTERRUPTED
    except SessionaryError as error:
        if report.debug:
            raise
        report.tell(error.kind, str(error), committed=error.committed)
        return error.exit_code
    except OSError as error:
        if report.debug or error.filename is None:
            raise
        report.tell("failed", f"{error.filename}: {error.strerror}.")
        return FAILED
    return 0


def _invoke(given: list[str]) -> None:
    _refuse_bytes(given)
    instruction = config.completion_instruction()
    if instruction:
        from click.shell_completion import shell_complete  # no command needs it

        code = shell_complete(root, {}, "sessionary", config.COMPLETION_VARIABLE, instruction)
        raise click.exceptions.Exit(code)
    with root.make_context("sessionary", given) as ctx:
        root.invoke(ctx)


def _refuse_bytes(given: Sequence[str]) -> None:
    for number, word in enumerate(given, start=1):
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise click.UsageError(f"Argument {number} is not UTF-8 text; nothing was done.")


def _usage_line(error: click.ClickException) -> str:
    line = error.format_message()
    ctx = getattr(error, "ctx", None)
    end = "" if line.endswith((".", "?", "!")) else "."
    return line if ctx is None else f"{line}{end} See: {ctx.command_path} --help"


def _tell_our_fault(report: Report) -> Hook:
    def tell(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        words = str(error).strip().splitlines()
        what = f"{kind.__name__}: {words[0][:200]}" if words else kind.__name__
        report.tell(
            "our-fault",
            f"This is a fault of Sessionary, not yours ({what}). "
            "The same command with --debug shows where.",
            committed="unknown",
        )

    return tell


def _open_closed_streams() -> None:
    """Put nothing where a stream was closed: no file of the store may get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _forget_output() -> None:
    """Nobody reads on; without this the interpreter would complain when it flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
