"""An agent that is a function of yours, sync or async, returning or yielding."""

import asyncio
import contextlib
import importlib
import inspect
import sys
import threading
import traceback
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from msgspec import structs

from sessionary.agents.registry import AgentKind
from sessionary.config.setting import Setting
from sessionary.engine.ports import (
    AgentFunction,
    Ask,
    Delta,
    Event,
    QuestionsAsked,
    Step,
    TurnRequest,
)
from sessionary.errors import AgentFailed, BadInput
from sessionary.model.message import Message, Role, Text
from sessionary.model.question import NewQuestion

_END = object()


class PythonRunner:
    """Calls a function with the TurnRequest.

    It returns a text or a Message, or yields texts, Messages, Deltas and Steps; texts that were
    yielded since the last step become the next one. What is not asynchronous runs in a thread of
    its own, which cancelling lets run out: it is stopped at its next `yield`.

    A function that asks people something ends there, and is called again with the answers. A step that it then yields
    again is not recorded twice; texts that no step had finished are forgotten.
    """

    def __init__(self, function: AgentFunction, *, name: str) -> None:
        self._function = function
        self._name = name

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield the events of the function."""
        texts: list[str] = []
        silent = True
        recorded = deque(request.steps if request.questions else ())
        # Questions without a name are counted in each run.
        fresh = structs.replace(request, _numbers=count(1))
        try:
            async with contextlib.aclosing(self._items(fresh)) as items:
                async for item in items:
                    for event in _events(item, texts, self._name):
                        if isinstance(event, Step):
                            silent = False
                            if _is_repeated(event, recorded):
                                continue
                        yield event
        except QuestionsAsked as asked:
            yield Ask(asked.questions)
            return
        except BaseExceptionGroup as group:
            yield _asked_together(group)
            return
        if texts:
            yield Step(Message(Role.ASSISTANT, (Text("".join(texts)),), finish_reason="stop"))
        elif silent:
            raise AgentFailed(f"The agent {self._name} ended without saying anything.")

    async def close(self) -> None:
        """Do nothing: threads end by themselves."""

    async def _items(self, request: TurnRequest) -> AsyncGenerator[Any]:
        function = self._function
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            async with contextlib.aclosing(_awaited(function(request))) as items:
                async for item in items:
                    yield item
            return
        async with contextlib.aclosing(_in_thread(lambda: function(request))) as given:
            async for each in given:
                # A callable object may also return something to await.
                async with contextlib.aclosing(_awaited(each)) as items:
                    async for item in items:
                        yield item


def _is_repeated(step: Step, recorded: deque[Message]) -> bool:
    """Whether a step was recorded before the function was called again; of `recorded`, what is to come is left."""
    if not recorded:
        return False
    first, made = recorded[0], step.message
    if (first.role, first.parts) != (made.role, made.parts):
        recorded.clear()  # it does something else this time
        return False
    recorded.popleft()
    return True


def _asked_together(group: BaseExceptionGroup[BaseException]) -> Ask:
    """Return the questions that several tasks of a function have asked at once; raise the group if it is about more."""
    _, others = group.split(QuestionsAsked)
    if others is not None:
        raise group
    return Ask(tuple(_questions_in(group)))


def _questions_in(error: BaseException) -> Iterator[NewQuestion]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _questions_in(each)
    elif isinstance(error, QuestionsAsked):
        yield from error.questions


async def _awaited(given: Any) -> AsyncGenerator[Any]:
    """Yield what a function returned, after waiting for it, or each item that it yields."""
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterator):
        yield given
        return
    try:
        async for item in given:
            yield item
    finally:
        if isinstance(given, AsyncGenerator):
            await given.aclose()


def load(entry_point: str, *, folder: Path | None = None) -> AgentFunction:
    """Import the function that `module:function` names; `folder` is where sessionary.toml is.

    A module in the folder takes precedence over an installed one of the same name.
    """
    module_name, _, path = entry_point.partition(":")
    if not module_name or not path:
        raise BadInput(f"An entry point is written module:function, not {entry_point!r}.")
    if folder is not None and str(folder) not in sys.path:
        first = folder / module_name.partition(".")[0]
        if first.is_dir() or first.with_suffix(".py").is_file():
            sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything when it is imported
        raise BadInput(
            f"The agent {entry_point} cannot be loaded: {_failure(error)}. "
            "--debug shows the traceback."
        ) from error
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise BadInput(f"The module {module_name} has no function {path!r}.")
    function: AgentFunction = found
    return function


def _failure(error: Exception) -> str:
    """Return the error for a module that failed to import, with its line."""
    words = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {words[0]}" if words else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if "importlib" not in each.filename and each.name == "<module>"]
    return f"{what} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else what


def _events(item: Any, texts: list[str], name: str) -> Iterator[Event]:
    """Yield the events of one item; texts are collected in `texts` until a step comes."""
    match item:
        case None:
            return
        case str():
            texts.append(item)
            yield Delta(item)
        case Delta():
            if not item.thinking:
                texts.append(item.text)
            yield item
        case Step():
            texts.clear()
            yield item
        case Message():
            texts.clear()
            yield Step(item)
        case _:
            kind = type(item).__name__
            raise AgentFailed(f"The agent {name} gave a {kind}; a text or a Step was expected.")


async def _in_thread(call: Callable[[], Any]) -> AsyncGenerator[Any]:
    """Run a call in a daemon thread, which does not delay exit; yield what it returns or yields."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()
    taken = threading.Semaphore(0)
    left = threading.Event()

    def give(item: Any, error: BaseException | None = None) -> None:
        # The loop may be closed; then nobody waits for the result.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(arrived.put_nowait, (item, error))

    def work() -> None:
        try:
            _give_all(call(), give, lambda: taken.acquire() and not left.is_set())
        except BaseException as error:
            # Raised again in the event loop.
            give(_END, error)
            return
        give(_END)

    threading.Thread(target=work, name="sessionary-agent", daemon=True).start()
    try:
        while True:
            item, error = await arrived.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
            taken.release()
    finally:
        left.set()
        taken.release()


def _give_all(given: Any, give: Callable[[Any], None], may_go_on: Callable[[], bool]) -> None:
    if not isinstance(given, Iterator):
        give(given)
        return
    for item in given:
        give(item)
        if not may_go_on():
            close = getattr(given, "close", None)
            if close is not None:
                close()
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSettings:
    """The settings of an agent that is a function."""

    function: Annotated[str, Setting("module:function", example="my_module:answer")]


AGENT = AgentKind(
    name="python",
    title="A function of yours",
    settings=PythonSettings,
    create=lambda settings, context: PythonRunner(
        load(settings.function, folder=context.folder), name=settings.function
    ),
    documentation="docs/agents.md",
)
