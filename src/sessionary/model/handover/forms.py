"""The tools that a conversation can be handed over to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sessionary.model.handover import claude_code, codex, hermes, open_webui, openai
from sessionary.model.handover.passage import Passage


@dataclass(frozen=True, slots=True)
class Form:
    """One tool: what its file looks like, and how to go on there."""

    title: str
    suffix: str
    pieces: Callable[[Passage], Iterator[str]]
    advice: Callable[[Passage, str], str]


FORMS = {
    "claude-code": Form("Claude Code", "jsonl", claude_code.pieces, claude_code.advice),
    "codex": Form("Codex", "jsonl", codex.pieces, codex.advice),
    "openai": Form("Chat Completions", "json", openai.pieces, openai.advice),
    "open-webui": Form("Open WebUI", "json", open_webui.pieces, open_webui.advice),
    "hermes": Form("Hermes", "jsonl", hermes.pieces, hermes.advice),
}
