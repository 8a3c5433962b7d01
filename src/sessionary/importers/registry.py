"""Every importer by its name."""

from functools import cache
from pathlib import Path

from sessionary.errors import NotFound
from sessionary.importers.base.events import Importer

# In the order in which they are asked whether they recognise a file.
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
    """Return the importer of that name."""
    if name not in NAMES:
        raise NotFound(f"There is no importer {name!r}. Known: {', '.join(NAMES)}.")
    return importers()[NAMES.index(name)]


@cache
def importers() -> tuple[Importer, ...]:
    """Return all importers, in the order of `NAMES`."""
    # Imported late: commands that only list the names need none of these modules.
    from sessionary.importers import (
        aider,
        chatgpt,
        claude_ai,
        cline,
        codex,
        goose,
        librechat,
        llm,
        open_webui,
        openai_agents,
        openclaw,
        opencode,
        pi,
    )
    from sessionary.importers.claude_code import importer as claude_code
    from sessionary.importers.copilot import importer as copilot
    from sessionary.importers.cursor import importer as cursor
    from sessionary.importers.gemini import gemini_cli, qwen_code
    from sessionary.importers.hermes import importer as hermes

    by_name: dict[str, Importer] = {
        module.IMPORTER.name: module.IMPORTER
        for module in (
            *(claude_code, codex, openclaw, pi, hermes, chatgpt, claude_ai, gemini_cli),
            *(qwen_code, opencode, cursor, copilot, open_webui, librechat, cline, goose),
            *(openai_agents, llm, aider),
        )
    }
    return tuple(by_name[name] for name in NAMES)


def recognise(path: Path) -> Importer | None:
    """Return the importer whose format a file or directory has, or None."""
    return next((importer for importer in importers() if importer.recognises(path)), None)
