"""The official clients for Node, installed on first use from the lock file in `tests/node_clients`."""

import os
from pathlib import Path

import hatch_build

FOLDER = Path(__file__).parents[1] / "node_clients"


def node() -> Path:
    """Install the clients if they are not, and return the path of Node; scripts in `FOLDER` can import them."""
    with hatch_build.FolderLock(FOLDER):
        hatch_build.install(FOLDER)
    return hatch_build.node_program()


def environment() -> dict[str, str]:
    """The environment to run a script with: ours, without the variables that these clients read."""
    unwanted = ("OPENAI_", "ANTHROPIC_", "AI_")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
