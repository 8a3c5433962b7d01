"""`sessionary sessions …`."""

import click

from sessionary.cli.tree import LazyGroup

COMMANDS = {
    "list": "List sessions, newest activity first.",
    "ls": "Short for `sessions list`.",
    "show": "Print a session's transcript.",
    "append": "Add one message to a session, or begin one with it.",
    "rename": "Give a session a title.",
    "choose": "Choose its agent, model, persona or tools.",
    "pin": "Keep a session at the top of lists.",
    "unpin": "Undo `pin`.",
    "pin-message": "Keep a message for the model.",
    "unpin-message": "Undo `pin-message`.",
    "archive": "Hide a session from the list.",
    "unarchive": "Bring a session back from the archive.",
    "trash": "Move a session to the trash for 30 days.",
    "restore": "Take a session out of the trash.",
    "purge": "Delete a session's messages forever.",
    "fork": "Begin a session with another's history.",
    "stop": "Stop the running turn.",
    "end": "Close a session.",
    "reopen": "Open an ended session again.",
    "hold": "Keep a session from being reset.",
    "release": "Release a session's holds.",
    "move": "Move a session to a project.",
    "undo": "Take back the last messages.",
}


def load_command(name: str) -> click.Command:
    """Import the module of one command."""
    match name:
        case "list" | "ls":
            from sessionary.cli.sessions.list import list_sessions

            return list_sessions
        case "show":
            from sessionary.cli.sessions.show import show

            return show
        case _:
            from sessionary.cli.sessions import change

            return change.COMMANDS[name]


sessions = LazyGroup("sessions", "List, read and change sessions.", COMMANDS, load_command)
