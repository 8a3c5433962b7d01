"""The command line: `sessionary COMMAND …`.

A command should start at once, so this package loads as little as it can:

- `root` imports a command's module when the command is called, and help does not import the commands.
- A module imports late, inside a function, what only some of its calls need; a comment says what.
- The garbage of a short command is hardly worth collecting: 50,000 new objects are waited for instead of 700, and
  `main` exits without a last collection. Each saves 4 to 9 % of a short command's CPU time.
- What is declared on the way is a `msgspec.Struct` or a NamedTuple, not a dataclass (ADR 0041): a class costs 0.03 ms
  instead of 1.1 ms.

`tests/cli/test_start.py` names what must not be loaded.

What the author of a command needs is exported here; docs/plugins/command.md shows how it is used.
"""

import gc
import signal
import sys
from contextlib import suppress

from sessionary import NOT_ON_WINDOWS

if sys.platform == "win32":
    sys.exit(NOT_ON_WINDOWS)

gc.set_threshold(50_000, 10, 10)

# While the program is being loaded, Ctrl-C ends it without a traceback.
_handler = signal.getsignal(signal.SIGINT)
if _handler is signal.default_int_handler:
    with suppress(ValueError):  # only the main thread may set a handler
        signal.signal(signal.SIGINT, signal.SIG_DFL)

from sessionary.cli.console import Column, Console  # noqa: E402
from sessionary.cli.main import main  # noqa: E402
from sessionary.cli.tree import command, group, pass_console  # noqa: E402

if _handler is signal.default_int_handler:
    with suppress(ValueError):
        signal.signal(signal.SIGINT, _handler)

__all__ = ["Column", "Console", "command", "group", "main", "pass_console"]
