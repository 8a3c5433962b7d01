"""One answer of the model, gathered from its lines."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hansard.importers import anthropic_blocks, shape
from hansard.importers.base import Said
from hansard.importers.claude_code_line import Answer, Line
from hansard.importers.claude_code_words import content_of, merged
from hansard.importers.content import Content
from hansard.model.usage import Usage

TOOL = "claude-code"
_SYNTHETIC = "<synthetic>"
_EMPTY = Answer()


class Growing:
    """An answer that is being written, and what was said while it was."""

    __slots__ = (
        "_at",
        "_blocks",
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
        self, line: Line, *, id: str, message_id: str, parent: str | None, at: datetime, start: int
    ) -> None:
        self.id, self.message_id, self.start = id, message_id, start
        self._parent, self._at = parent, at
        self._blocks = content_of((line.message or _EMPTY).content)
        self.line = self._last = self._used = line
        self.followers: list[Said] = []
        self.size = 0

    @property
    def is_finished(self) -> bool:
        """Whether the model said why it stopped."""
        return (self._last.message or _EMPTY).stop_reason is not None

    def grow(self, line: Line) -> None:
        """Another line of the same answer."""
        message = line.message or _EMPTY
        self._blocks = merged(self._blocks, content_of(message.content))
        self._last = line
        # Earlier lines were written while the output came in; each repeats the rest.
        if _count(message, "output_tokens") > _count(self._used.message or _EMPTY, "output_tokens"):
            self._used = line

    def said(self) -> Said:
        """The whole of it."""
        message = self._last.message or _EMPTY
        content = Content()
        anthropic_blocks.add(content, self._blocks)
        return content.said(
            "assistant",
            self._at,
            id=self.id,
            parent=self._parent,
            model=None if message.model == _SYNTHETIC else message.model,
            finish_reason="error" if self._last.isApiErrorMessage else message.stop_reason,
            usage=_usage(self._used, self._at),
        )


def call_ids(line: Line) -> list[tuple[str, str]]:
    """The tools that a line calls: id and name."""
    blocks: Any = (line.message or _EMPTY).content
    if not isinstance(blocks, list):
        return []
    return [
        (block["id"], str(block.get("name")))
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") in ("tool_use", "server_tool_use")
        and isinstance(block.get("id"), str)
    ]


def _usage(line: Line, at: datetime) -> Sequence[Usage]:
    """What the call used: billed once, in however many files and lines it stands."""
    message = line.message or _EMPTY
    if message.usage is None or message.model in (None, _SYNTHETIC):
        return ()
    name = message.id or line.uuid
    used = Usage(
        model=message.model,
        input_tokens=_count(message, "input_tokens"),
        output_tokens=_count(message, "output_tokens"),
        cache_read_tokens=_count(message, "cache_read_input_tokens"),
        cache_write_tokens=_count(message, "cache_creation_input_tokens"),
        call_id=f"{TOOL}:{name}:{line.requestId}" if line.requestId else f"{TOOL}:{name}",
        at=at,
    )
    return (used,)


def _count(message: Answer, name: str) -> int:
    return 0 if message.usage is None else shape.count(message.usage.get(name))
