"""What one message of another tool says, put together part by part."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sessionary.formats.content import Content as EngineContext
from sessionary.importers.base.events import Said


class Content(EngineContext):
    """Parts that become a message of the record that is read."""

    __slots__ = ()

    def said(self, role: str, at: datetime, **more: Any) -> Said:
        """The message."""
        return Said(role=role, parts=self.parts, blobs=self.blobs, at=at, **more)


class Turn:
    """What a model said in one go: words and calls, and between them what tools answered."""

    def __init__(self) -> None:
        self._stretches: list[tuple[Content, Content]] = []

    @property
    def words(self) -> Content:
        """Where words go: behind the answers, if there were any."""
        if not self._stretches or self._stretches[-1][1]:
            self._stretches.append((Content(), Content()))
        return self._stretches[-1][0]

    @property
    def tools(self) -> tuple[Content, Content]:
        """Where calls go, and where their answers go."""
        if not self._stretches:
            self._stretches.append((Content(), Content()))
        return self._stretches[-1]

    def said(self, role: str, at: datetime, *, id: str, **more: Any) -> Iterator[Said]:
        """The messages; what is known of the whole turn stands with the first."""
        for number, (content, results) in enumerate(self._stretches):
            name = id if number == 0 else f"{id}:{number}"
            if content:
                yield content.said(role, at, id=name, **more)
                more.pop("usage", None)
            if results:
                yield results.said("tool", at, id=f"{name}:results")
