"""From the shell and back: what a command takes that has hardly anything to do."""

from collections.abc import Iterator
from pathlib import Path

from hansard.bench.cold import Cold
from hansard.bench.goals import at_most
from hansard.bench.measure import Case, Contestant, Scale

VERSION, LIST, SHOW = "hansard --version", "hansard sessions list", "hansard sessions show"
TITLE = "Capitals"
_HANSARD = ["-m", "hansard"]
COMMANDS = {
    VERSION: [*_HANSARD, "--version"],
    LIST: [*_HANSARD, "sessions", "list"],
    SHOW: [*_HANSARD, "sessions", "show", TITLE],
}


def cases(folder: Path, _: Scale) -> Iterator[Case]:
    """Commands that read one small store."""
    cold = Cold(folder, HANSARD_HOME=str(folder / "home"))
    cold.run([*_HANSARD, "sessions", "append", "new", "hello", "--title", TITLE])
    ours = [Contestant(name, "product", cold.times(args, 4)) for name, args in COMMANDS.items()]
    goal = at_most(150, "ms", lambda got: got.p50(LIST) * 1000, of="a list")
    yield Case("a command, from the shell and back", (*ours, cold.floor(4)), (goal,), by="p50")
