"""The prompt of `sessionary chat`, with history and completion."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from sessionary.app.chat import COMMANDS, TerminalChat

RESUME = "/resume "


class Prompt:
    """Asks for the next line."""

    def __init__(self, conversation: TerminalChat) -> None:
        self._session: PromptSession[str | None] = PromptSession(
            history=InMemoryHistory(conversation.earlier_prompts()),
            completer=_ChatCompleter(conversation),
            complete_while_typing=False,
            enable_history_search=True,
        )
        # What was typed when the prompt was closed.
        self._typed = ""

    async def ask(self, label: str, *, until: "asyncio.Future[Any] | None" = None) -> str | None:
        """Return the next line; None if `until` is done before, and what was typed is there again the next time."""
        if until is not None:
            until.add_done_callback(self._close)
        try:
            typed, self._typed = self._typed, ""
            return await self._session.prompt_async(
                label, default=typed, pre_run=lambda: self._close(until)
            )
        finally:
            if until is not None:
                until.remove_done_callback(self._close)
            self._session.app.erase_when_done = False

    def _close(self, until: "asyncio.Future[Any] | None") -> None:
        app = self._session.app
        if until is not None and until.done() and app.is_running and not app.is_done:
            self._typed = self._session.default_buffer.text
            app.erase_when_done = True
            app.exit(result=None)


class _ChatCompleter(Completer):
    """Completes `/commands`, and session names after `/resume`."""

    def __init__(self, conversation: TerminalChat) -> None:
        self._conversation = conversation

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/"):
            return
        names: Sequence[str] = COMMANDS
        if text.startswith(RESUME):
            text, names = text.removeprefix(RESUME), self._conversation.session_names()
        yield from (
            Completion(name, start_position=-len(text)) for name in names if name.startswith(text)
        )
