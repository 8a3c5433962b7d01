"""One answer of the model, gathered from its lines."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sessionary.formats import anthropic_blocks
from sessionary.importers.base import Said, Used
from sessionary.importers.claude_code_line import Answer, Line
from sessionary.importers.claude_code_words import content_of, merged
from sessionary.importers.content import Content
from sessionary.model.usage import MAX_TOKENS

TOOL = "claude-code"
_SYNTHETIC = "<synthetic>"
_EMPTY = Answer()


class Growing:
    """An answer that is being written, and what was said while it was."""

    __slots__ = (
        "_at",
        "_blocks",
        "_call",
        "_last",
        "_parent",
        "_used",
        "followers",
        "id",
        "line",
        "message_id",
        "size",
        "start",
    )

    def __init__(
        self,
        line: Line,
        id: str,
        message_id: str,
        *,
        call: str,
        parent: str | None,
        at: datetime,
        start: int,
    ) -> None:
        self.id, self.message_id, self.start = id, message_id, start
        self._call, self._parent, self._at = call, parent, at
        self._blocks = content_of((line.message or _EMPTY).content)
        self.line = self._last = self._used = line
        self.followers: list[Said] = []
        self.size = 0

    @property
    def is_finished(self) -> bool:
        """Whether the model said why it stopped."""
        return (self._last.message or _EMPTY).stop_reason is not None

    def grow(self, line: Line, size: int) -> None:
        """Another line of the same answer."""
        self.size += size
        message = line.message or _EMPTY
        self._blocks = merged(self._blocks, content_of(message.content))
        self._last = line
        # Earlier lines were written while the output came in: the last one has the whole of it.
        if _output(message) > 0:
            self._used = line

    def said(self) -> Said:
        """The whole of it."""
        message = self._last.message or _EMPTY
        content = Content()
        for block in self._blocks:
            anthropic_blocks.add_block(content, block)
        # What the program says in the model's place is not the model's, unless it is its error.
        is_aside = message.model == _SYNTHETIC and not self._last.isApiErrorMessage
        return Said(
            role="system" if is_aside else "assistant",
            parts=content.parts,
            blobs=content.blobs,
            at=self._at,
            id=self.id,
            parent=self._parent,
            model=None if message.model == _SYNTHETIC else message.model,
            finish_reason="error" if self._last.isApiErrorMessage else message.stop_reason,
            usage=_usage(self._used, self._at, self._call),
        )


def call_ids(message: Answer) -> list[tuple[str, str]]:
    """The tools that a line calls: id and name."""
    blocks: Any = message.content
    found: list[tuple[str, str]] = []
    for block in blocks if type(blocks) is list else ():
        if type(block) is dict and block.get("type") in ("tool_use", "server_tool_use"):
            id = block.get("id")
            if isinstance(id, str):
                found.append((id, str(block.get("name"))))
    return found


def _usage(line: Line, at: datetime, name: str) -> Sequence[Used]:
    """What the call used: billed once, in however many files and lines it stands."""
    message = line.message or _EMPTY
    tokens, model = message.usage, message.model
    if tokens is None or model is None or model == _SYNTHETIC:
        return ()
    written, kept = _whole(tokens.cache_creation_input_tokens), tokens.cache_creation
    used = Used(
        call_id=f"{TOOL}:{name}:{line.requestId}" if line.requestId else f"{TOOL}:{name}",
        model=model,
        at=at,
        input_tokens=_whole(tokens.input_tokens),
        output_tokens=_whole(tokens.output_tokens),
        cache_read_tokens=_whole(tokens.cache_read_input_tokens),
        cache_write_tokens=written,
        cache_write_1h_tokens=min(_whole(kept.ephemeral_1h_input_tokens), written) if kept else 0,
    )
    return (used,)


def _whole(number: int | None) -> int:
    return number if number is not None and 0 <= number <= MAX_TOKENS else 0


def _output(message: Answer) -> int:
    return 0 if message.usage is None else message.usage.output_tokens or 0
