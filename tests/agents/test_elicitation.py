"""MCP servers that ask people something in the middle of a call."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
import uvicorn
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

from sessionary.agents import mcp_tools
from sessionary.agents.elicitation import read_elicitation
from sessionary.agents.mcp_tools import McpTools, ToolServers
from sessionary.agents.model import ToolServer
from sessionary.errors import BadInput, TurnLost
from sessionary.model.question import Answer, Decision, NewQuestion, Question, QuestionKind
from sessionary.testing.runner_suite import decided_question

OLD_PROGRAM = (sys.executable, "-S", str(Path(__file__).with_name("old_tool_server.py")))
CITY = {"city": {"type": "string", "title": "City"}}
TITLED = {
    "type": "string",
    "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}],
}


def form(required: Sequence[str] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def approve(**given: Any) -> Answer:
    return Answer(decision=Decision.APPROVE, **given)


@pytest.mark.parametrize(
    ("schema", "kind", "options", "given", "content"),
    [
        (form(), "choice", ("Accept", "Decline"), approve(text="Accept"), {}),
        (form(), "choice", ("Accept", "Decline"), approve(text="Decline"), None),
        (form(**CITY), "text", (), approve(text="Rome"), {"city": "Rome"}),
        (form(ok={"type": "boolean"}), "choice", ("Yes", "No"), approve(text="No"), {"ok": False}),
        (
            form(size={"type": "string", "enum": ["S", "L"]}),
            "choice",
            ("S", "L"),
            approve(text="L"),
            {"size": "L"},
        ),
        (
            form(size={"enum": ["s", "l"], "enumNames": ["Small", "Large"]}),
            "choice",
            ("Small", "Large"),
            approve(text="2"),
            {"size": "l"},
        ),
        (form(colour=TITLED), "choice", ("Red", "Blue"), approve(text="Blue"), {"colour": "b"}),
        (form(n={"type": "integer"}), "form", (), approve(values={"n": 3}), {"n": 3}),
        (
            form(["city"], **CITY, colour=TITLED),
            "form",
            (),
            approve(values={"city": "Rome", "colour": "r"}),
            {"city": "Rome", "colour": "r"},
        ),
        # Too many for buttons, and too few to choose from.
        (form(n={"enum": list("abcdefghijklmnopqrstuvw")}), "form", (), None, None),
        (form(n={"enum": ["only"]}), "form", (), approve(values={"n": "only"}), {"n": "only"}),
        # Several values of a list can be left out if they need not be given.
        (form(**CITY, tags={"type": "array"}), "text", (), approve(text="Rome"), {"city": "Rome"}),
        (form(**CITY), "text", (), Answer(decision=Decision.DENY), None),
        (form(**CITY), "text", (), None, None),
    ],
)
def test_a_form_is_asked_as_what_can_be_answered_most_easily(
    schema: dict[str, Any],
    kind: str,
    options: tuple[str, ...],
    given: Answer | None,
    content: dict[str, Any] | None,
) -> None:
    asked = read_elicitation("book", "Which?", schema, name="q")

    assert (asked.question.kind, asked.question.options) == (kind, options)
    assert asked.question.text.startswith("The tool book asks: Which?")
    assert asked.content(decided_question(asked.question, given)) == content


def test_the_values_of_a_form_are_described() -> None:
    schema = form(["city"], **CITY, colour=TITLED, late={"type": "boolean"})

    assert read_elicitation("book", "Where?", schema, name="q").question.text == (
        "The tool book asks: Where?\n\n"
        "- city (City; text)\n"
        "- colour (one of r, b; optional)\n"
        "- late (yes or no; optional)"
    )


@pytest.mark.parametrize("field", [{"type": "array"}, {"type": "object"}, {}, "text", None])
def test_a_value_that_no_form_can_have_is_refused_if_it_is_needed(field: Any) -> None:
    with pytest.raises(BadInput, match="'tags'"):
        read_elicitation("book", "Which?", form(["tags"], tags=field), name="q")


class People:
    """People who answer what they are asked, as a test says."""

    def __init__(self, *answers: Answer | BaseException | None) -> None:
        self.answers = list(answers)
        self.asked: list[NewQuestion] = []
        self.is_cancelled = False

    async def __call__(self, question: NewQuestion, /) -> Question:
        self.asked.append(question)
        if not self.answers:
            try:
                await asyncio.Event().wait()
            finally:
                self.is_cancelled = True
        given = self.answers.pop(0)
        if isinstance(given, BaseException):
            raise given
        return decided_question(question, given)


@pytest.fixture
async def servers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Connect a turn with these people to a server that is shared by all."""
    monkeypatch.setattr(mcp_tools, "_START_SECONDS", 200.0)
    made: dict[str, ToolServers] = {}
    async with AsyncExitStack() as stack:

        async def connect(
            people: People, *, url: str | None = None, seconds: float = 120
        ) -> McpTools:
            server = ToolServer(url=url) if url else ToolServer(command=OLD_PROGRAM)
            name = url or "program"
            if name not in made:
                made[name] = ToolServers([server], timeout_seconds=seconds)
                stack.push_async_callback(made[name].close)
            return await stack.enter_async_context(made[name].opened(people))

        yield connect


