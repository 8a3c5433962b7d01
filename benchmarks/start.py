"""From the shell and back: what a command takes that has hardly anything to do."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.cold import Cold
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Scale

VERSION, LIST, SHOW = "sessionary --version", "sessionary sessions list", "sessionary sessions show"
TITLE = "Capitals"
_SESSIONARY = ["-m", "sessionary"]
COMMANDS = {
    VERSION: [*_SESSIONARY, "--version"],
    LIST: [*_SESSIONARY, "sessions", "list"],
    SHOW: [*_SESSIONARY, "sessions", "show", TITLE],
}


def cases(folder: Path, _: Scale) -> Iterator[Case]:
    """Commands that read one small store."""
    cold = Cold(folder, SESSIONARY_HOME=str(folder / "home"))
    cold.run([*_SESSIONARY, "sessions", "append", "new", "hello", "--title", TITLE])
    ours = [Contestant(name, "product", cold.times(args, 4)) for name, args in COMMANDS.items()]
    goal = at_most(150, "ms", lambda got: got.p50(LIST) * 1000, of="a list")
    yield Case("a command, from the shell and back", (*ours, cold.floor(4)), (goal,), by="p50")
