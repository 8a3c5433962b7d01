"""The command line: `hansard COMMAND …`."""

from hansard.cli.entry import main

__all__ = ["main"]