def answered(content: Any) -> Any:
    assert content["elicitation"], "the server is told that it may ask"
    return content["result"]


async def test_a_program_gets_what_people_answer(servers: Any) -> None:
    people = People(approve(text="Rome"), Answer(decision=Decision.DENY), None, TurnLost("lost"))
    tools = await servers(people)
    found = [
        await tools.call("ask", {"message": "Where?", "schema": form(**CITY)}, key=str(number))
        for number in range(4)
    ]

    assert [answered(each.content) for each in found] == [
        {"action": "accept", "content": {"city": "Rome"}},
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "cancel"},
    ]
    assert [each.text for each in people.asked] == ["The tool ask asks: Where?\n\nCity"] * 4


async def test_a_page_is_not_opened_and_the_model_is_told(servers: Any) -> None:
    people = People()
    outcome = await (await servers(people)).call("open_page", {}, key="1")

    assert answered(outcome.content) == {"action": "decline"}
    assert outcome.note == "[The tool wanted a person to open a page of example.org: declined.]"
    assert people.asked == []


async def test_what_cannot_be_asked_is_cancelled_and_the_model_is_told(servers: Any) -> None:
    people = People()
    schema = form(["tags"], tags={"type": "array", "items": {"type": "string"}})
    outcome = await (await servers(people)).call("ask", {"schema": schema}, key="1")

    assert answered(outcome.content) == {"action": "cancel"}
    assert "that cannot be asked: The value 'tags'" in outcome.note


async def test_whose_call_a_program_asks_for_must_be_clear(servers: Any) -> None:
    """Otherwise somebody would be asked about the conversation of somebody else."""
    people = [People(approve(text="Accept")), People(approve(text="Accept"))]
    turns = [await servers(each) for each in people]

    found = await asyncio.gather(*(turn.call("gather", {}, key="1") for turn in turns))

    assert [answered(each.content) for each in found] == [{"action": "cancel"}] * 2
    assert [each.asked for each in people] == [[], []]


async def test_a_program_may_ask_in_two_calls_of_one_turn(servers: Any) -> None:
    people = People(approve(text="Accept"), approve(text="Accept"))
    turn = await servers(people)

    found = await asyncio.gather(*(turn.call("gather", {}, key=str(n)) for n in range(2)))

    assert [answered(each.content)["action"] for each in found] == ["accept"] * 2


class Trip(BaseModel):
    """What the new server asks for."""

    city: str


def ask_city(hotel: str) -> Elicit[Trip]:
    return Elicit(f"Which city for {hotel}?", Trip)


@asynccontextmanager
async def new_server() -> AsyncIterator[str]:
    """A server of the protocol of 2026 over HTTP: its answer to a call may be a question."""
    server = MCPServer("new", log_level="CRITICAL")

    @server.tool()
    async def book(hotel: str, trip: Annotated[ElicitationResult[Trip], Resolve(ask_city)]) -> str:
        """Book a hotel."""
        return f"{hotel} {trip!r}"

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
    web = uvicorn.Server(config)
    task = asyncio.create_task(web.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        web.should_exit = web.force_exit = True
        await task
        listening.close()


async def test_each_turn_is_asked_what_the_server_asks_for_it(servers: Any) -> None:
    people = [People(approve(text="Rome")), People(approve(text="Oslo"))]
    async with new_server() as url:
        turns = [await servers(each, url=url) for each in people]
        found = await asyncio.gather(
            *(turn.call("book", {"hotel": str(at)}, key="1") for at, turn in enumerate(turns))
        )

    assert ["Rome" in found[0].content, "Oslo" in found[1].content] == [True, True]
    assert [each.asked[0].text for each in people] == [
        "The tool book asks: Which city for 0?\n\nCity",
        "The tool book asks: Which city for 1?\n\nCity",
    ]


async def test_the_time_of_a_call_stands_still_while_people_are_asked(servers: Any) -> None:
    limits: list[float | None] = []

    class Watching(People):
        async def __call__(self, question: NewQuestion, /) -> Question:
            call = mcp_tools._CALL.get()
            assert call is not None
            limits.append(call.limit.when())
            return await super().__call__(question)

    async with new_server() as url:
        turn = await servers(Watching(approve(text="Rome")), url=url)
        outcome = await turn.call("book", {"hotel": "A"}, key="1")

    assert limits == [None]
    assert "Rome" in outcome.content


@pytest.mark.parametrize("is_new", [False, True], ids=["a program", "a new server"])
async def test_nobody_is_asked_any_more_when_the_call_is_cancelled(
    servers: Any, *, is_new: bool
) -> None:
    people = People()
    async with new_server() as url:
        turn = await servers(people, url=url if is_new else None)
        name = "book" if is_new else "ask"
        call = asyncio.create_task(turn.call(name, {"hotel": "A"}, key="1"))
        async with asyncio.timeout(60):
            while not people.asked:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.003)
            call.cancel()
            await asyncio.wait({call})
            while not people.is_cancelled:  # noqa: ASYNC110
                await asyncio.sleep(0.003)

    assert call.cancelled()
    assert people.asked[0].kind in (QuestionKind.CHOICE, QuestionKind.TEXT)
