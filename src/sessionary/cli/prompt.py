"""The line a person types on: history, completion of commands and of session names."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from sessionary.app.talk import COMMANDS, Talk

NAMING = ("/resume ",)


def asker(talk: Talk) -> Callable[[], Awaitable[str]]:
    """A function that asks for the next line."""
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory(talk.earlier_prompts()),
        completer=_Names(talk),
        complete_while_typing=False,
        enable_history_search=True,
    )

    async def ask() -> str:
        return await session.prompt_async("› ")

    return ask


class _Names(Completer):
    """Completes `/commands`, and session names behind those that take one."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        text: Any = document.text_before_cursor
        if not text.startswith("/"):
            return
        for naming in NAMING:
            if text.startswith(naming):
                begun = text[len(naming) :]
                names = (name for name in self._talk.session_names() if name.startswith(begun))
                yield from (Completion(name, start_position=-len(begun)) for name in names)
                return
        yield from (
            Completion(each, start_position=-len(text))
            for each in COMMANDS
            if each.startswith(text)
        )
