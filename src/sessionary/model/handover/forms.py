"""The tools that a conversation can be handed over to."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from sessionary.model.handover import claude_code, codex, hermes, open_webui, openai
from sessionary.model.handover.excerpt import HandoverExcerpt


class HandoverFormat(Struct, frozen=True):
    """One tool: what its file looks like, and how to continue there."""

    title: str
    suffix: str
    pieces: Callable[[HandoverExcerpt], Iterator[str]]
    advice: Callable[[HandoverExcerpt, str], str]


HANDOVER_FORMATS = {
    "claude-code": HandoverFormat("Claude Code", "jsonl", claude_code.pieces, claude_code.advice),
    "codex": HandoverFormat("Codex", "jsonl", codex.pieces, codex.advice),
    "openai": HandoverFormat("Chat Completions", "json", openai.pieces, openai.advice),
    "open-webui": HandoverFormat("Open WebUI", "json", open_webui.pieces, open_webui.advice),
    "hermes": HandoverFormat("Hermes", "jsonl", hermes.pieces, hermes.advice),
}
