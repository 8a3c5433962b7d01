"""`sessionary sessions …`."""

from sessionary.cli.tree import group

COMMANDS = {
    "list": ("listing:list_sessions", "List sessions, newest activity first."),
    "ls": ("listing:list_sessions", "Short for `sessions list`."),
    "show": ("showing:show", "Print a session's transcript."),
    "append": ("appending:append", "Add one message to a session, or begin one with it."),
    "rename": ("changing:rename", "Give a session a title."),
    "pin": ("changing:pin", "Keep a session at the top of lists."),
    "unpin": ("changing:unpin", "Keep a session at the top no longer."),
    "archive": ("changing:archive", "Put a session out of the way."),
    "unarchive": ("changing:unarchive", "Bring a session back from the archive."),
    "trash": ("changing:trash", "Put a session into the trash for 30 days."),
    "restore": ("changing:restore", "Take a session out of the trash."),
    "purge": ("changing:purge", "Delete a session's words for ever."),
    "fork": ("changing:fork", "Begin a session with another's history."),
    "end": ("changing:end", "Close a session."),
    "reopen": ("changing:reopen", "Let a session go on."),
    "hold": ("holds:hold", "Keep a session from being reset."),
    "release": ("holds:release", "Release a session's holds."),
    "move": ("changing:move", "Put a session into a project."),
    "undo": ("changing:undo", "Take back the last messages."),
}

sessions = group("sessions", "List, read and change sessions.", COMMANDS)
