"""Makes docs/cli.md from the commands themselves: `.venv/bin/python docs/cli.py`."""

from collections.abc import Iterator
from pathlib import Path

import click

from hansard.cli.root import root
from hansard.cli.tree import Command, global_options

PAGE = Path(__file__).with_suffix(".md")
BEGINNING = """\
# The command line

Made from the commands themselves by `docs/cli.py`; a test compares the two.

`hansard [--home DIR] [--database URL] [--profile NAME] [--json] [--debug] COMMAND …`

These options may stand before the command or after it:
"""
MIDDLE = """
REF is a session: its id, the beginning of its id, or its title; a title also means its latest
numbered continuation (`name #3`). A time is a date (`2026-01-31`), an RFC 3339 time, `today`,
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

A command that only reads never makes a store. `sessions append new`, `import`, `projects add` and
`serve` make the one in the home directory when it is not there.
"""


def page() -> str:
    """The whole page."""
    ctx = click.Context(root, info_name="hansard")
    lines = [BEGINNING, *_options([*global_options(), *_own(root)], ctx), MIDDLE]
    for path, command in leaves():
        lines += _command(path, command)
    return "\n".join(lines).rstrip() + "\n"


def leaves() -> Iterator[tuple[str, Command]]:
    """Every command that does something, with what is typed for it."""
    yield from _leaves(root, "hansard")


def _leaves(group: click.Group, path: str) -> Iterator[tuple[str, Command]]:
    ctx = click.Context(group, info_name=path)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        if isinstance(found, click.Group):
            yield from _leaves(found, f"{path} {name}")
        else:
            assert isinstance(found, Command), f"{path} {name} is no command of ours"
            yield f"{path} {name}", found


def _command(path: str, command: Command) -> list[str]:
    ctx = click.Context(command, info_name=path)
    arguments = [
        param.make_metavar(ctx) for param in command.params if isinstance(param, click.Argument)
    ]
    paragraphs = [" ".join(each.split()) for each in (command.help or "").split("\n\n")]
    lines = [f"## {path} {' '.join(arguments)}".rstrip(), ""]
    for paragraph in paragraphs:
        lines += [paragraph, ""]
    options = _options(_own(command), ctx)
    if options:
        lines += [*options, ""]
    return [*lines, "```sh", *command.example.splitlines(), "```", ""]


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
