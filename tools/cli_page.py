"""Makes docs/cli.md and docs/sessionary.1 from the commands themselves: `.venv/bin/python -m tools.cli_page`."""

from collections.abc import Iterator
from pathlib import Path

import click

import sessionary
from sessionary.cli.root import root
from sessionary.cli.tree import Command, Group, global_options

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
MAN_PAGE = PAGE.with_name("sessionary.1")
SHORT_FOR = "Short for "
BEGINNING = """\
# The command line

Made from the commands themselves by `tools/cli_page.py`; a test compares the two.

`sessionary [--home DIR] [--database URL] [--profile NAME] [--json] [--utc] [--debug] COMMAND …`

These options may stand before the command or after it:
"""
MIDDLE = """
REF is a session: its id, the beginning of its id, or its title, in any capitals; a title also means its
latest numbered continuation (`name #3`), and what `sessions list` shows as the title will do. Where none
fits, similar titles are named. A time is a date (`2026-01-31`), an RFC 3339 time, `today`,
`yesterday`, or how long ago (`15m`, `12h`, `7d`, `4w`, `6mo`, `1y`). What begins with a dash and is
no option follows `--`.

With `--json` a command prints one JSON document on standard output, lists as
`{"items": […], "next": cursor or null}`; messages for people go to standard error. A failure is
`{"error": {"type", "message", "committed"}}`, and one line on standard error. `committed` is `no`,
and then nothing of it is ever found stored, or `unknown`: repeat the write with its idempotency
key.

| exit code | means |
|---|---|
| 0 | done |
| 1 | refused or failed |
| 2 | wrong usage |
| 3 | not found: the store, or what was named in it |
| 4 | ambiguous; the candidates are named |
| 130 | interrupted |

On a terminal times are in this machine's zone (or in the `zone` of sessionary.toml), `sessions show` uses your
pager (`SESSIONARY_PAGER`, else `PAGER`, else `less`), roles have colours and Markdown is rendered; `NO_COLOR=1` or
`TERM=dumb` turns styles off, `--utc` shows times in UTC. In a pipe times are RFC 3339 in UTC, and text is as it was
written.

A command that only reads never makes a store. `sessions append new`, `import`, `projects add` and
`serve` make the one in the home directory when it is not there.
"""


def page() -> str:
    """The whole page."""
    ctx = click.Context(root, info_name="sessionary")
    lines = [BEGINNING, *_options([*global_options(), *_own(root)], ctx), MIDDLE]
    for path, command in leaves():
        lines += _command(path, command)
    return "\n".join(lines).rstrip() + "\n"


def leaves() -> Iterator[tuple[str, Command]]:
    """Every command that does something, with what is typed for it; short names are left out."""
    for path, about, command in _leaves(root, "sessionary"):
        if not about.startswith(SHORT_FOR):
            yield path, command


def short_names() -> dict[str, str]:
    """Short names of commands, and what each is short for."""
    found = _leaves(root, "sessionary")
    return {
        path: f"sessionary {about.removeprefix(SHORT_FOR).strip('`.')}"
        for path, about, _ in found
        if about.startswith(SHORT_FOR)
    }


def _leaves(group: click.Group, path: str) -> Iterator[tuple[str, str, Command]]:
    assert isinstance(group, Group)
    ctx = click.Context(group, info_name=path)
    for name, (_, about) in group.lazy.items():
        found = group.get_command(ctx, name)
        if isinstance(found, click.Group):
            yield from _leaves(found, f"{path} {name}")
        else:
            assert isinstance(found, Command), f"{path} {name} is no command of ours"
            yield f"{path} {name}", about, found


def _command(path: str, command: Command) -> list[str]:
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
    """The manual page, in the language of `man`."""
    ctx = click.Context(root, info_name="sessionary")
    lines = [
        f'.TH SESSIONARY 1 "" "sessionary {sessionary.__version__}" "User Commands"',
        ".SH NAME",
        "sessionary \\- the session layer for AI agents",
        ".SH SYNOPSIS",
        ".B sessionary",
        "[OPTIONS] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
        "Keeps every conversation that agents have, on every channel, in one durable, searchable record.",
        ".SH OPTIONS",
        "These may stand before the command or after it.",
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
        "The database, as \\-\\-database names it.",
        ".TP",
        "SESSIONARY_PROFILE",
        "Whose sessions, as \\-\\-profile names it.",
        ".TP",
        "SESSIONARY_PAGER, PAGER",
        "What shows long output; empty or cat: nothing.",
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
    """Text as `man` takes it literally."""
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
