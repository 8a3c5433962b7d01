"""Functions that tests use as agents."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.errors import NotAllowed
from sessionary.model.message import Message, message
from sessionary.model.question_data import QuestionData
from sessionary.model.transcript import last_user_text

closed = threading.Event()


def returns(request: TurnRequest) -> str:
    return f"You said {last_user_text(request.context)}"


async def returns_later(request: TurnRequest) -> str:
    await asyncio.sleep(0)
    return returns(request)


def gives_a_message(request: TurnRequest) -> Message:
    return message("assistant", returns(request))


def yields(request: TurnRequest) -> Iterator[str]:
    try:
        yield "You "
        yield f"said {last_user_text(request.context)}"
    finally:
        closed.set()


async def yields_steps(request: TurnRequest) -> AsyncIterator[Event | str]:
    yield Delta("hm", thinking=True)
    yield Step(message("assistant", "First."))
    yield "You "
    yield f"said {last_user_text(request.context)}"


def hangs(request: TurnRequest) -> str:
    time.sleep(30)
    return "never"


async def hangs_politely(request: TurnRequest) -> str:
    await asyncio.sleep(60)
    return "never"


def silent(request: TurnRequest) -> None:
    return None


def numbers(request: TurnRequest) -> int:
    return 7


def fails(request: TurnRequest) -> Iterator[str]:
    yield "so "
    raise LookupError("no tea")


async def asks(request: TurnRequest) -> str:
    """Asks one thing after the other, and catches all that it can."""
    try:
        city = await request.ask("Where to?")
        how = await request.ask("How?", options=["by train", "on foot"])
        trip = await request.ask(
            "How long?", schema={"type": "object", "properties": {"nights": {"type": "integer"}}}
        )
    except Exception as error:
        return f"Then not. {error}"
    return f"To {city} {how} for {trip['nights']} nights."


async def asks_between_steps(request: TurnRequest) -> AsyncIterator[Event | str]:
    yield Step(message("assistant", "First."))
    yield "Let me "
    name = await request.ask("Who are you?", name="who")
    yield f"see, {name}."


async def asks_at_once(request: TurnRequest) -> str:
    questions: list[QuestionData] = [
        {"name": "where", "text": "Where to?"},
        {"name": "book", "tool": "book", "arguments": {"nights": 2}},
    ]
    where, book = await request.ask_all(questions)
    if not book.is_approved:
        return "Then not."
    arguments = await request.approve("book", {"nights": 2}, name="book")
    assert where.answered is not None
    return f"Booked {arguments['nights']} nights in {where.answered.answer.text}."


async def asks_in_tasks(request: TurnRequest) -> str:
    async with asyncio.TaskGroup() as group:
        names = [
            group.create_task(request.ask("Who?", name="who")),
            group.create_task(request.ask("Where?", name="where")),
        ]
    return " ".join(each.result() for each in names)


async def approves(request: TurnRequest) -> str:
    try:
        arguments = await request.approve("deploy", {"to": "prod"}, text="It is Friday.")
    except NotAllowed as error:
        return f"Then not: {error}"
    return f"Deployed to {arguments['to']}."


async def approves_then_asks(request: TurnRequest) -> str:
    arguments = await request.approve("deploy", {"to": "prod"})
    more = await request.ask("What else?")
    return f"Deployed to {arguments['to']}, {more}."


async def changes_its_mind(request: TurnRequest) -> str:
    if request.questions:
        return await request.ask("Which?", options=["c", "d"])
    return await request.ask("Which?", options=["a", "b"])


class Made:
    @staticmethod
    def inside(request: TurnRequest) -> str:
        return returns(request)
