"""Titles that say nothing: commands, and what a tool calls a session before it has a name."""

import re
from collections.abc import Sequence
from typing import Any

# A command of a tool: one word behind a slash. A path has more slashes, and is no command.
_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?=\s|\Z)")
_PLACEHOLDER = re.compile(
    r"""
    (?: (?:new|untitled|unnamed|child|cli)
        (?:\ (?:session|chat|conversation|thread|task|agent|composer))?
        (?:\s*[-–:#(]?\s*[\d#][\dTZ:.,+()\ /-]*)?
      | (?:session|chat|conversation|thread)\s*[-–:#]?\s*\d[\dTZ:.,+\ /-]*
      | [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}
      | \d{4}-\d\d-\d\d[\dTZ:.+\ -]*
      | \d{8}_\d{1,6}
    )\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)
# What a program writes in a person's name.
_OF_THE_PROGRAM = (
    "<command-",
    "<local-command",
    "<environment_context",
    "<session_context",
    "<system-reminder",
    "Caveat: The messages below were generated",
    "[Request interrupted",
)
_LOOKED_AT = 4096


def says_nothing(title: str) -> bool:
    """Whether a title is a command, a placeholder, or the program's own words."""
    text = title.strip()
    return not text or _is_command(text) or _PLACEHOLDER.match(text) is not None


def words_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """What a person said in a message; None when it is a command or nothing."""
    text = "\n".join(part["text"] for part in parts if part["type"] == "text").strip()
    return None if not text or _is_command(text) else text[:_LOOKED_AT]


def _is_command(text: str) -> bool:
    return text.startswith(_OF_THE_PROGRAM) or _COMMAND.match(text) is not None
