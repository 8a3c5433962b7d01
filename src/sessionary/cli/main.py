"""Runs one command: exit codes, and one line for every failure."""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import click
from msgspec import Struct

from sessionary import config
from sessionary.cli.root import root
from sessionary.errors import Committed, SessionaryError
from sessionary.model.terminal import safe_terminal

FAILED = 1
USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], None]


class FailureReport(Struct, frozen=True):
    """How a failure is reported: one line for people, with --json one document for programs."""

    json: bool = False
    debug: bool = False

    @classmethod
    def for_arguments(cls, args: Sequence[str]) -> Self:
        """Look at the arguments themselves: an invalid command line must be reported too."""
        words = args[: args.index("--")] if "--" in args else args
        return cls("--json" in words, "--debug" in words)

    def print(self, kind: str, message: str, *, committed: Committed = "no") -> None:
        """Print what happened."""
        line = " ".join(safe_terminal(message, keep_newlines=True).split())
        if self.json:
            import json  # saves 2 ms for every command that neither fails nor prints JSON

            error = {"type": kind, "message": line, "committed": committed}
            sys.stdout.write(json.dumps({"error": error}) + "\n")
        sys.stderr.write(f"sessionary: {line}\n")


def main(args: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    given = list(sys.argv[1:] if args is None else args)
    report = FailureReport.for_arguments(given)
    if not report.debug:
        sys.excepthook = _report_internal_error(report)
    _open_closed_streams()
    # A character that the terminal cannot show is escaped, not an error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = None
    try:
        code = _run(given, report)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except OSError as error:
        _discard_output()
        done = "The command was carried out." if code == 0 else "It may have been carried out."
        FailureReport().print(
            "failed", f"The answer could not be written: {error.strerror}. {done}"
        )
        return FAILED
    if args is None:
        gc.freeze()  # no last garbage collection; see the package
    return code


def _run(given: list[str], report: FailureReport) -> int:
    """Run the command, and report its failure."""
    try:
        _invoke(given)
    except click.exceptions.Exit as stopped:
        return stopped.exit_code
    except click.ClickException as error:
        report.print("usage", _usage_line(error))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        report.print("interrupted", "Interrupted.", committed="unknown")
        return INTERRUPTED
    except SessionaryError as error:
        if report.debug:
            raise
        report.print(error.kind, str(error), committed=error.committed)
        return error.exit_code
    except OSError as error:
        if report.debug or error.filename is None:
            raise
        report.print("failed", f"{error.filename}: {error.strerror}.")
        return FAILED
    return 0


def _invoke(given: list[str]) -> None:
    _refuse_invalid_text(given)
    instruction = config.completion_instruction()
    if instruction:
        from click.shell_completion import shell_complete  # no command needs it

        code = shell_complete(root, {}, "sessionary", config.COMPLETION_VARIABLE, instruction)
        raise click.exceptions.Exit(code)
    with root.make_context("sessionary", given) as ctx:
        root.invoke(ctx)


def _refuse_invalid_text(given: Sequence[str]) -> None:
    for number, word in enumerate(given, start=1):
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise click.UsageError(f"Argument {number} is not UTF-8 text; nothing was done.")


def _usage_line(error: click.ClickException) -> str:
    line = error.format_message()
    ctx = getattr(error, "ctx", None)
    end = "" if line.endswith((".", "?", "!")) else "."
    return line if ctx is None else f"{line}{end} See: {ctx.command_path} --help"


def _report_internal_error(report: FailureReport) -> Hook:
    def hook(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        lines = str(error).strip().splitlines()
        what = f"{kind.__name__}: {lines[0][:200]}" if lines else kind.__name__
        report.print(
            "our-fault",
            f"This is a bug in Sessionary ({what}). The same command with --debug shows where.",
            committed="unknown",
        )

    return hook


def _open_closed_streams() -> None:
    """Open /dev/null for a closed stream, so that no file of the store gets its descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """Discard output that nobody reads; else the interpreter complains when it flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
