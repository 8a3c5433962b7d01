"""The prompt of `sessionary chat`, with history and completion."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from sessionary.app.chat import COMMANDS, TerminalChat

RESUME = "/resume "


def asker(conversation: TerminalChat) -> Callable[[], Awaitable[str]]:
    """Return a function that asks for the next line."""
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory(conversation.earlier_prompts()),
        completer=_ChatCompleter(conversation),
        complete_while_typing=False,
        enable_history_search=True,
    )

    async def ask() -> str:
        return await session.prompt_async("› ")

    return ask


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
