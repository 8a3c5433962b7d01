"""Generate docs/cli.md and docs/sessionary.1 from the commands: `.venv/bin/python -m tools.cli_page`."""

from collections.abc import Iterator
from pathlib import Path

import click

import sessionary
from sessionary.cli.root import root
from sessionary.cli.tree import CliCommand, LazyGroup, global_options

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
MAN_PAGE = PAGE.with_name("sessionary.1")
SHORT_FOR = "Short for "
BEGINNING = """\
# The command line

Generated from the commands by `tools/cli_page.py`; a test compares the two.

`sessionary [--home DIR] [--database URL] [--profile NAME] [--json] [--utc] [--debug] COMMAND …`

These options may come before or after the command:
"""
MIDDLE = """
REF is a session: its id, the beginning of its id, or its title, in upper or lower case. A title also matches its
latest numbered continuation (`name #3`), and whatever `sessions list` shows as the title. If nothing matches, similar
titles are suggested. A time is a date (`2026-01-31`), an RFC 3339 time, `today`,
`yesterday`, or a time span ago (`15m`, `12h`, `7d`, `4w`, `6mo`, `1y`). An argument that begins with
a dash must follow `--`.

With `--json` a command prints one JSON document on standard output, lists as
`{"items": […], "next": cursor or null}`; messages for people go to standard error. A failure is
`{"error": {"type", "message", "committed"}}`, and one line on standard error. If `committed` is `no`,
nothing was written. If it is `unknown`, repeat the write with its idempotency key.

| exit code | means |
|---|---|
| 0 | done |
| 1 | refused or failed |
| 2 | wrong usage |
| 3 | not found: the store, or what was named in it |
| 4 | ambiguous; the candidates are named |
| 130 | interrupted |

On a terminal, times are in the machine's zone (or in the `zone` of sessionary.toml), `sessions show` uses your
pager (`SESSIONARY_PAGER`, else `PAGER`, else `less`), roles are coloured and Markdown is rendered. `NO_COLOR=1` or
`TERM=dumb` turns styles off, `--utc` shows times in UTC. In a pipe, times are RFC 3339 in UTC, and text is not
formatted.

A command that only reads never creates a store. `sessions append new`, `import`, `projects add` and
`serve` create the one in the home directory if it does not exist.
"""


def page() -> str:
    """Return the whole page."""
    ctx = click.Context(root, info_name="sessionary")
    lines = [BEGINNING, *_options([*global_options(), *_own(root)], ctx), MIDDLE]
    for path, command in leaves():
        lines += _command(path, command)
    return "\n".join(lines).rstrip() + "\n"


def leaves() -> Iterator[tuple[str, CliCommand]]:
    """Yield every command with the words that call it, without the short names."""
    for path, about, command in _leaves(root, "sessionary"):
        if not about.startswith(SHORT_FOR):
            yield path, command


def short_names() -> dict[str, str]:
    """Return the short names of commands with their full names."""
    found = _leaves(root, "sessionary")
    return {
        path: f"sessionary {about.removeprefix(SHORT_FOR).strip('`.')}"
        for path, about, _ in found
        if about.startswith(SHORT_FOR)
    }


def _leaves(group: click.Group, path: str) -> Iterator[tuple[str, str, CliCommand]]:
    assert isinstance(group, LazyGroup)
    ctx = click.Context(group, info_name=path)
    for name, about in group.lines.items():
        found = group.get_command(ctx, name)
        if isinstance(found, click.Group):
            yield from _leaves(found, f"{path} {name}")
        else:
            assert isinstance(found, CliCommand), f"{path} {name} is no command of ours"
            yield f"{path} {name}", about, found


def _command(path: str, command: CliCommand) -> list[str]:
    ctx = click.Context(command, info_name=path)
    arguments = [
        param.make_metavar(ctx) for param in command.params if isinstance(param, click.Argument)
    ]
    paragraphs = _paragraphs(command)
    lines = [f"## {path} {' '.join(arguments)}".rstrip(), ""]
    short = [f"`{each}`" for each, meant in short_names().items() if meant == path]
    if short:
        paragraphs.append(f"Short: {', '.join(short)}.")
    for paragraph in paragraphs:
        lines += [paragraph, ""]
    options = _options(_own(command), ctx)
    if options:
        lines += [*options, ""]
    return [*lines, "```sh", *command.example.splitlines(), "```", ""]


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(each.split()) for each in (command.help or "").split("\n\n")]


def man_page() -> str:
    """Return the manual page in roff."""
    ctx = click.Context(root, info_name="sessionary")
    lines = [
        f'.TH SESSIONARY 1 "" "sessionary {sessionary.__version__}" "User Commands"',
        ".SH NAME",
        "sessionary \\- the session layer for AI agents",
        ".SH SYNOPSIS",
        ".B sessionary",
        "[OPTIONS] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
        "Stores every conversation that agents have, on every channel, in one durable, searchable log.",
        ".SH OPTIONS",
        "These may come before or after the command.",
        *_man_options([*global_options(), *_own(root)], ctx),
        ".SH COMMANDS",
    ]
    for path, command in leaves():
        own = click.Context(command, info_name=path)
        given = [
            each.make_metavar(own) for each in command.params if isinstance(each, click.Argument)
        ]
        lines += [f".SS {_man_text(' '.join([path, *given]))}"]
        for number, paragraph in enumerate(_paragraphs(command)):
            lines += [*([".PP"] if number else []), _man_text(paragraph)]
        lines += _man_options(_own(command), own)
        lines += [
            ".PP",
            "Example:",
            ".PP",
            ".nf",
            ".RS",
            *map(_man_text, command.example.splitlines()),
            ".RE",
            ".fi",
        ]
    short = [f"{each} = {meant}" for each, meant in short_names().items()]
    lines += [".SH SHORT NAMES", ".nf", *map(_man_text, short), ".fi"]
    lines += [
        ".SH EXIT STATUS",
        "0 done; 1 refused or failed; 2 wrong usage; 3 not found; 4 ambiguous; 130 interrupted.",
        ".SH ENVIRONMENT",
        ".TP",
        "SESSIONARY_HOME",
        "Where data and sessionary.toml are.",
        ".TP",
        "SESSIONARY_DATABASE",
        "The database, as with \\-\\-database.",
        ".TP",
        "SESSIONARY_PROFILE",
        "The profile, as with \\-\\-profile.",
        ".TP",
        "SESSIONARY_PAGER, PAGER",
        "The pager for long output; empty or cat turns it off.",
        ".TP",
        "NO_COLOR",
        "No colours and no rendered Markdown.",
    ]
    return "\n".join(lines) + "\n"


def _man_options(options: list[click.Option], ctx: click.Context) -> list[str]:
    records = [record for option in options if (record := option.get_help_record(ctx))]
    return [
        line
        for names, about in records
        for line in (".TP", f".B {_man_text(names)}", _man_text(about.strip()))
    ]


def _man_text(text: str) -> str:
    """Escape text for roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _own(command: click.Command) -> list[click.Option]:
    shared = {option.name for option in global_options()}
    return [
        param
        for param in command.params
        if isinstance(param, click.Option) and param.name not in shared
    ]


def _options(options: list[click.Option], ctx: click.Context) -> list[str]:
    records = [record for option in options if (record := option.get_help_record(ctx))]
    if not records:
        return []
    rows = [f"| `{names.replace('|', ', ')}` | {about.strip()} |" for names, about in records]
    return ["| option | |", "|---|---|", *rows]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    MAN_PAGE.write_text(man_page(), encoding="utf-8")
