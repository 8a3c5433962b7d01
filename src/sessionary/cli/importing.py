"""`sessionary import`."""

import os
import signal
import stat
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sessionary import config
from sessionary.app import imports
from sessionary.app.imports import ImportResult, Outcome, Wish
from sessionary.cli import import_lines, import_text
from sessionary.cli.console import Console
from sessionary.cli.import_lines import STDIN, Total
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput, NotFound
from sessionary.importers import registry

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary

OURS = "sessionary"


@dataclass(slots=True)
class Plan:
    """What a person asked for: records of tools, and files of our own lines."""

    wishes: list[Wish] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@command(
    "import",
    example="sessionary import\nsessionary import claude-code\nsessionary import --all --watch\n"
    "sessionary import conversations.zip --dry-run\n"
    "ssh other sessionary export --all | sessionary import -",
)
@click.argument("what", nargs=-1, metavar="[SOURCE] [PATH]…")
@click.option("--all", "is_all", is_flag=True, help="Everything that is found on this machine.")
@click.option("--dry-run", is_flag=True, help="Read everything, change nothing.")
@click.option("--watch", is_flag=True, help="Go on importing as the files grow; Ctrl-C ends it.")
@pass_console
def import_(
    console: Console, what: tuple[str, ...], *, is_all: bool, dry_run: bool, watch: bool
) -> None:
    """Read the records of other tools, or Sessionary's own; what is here already is not added twice.

    Without arguments: what is on this machine. SOURCE is a tool's name, PATH a file or a directory.
    Of a PATH alone each file is read as what its content shows, also where several tools' records lie
    together; what is no record is named. `-` reads Sessionary JSONL from standard input. Nothing is ever
    written to what is read.
    """
    if watch and dry_run:
        raise click.UsageError("--watch imports; it cannot be a --dry-run.")
    if not what and not is_all and not watch:
        _discover(console)
        return
    plan = _plan(console, what, is_all=is_all or not what)
    if watch:
        _watch(console, plan)
    elif dry_run:
        _look(console, plan)
    else:
        _run(console, plan)


def _discover(console: Console) -> None:
    with _house_if_there(console) as client:
        now = imports.now(client)
        found = imports.discover(client, imports.here(), now=now)
    value = {"items": [import_text.jsonable(each) for each in found]}
    console.answer(value, import_text.discoveries(found, now=now, width=console.width))


def _run(console: Console, plan: Plan) -> None:
    with console.client(create=True) as client:
        total = import_lines.read(console, client, plan.lines)
        result = imports.run(
            client,
            plan.wishes,
            import_text.Meter(console.progress).tell,
            is_profile_asked_for=console.profile is not None,
        )
    console.end_progress()
    _answer(console, total, result, dry_run=False)


def _look(console: Console, plan: Plan) -> None:
    with _house_if_there(console) as client:
        total = import_lines.look(client, plan.lines)
        asked = console.profile is not None
        result = imports.look(client, plan.wishes, is_profile_asked_for=asked)
    _answer(console, total, result, dry_run=True)


def _answer(console: Console, total: Total, result: ImportResult, *, dry_run: bool) -> None:
    outcomes = result.outcomes
    value: dict[str, Any] = {"dry_run": dry_run, **asdict(total)}
    for name in ("added", "extended", "unchanged"):
        value[name] += sum(getattr(each, name) for each in outcomes)
    value["messages"] = sum(each.messages for each in outcomes)
    value["skipped"] = sum(each.skipped for each in outcomes) + len(result.faults)
    value["faults"] = [asdict(each) for each in result.faults]
    value["tools"] = [import_text.jsonable(each) for each in outcomes]
    value["unknown"] = [asdict(each) for each in result.unknown]
    value["failures"] = list(result.failures)
    texts = [import_text.fault(each) for each in result.faults]
    texts += [import_text.outcome(each, dry_run=dry_run) for each in outcomes]
    texts += [import_text.unknown(each) for each in result.unknown]
    if not outcomes or total.added or total.extended or total.unchanged or total.refused:
        texts.append(import_lines.text(total, dry_run=dry_run))
    console.answer(value, "\n".join(texts))
    for failure in result.failures:
        console.note(failure)
    if total.refused or result.failures:
        raise click.exceptions.Exit(1)


