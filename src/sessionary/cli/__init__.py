"""The command line: `sessionary COMMAND …`."""

import gc
import signal
import sys
from contextlib import suppress

from sessionary import NOT_ON_WINDOWS

if sys.platform == "win32":
    sys.exit(NOT_ON_WINDOWS)

# What a command loads stays. Looked at after every 700 new objects, as usual, it takes a tenth of a
# short command's time.
gc.set_threshold(10_000)

# Ctrl-C while the program is being loaded ends it; there is nobody yet to tell of it in a line.
_before = signal.getsignal(signal.SIGINT)
if _before is signal.default_int_handler:
    with suppress(ValueError):  # not the thread that hears it
        signal.signal(signal.SIGINT, signal.SIG_DFL)

from sessionary.cli.entry import main  # noqa: E402

if _before is signal.default_int_handler:
    with suppress(ValueError):
        signal.signal(signal.SIGINT, _before)

__all__ = ["main"]
