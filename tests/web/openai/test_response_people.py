"""Responses of turns that wait for people, and of people who are erased."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from sessionary.actions.retention import erase, purge
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.actions.sessions import edit
from sessionary.engine import questions
from sessionary.engine.ports import Event, TurnRequest
from sessionary.engine.questions import Answerer
from sessionary.model.question import Answer, Decision
from sessionary.model.source import Person
from sessionary.store.database import Store
from sessionary.testing.fakes import ScriptedRunner
from tests.support.model_server import ModelServer, Reply
from tests.support.openai_world import OpenAIWorld, openai_world
from tests.web.openai.test_people import asking
from tests.web.openai.test_retries import is_equal, until
from tests.web.test_openai_conversations import refused
from tests.web.test_openai_files import kept


class HeldRunner(ScriptedRunner):
    """Asks, and stops before it goes on after the answer."""

    def __init__(self) -> None:
        super().__init__(asking)
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        if request.question("1") is not None:
            self.reached.set()
            await self.open.wait()
        async for event in super().run(request):
            yield event


async def test_a_response_that_waits_for_people_is_answered_by_the_next(
    store: Store, model: ModelServer
) -> None:
    async with openai_world(store, model, runners={"plain": ScriptedRunner(asking)}) as world:
        client = await world.client()

        async with client.responses.stream(model="plain", input="book") as stream:
            deltas = [
                each.delta async for each in stream if each.type == "response.output_text.delta"
            ]
            first: Any = await stream.get_final_response()
        second: Any = await client.responses.create(
            model="plain", input="Rome", previous_response_id=first.id
        )

        assert first.output_text == "".join(deltas)
        assert first.output_text.startswith("One moment.\n\n[Waiting for an answer of people:")
        assert first.model_extra["sessionary"]["questions"][0]["text"] == "Which city?"
        assert "Rome" in second.output_text
        assert second.conversation == first.conversation
        whole: Any = await client.responses.retrieve(first.id)
        assert whole.status == "completed"
        assert [each.content[0].text for each in whole.output] == [
            "One moment.",
            f"\n\n{second.output_text.strip()}",
        ]
        assert await client.responses.retrieve(second.id) == second
        [item] = (await client.responses.input_items.list(second.id)).data
        assert item.content[0].text == "Rome"  # type: ignore[union-attr, index]
        third = await client.responses.create(
            model="plain", input="thanks", previous_response_id=second.id
        )
        assert third.output_text == "Nothing to ask."
        assert third.conversation == first.conversation


async def test_a_repeated_answer_to_a_question_gets_the_response_of_the_first(
    store: Store, model: ModelServer
) -> None:
    runner = HeldRunner()
    async with openai_world(store, model, runners={"plain": runner}) as world:
        client = await world.client()
        first = await client.responses.create(model="plain", input="book")
        keyed: Any = {
            "model": "plain",
            "input": "Rome",
            "previous_response_id": first.id,
            "extra_headers": {"Idempotency-Key": "key"},
        }

        answers = [asyncio.create_task(client.responses.create(**keyed))]
        await runner.reached.wait()
        with pytest.raises(openai.ConflictError) as error:
            await client.responses.create(**keyed | {"extra_headers": {}})
        assert error.value.code == "response_in_progress"
        answers.append(asyncio.create_task(client.responses.create(**keyed)))
        await until(lambda: is_equal(world.listeners, 2))
        runner.open.set()

        one, two = await asyncio.gather(*answers)
        assert one == two
        assert "Rome" in one.output_text


async def test_a_background_response_waits_until_an_owner_has_approved(
    store: Store, model: ModelServer
) -> None:
    async with openai_world(store, model, runners={"plain": ScriptedRunner(asking)}) as world:
        client = await world.client()
        made: Any = await client.responses.create(model="plain", input="send it", background=True)
        await world.world.eventually(lambda: _waits(client, made.id))
        waiting: Any = await client.responses.retrieve(made.id)
        assert waiting.status == "in_progress"

        with pytest.raises(openai.ConflictError) as error:
            await client.responses.create(model="plain", input="yes", previous_response_id=made.id)
        assert error.value.code == "waiting_for_people"
        [question] = waiting.model_extra["sessionary"]["questions"]
        context = world.engine.context
        await store.write(
            questions.answer,
            question["id"],
            Answer(decision=Decision.APPROVE),
            who=Answerer("web", Person("owner"), is_owner=True),
            context=context,
            moment=context.moment(),
        )
        await world.world.settle(world.engine)

        done = await client.responses.retrieve(made.id)
        assert done.status == "completed"
        assert done.output_text.startswith("One moment.\n\nDone.")


async def _waits(client: openai.AsyncOpenAI, id: str) -> bool:
    found: Any = await client.responses.retrieve(id)
    return bool(found.model_extra["sessionary"]["state"] == "waiting")


async def test_a_waiting_response_can_be_cancelled(store: Store, model: ModelServer) -> None:
    async with openai_world(store, model, runners={"plain": ScriptedRunner(asking)}) as world:
        client = await world.client()
        made = await client.responses.create(model="plain", input="book")

        assert (await client.responses.cancel(made.id)).status == "cancelled"


@pytest.mark.parametrize("way", ["erase", "purge"])
async def test_a_response_goes_with_its_words_and_its_files(
    server: OpenAIWorld, model: ModelServer, way: str
) -> None:
    client = await server.client()
    model.will(Reply("hi Ann"))
    file = await kept(client, data=b"a letter of Ann")
    content: Any = [{"type": "input_file", "file_id": file.id}]
    made: Any = await client.responses.create(
        model="assistant",
        input=[{"role": "user", "content": content}],
        user="ann",
        instructions="Her number is 1234.",
    )
    moment = server.world.context().moment()

    if way == "erase":
        subject = ErasureSubject("api", "ann")
        await asyncio.to_thread(erase.erase, server.store, subject, profile="main", moment=moment)
        await refused(client.files.retrieve(file.id), openai.NotFoundError)
    else:
        session_id = made.conversation.id.removeprefix("conv_")
        await server.store.write(edit.trash, session_id, profile="main", moment=moment)
        await refused(client.responses.retrieve(made.id), openai.NotFoundError)
        await server.store.write(purge.purge, session_id, profile="main", moment=moment)
        assert (await client.files.retrieve(file.id)).id == file.id

    for call in (
        client.responses.retrieve(made.id),
        client.responses.input_items.list(made.id),
        client.conversations.retrieve(made.conversation.id),
    ):
        await refused(call, openai.NotFoundError)
    await refused(
        client.responses.create(model="assistant", input="x", previous_response_id=made.id),
        openai.BadRequestError,
    )
