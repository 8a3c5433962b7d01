"""`sessionary sessions …`."""

from functools import partial

import click

from sessionary.cli.tree import group

COMMANDS = {
    "list": "List sessions, newest activity first.",
    "ls": "Short for `sessions list`.",
    "show": "Print a session's transcript.",
    "append": "Add one message to a session, or begin one with it.",
    "rename": "Give a session a title.",
    "pin": "Keep a session at the top of lists.",
    "unpin": "Keep a session at the top no longer.",
    "archive": "Put a session out of the way.",
    "unarchive": "Bring a session back from the archive.",
    "trash": "Put a session into the trash for 30 days.",
    "restore": "Take a session out of the trash.",
    "purge": "Delete a session's words for ever.",
    "fork": "Begin a session with another's history.",
    "end": "Close a session.",
    "reopen": "Let a session go on.",
    "hold": "Keep a session from being reset.",
    "release": "Release a session's holds.",
    "move": "Put a session into a project.",
    "undo": "Take back the last messages.",
}


def load_command(name: str) -> click.Command:
    """Import the module of one command: importing all of them takes ten times as long."""
    match name:
        case "list" | "ls":
            from sessionary.cli.listing import list_sessions

            return list_sessions
        case "show":
            from sessionary.cli.showing import show

            return show
        case "append":
            from sessionary.cli.appending import append

            return append
        case "rename":
            from sessionary.cli.changing import rename

            return rename
        case "pin":
            from sessionary.cli.changing import pin

            return pin
        case "unpin":
            from sessionary.cli.changing import unpin

            return unpin
        case "archive":
            from sessionary.cli.changing import archive

            return archive
        case "unarchive":
            from sessionary.cli.changing import unarchive

            return unarchive
        case "trash":
            from sessionary.cli.changing import trash

            return trash
        case "restore":
            from sessionary.cli.changing import restore

            return restore
        case "purge":
            from sessionary.cli.changing import purge

            return purge
        case "fork":
            from sessionary.cli.changing import fork

            return fork
        case "end":
            from sessionary.cli.changing import end

            return end
        case "reopen":
            from sessionary.cli.changing import reopen

            return reopen
        case "hold":
            from sessionary.cli.holds import hold

            return hold
        case "release":
            from sessionary.cli.holds import release

            return release
        case "move":
            from sessionary.cli.changing import move

            return move
        case "undo":
            from sessionary.cli.changing import undo

            return undo
        case _:
            raise AssertionError(name)


sessions = group(
    "sessions",
    "List, read and change sessions.",
    {name: (partial(load_command, name), about) for name, about in COMMANDS.items()},
)
