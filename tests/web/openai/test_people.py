"""Users become persons, and turns that wait for people say so."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from sessionary.actions.retention import erase
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.actions.sessions import read
from sessionary.clock import RandomIds, SystemClock
from sessionary.engine import questions
from sessionary.engine.ports import Ask, Event, Step, TurnRequest
from sessionary.engine.questions import Answerer
from sessionary.model.message import message
from sessionary.model.question import Answer, Decision, NewQuestion, QuestionKind, outcome_text
from sessionary.model.source import Person
from sessionary.model.turn_options import TurnOptions
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.tables import blobs
from sessionary.testing.fakes import ScriptedRunner
from tests.support.model_server import ModelServer, Reply
from tests.support.openai_world import OpenAIWorld, openai_world, session_of


@pytest.fixture(params=("sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/sessionary.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


def asking(request: TurnRequest) -> Sequence[Event]:
    """Ask whatever the message says, and answer with the outcome."""
    question = request.question("1")
    if question is not None:
        return [Step(message("assistant", f"Done. {outcome_text(question)}"))]
    if str(request.context[-1]["content"]) == "send it":
        asked = NewQuestion(
            name="1", kind=QuestionKind.APPROVAL, text="", tool="send", arguments={"to": "Ann"}
        )
    elif str(request.context[-1]["content"]) == "book":
        asked = NewQuestion(name="1", kind=QuestionKind.TEXT, text="Which city?")
    else:
        return [Step(message("assistant", "Nothing to ask."))]
    return [Step(message("assistant", "One moment.")), Ask((asked,))]


def user(*texts: str) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": each} for n, each in enumerate(texts)]


async def ask(client: openai.AsyncOpenAI, talk: list[Any], **more: Any) -> Any:
    return await client.chat.completions.create(model="plain", messages=talk, user="ann", **more)


async def test_the_next_message_answers_what_the_agent_has_asked(
    store: Store, model: ModelServer
) -> None:
    async with openai_world(store, model, runners={"plain": ScriptedRunner(asking)}) as server:
        client = await server.client()

        first = await ask(client, user("book"))
        asked = first.choices[0].message.content
        second = await ask(client, user("book", asked, "Rome"))
        third = await ask(
            client, user("book", asked, "Rome", second.choices[0].message.content, "thanks")
        )

        assert asked.startswith("One moment.\n\n[Waiting for an answer of people:")
        assert "Which city?" in asked
        facts = first.model_extra["sessionary"]
        assert (facts["state"], len(facts["questions"])) == ("waiting", 1)
        assert "Rome" in second.choices[0].message.content
        assert session_of(first) == session_of(second) == session_of(third)
        assert third.choices[0].message.content == "Nothing to ask."


async def test_a_program_does_not_approve_and_goes_on_after_an_owner_did(
    store: Store, model: ModelServer
) -> None:
    async with openai_world(store, model, runners={"plain": ScriptedRunner(asking)}) as server:
        client = await server.client()
        first = await ask(client, user("send it"))
        asked = first.choices[0].message.content

        with pytest.raises(openai.ConflictError) as error:
            await ask(client, user("send it", asked, "yes"))
        assert error.value.code == "waiting_for_people"
        body: Any = error.value.body
        [question_id] = [each["id"] for each in body["questions"]]
        assert await server.texts(session_of(first)) == ["user: send it", "assistant: One moment."]
        context = server.engine.context
        await store.write(
            questions.answer,
            question_id,
            Answer(decision=Decision.APPROVE),
            who=Answerer("web", Person("owner"), is_owner=True),
            context=context,
            moment=context.moment(),
        )
        await server.world.settle(server.engine)

        second = await ask(client, user("send it", asked, "and?"))

        assert session_of(second) == session_of(first)
        assert (await server.texts(session_of(first)))[-2:] == [
            "user: and?",
            "assistant: Nothing to ask.",
        ]


async def test_what_a_user_has_written_is_erased_with_the_person(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.otherwise = Reply("hi")
    first = await client.chat.completions.create(
        model="assistant",
        messages=[{"role": "system", "content": "The user's secret is 1234."}, *user("I am Ann")],
        user="ann",
    )
    head = await server.store.read(read.get_head, session_of(first), profile="main")
    assert head.source.person == Person("ann")
    model = server.model.requests[0].messages[0]["content"]
    assert "1234" in str(model)
    options = TurnOptions(instructions="The user's secret is 1234.").encode() or ""
    name = blobs.hash_of_text(options)
    assert await server.store.read(blobs.exists, name)

    receipt = await asyncio.to_thread(
        erase.erase,
        server.store,
        ErasureSubject("api", "ann"),
        profile="main",
        moment=server.world.context().moment(),
    )

    assert receipt.sessions == [session_of(first)]
    assert not await server.store.read(blobs.exists, name)
    # The same conversation begins again.
    second = await client.chat.completions.create(
        model="assistant", messages=user("I am Ann", "hi", "again"), user="ann"
    )
    assert session_of(second) != session_of(first)
