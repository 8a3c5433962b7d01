"""Every importer by its name; each is loaded when it is asked for."""

import importlib
from functools import cache
from pathlib import Path

from sessionary.errors import NotFound
from sessionary.importers.base import Importer

# In the order in which an unknown file is shown to them.
NAMES: tuple[str, ...] = (
    "claude-code",
    "codex",
    "openclaw",
    "pi",
    "hermes",
    "chatgpt",
    "claude-ai",
    "gemini-cli",
    "qwen-code",
    "opencode",
    "cursor",
    "copilot",
    "open-webui",
    "librechat",
    "cline",
    "goose",
    "openai-agents",
    "llm",
    "aider",
)


def importer(name: str) -> Importer:
    """The importer of that name."""
    if name not in NAMES:
        raise NotFound(f"There is no importer {name!r}. Known: {', '.join(NAMES)}.")
    module = importlib.import_module(f"sessionary.importers.{name.replace('-', '_')}")
    found: Importer = module.IMPORTER
    return found


@cache
def importers() -> tuple[Importer, ...]:
    """All of them."""
    return tuple(importer(name) for name in NAMES)


def recognise(path: Path) -> Importer | None:
    """The importer whose format a file or directory has; None when it is nobody's."""
    return next((each for each in importers() if each.recognises(path)), None)
