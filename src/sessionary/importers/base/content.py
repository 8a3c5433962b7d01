"""What one message of another tool says, put together part by part."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sessionary.formats.content import Content
from sessionary.importers.base.events import MessageEvent


class MessageContent(Content):
    """Parts that become a message of the record that is read."""

    __slots__ = ()

    def said(self, role: str, at: datetime, **more: Any) -> MessageEvent:
        """The message."""
        return MessageEvent(role=role, parts=self.parts, blobs=self.blobs, at=at, **more)


class ModelTurn:
    """What a model said in one go: words and calls, and between them what tools answered."""

    def __init__(self) -> None:
        self._stretches: list[tuple[MessageContent, MessageContent]] = []

    @property
    def words(self) -> MessageContent:
        """Where words go: behind the answers, if there were any."""
        if not self._stretches or self._stretches[-1][1]:
            self._stretches.append((MessageContent(), MessageContent()))
        return self._stretches[-1][0]

    @property
    def tools(self) -> tuple[MessageContent, MessageContent]:
        """Where calls go, and where their answers go."""
        if not self._stretches:
            self._stretches.append((MessageContent(), MessageContent()))
        return self._stretches[-1]

    def said(self, role: str, at: datetime, *, id: str, **more: Any) -> Iterator[MessageEvent]:
        """The messages; what is known of the whole turn stands with the first."""
        for number, (content, results) in enumerate(self._stretches):
            name = id if number == 0 else f"{id}:{number}"
            if content:
                yield content.said(role, at, id=name, **more)
                more.pop("usage", None)
            if results:
                yield results.said("tool", at, id=f"{name}:results")
