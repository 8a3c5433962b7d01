"""The command line: `hansard COMMAND …`."""

import gc

# What a command loads stays. Looked at after every 700 new objects, as usual, it takes a tenth of a
# short command's time.
gc.set_threshold(10_000)

from hansard.cli.entry import main  # noqa: E402

__all__ = ["main"]