def _watch(console: Console, plan: Plan) -> None:
    if plan.lines:
        raise BadInput("Only the records of other tools can be watched; nothing was imported.")
    # One import does not need the file watcher.
    from sessionary.app.watching import watch

    stop = threading.Event()
    sums: dict[str, int] = {"added": 0, "extended": 0, "messages": 0, "skipped": 0}

    def tell(outcome: Outcome) -> None:
        for name in sums:
            sums[name] += getattr(outcome, name)
        console.end_progress()
        if not console.json:
            console.print(import_text.outcome(outcome, dry_run=False))
            console.flush()

    with console.client(create=True) as client:
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        for each in before:
            signal.signal(each, lambda *_: stop.set())
        try:
            console.note("Watching; Ctrl-C ends it.")
            meter = import_text.Meter(console.progress)
            watch(client, plan.wishes, stop=stop, tell=tell, progress=meter.tell)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    console.end_progress()
    if console.json:
        console.emit(sums)
    console.note("Stopped; what was read is here.")


def _plan(console: Console, what: tuple[str, ...], *, is_all: bool) -> Plan:
    plan, words = Plan(), list(what)
    if is_all:
        if words:
            raise click.UsageError("--all takes no SOURCE and no PATH.")
        plan.wishes = imports.default_wishes(imports.here())
        if not plan.wishes:
            raise NotFound("No records of other tools were found on this machine.")
        return plan
    tool = None
    if words[0] == OURS and not os.path.lexists(OURS):
        plan.lines = words[1:]
        if not plan.lines:
            raise click.UsageError(
                "Name a file that `sessionary export` wrote, or - for standard input."
            )
        words = []
    elif words[0] in registry.NAMES and not os.path.lexists(words[0]):
        tool = words.pop(0)
        plan.wishes = [] if words else _default(tool)
    database = config.load(home=console.home, database=console.database).database
    for word in plan.lines:
        if word != STDIN:
            _check(word, database)
    for word in words:
        _add(plan, word, tool, database)
    return plan


def _default(tool: str) -> list[Wish]:
    where = imports.here()
    found = imports.default_wishes(where, [tool])
    if not found:
        places = ", ".join(map(str, registry.importer(tool).places(where)))
        looked = f"Looked in {places}." if places else "It has no place of its own."
        raise NotFound(
            f"No records of {registry.importer(tool).title} were found. {looked} "
            f"Name a path: sessionary import {tool} PATH"
        )
    return found


def _add(plan: Plan, word: str, tool: str | None, database: str) -> None:
    if word == STDIN:
        plan.lines.append(word)
        return
    _check(word, database)
    if tool is not None and stat.S_ISREG(os.stat(word).st_mode) and import_lines.looks_ours(word):
        raise BadInput(
            f"{word} is an export of Sessionary's own; nothing was imported. "
            f"Import it with: sessionary import {word}"
        )
    wish = imports.wish_for(Path(word), tool)
    if wish is not None:
        plan.wishes.append(wish)
    elif stat.S_ISREG(os.stat(word).st_mode) and import_lines.looks_ours(word):
        plan.lines.append(word)
    else:
        raise BadInput(
            f"{word} is no record that is known here; nothing was imported. "
            f"Records of these tools are read: {', '.join(registry.NAMES)}."
        )


def _check(word: str, database: str) -> None:
    """Refuse what is not there, what never ends, and the store itself."""
    try:
        found = os.stat(word)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {word}{_near(word)}; nothing was imported.") from error
    except ValueError as error:
        raise BadInput("A path cannot hold that character; nothing was imported.") from error
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise BadInput(f"{word} is neither a file nor a directory; nothing was imported.")
    imports.refuse_own(database, Path(word))


def _near(word: str) -> str:
    import difflib  # only a mistyped name needs it

    near = difflib.get_close_matches(word, registry.NAMES, n=2)
    return f" (did you mean the source {' or '.join(near)}?)" if near else ""


def _house_if_there(console: Console) -> "AbstractContextManager[Sessionary | None]":
    """A look needs no store: without one everything is new."""
    try:
        return console.client()
    except NotFound:
        return nullcontext()
