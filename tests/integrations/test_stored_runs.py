"""Runs of the OpenAI Agents SDK that are stored with their session, and resumed in another process."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunContextWrapper,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from sessionary import BadInput, Conflict, Sessionary, TurnLost
from sessionary.actions import turns
from sessionary.integrations.openai_agents import About, SessionarySession, park_run, resume_run
from sessionary.store.database import Tx
from tests.integrations.sdk_programs import MODEL, ROOT, Urls, broken, environ
from tests.support.model_server import ModelServer

FARO = "How is the weather in Faro?"
ANSWER = "The report says Faro: 21 degrees"


@dataclass
class Guide:
    """An agent whose tool must be approved, as a program makes a new one each time."""

    model: OpenAIChatCompletionsModel
    cities: list[str] = field(default_factory=list)

    def agent(self) -> Agent[Any]:
        @function_tool(needs_approval=True)
        def weather(city: str) -> str:
            """The weather in a city."""
            self.cities.append(city)
            return f"{city}: 21 degrees"

        return Agent(name="guide", model=self.model, tools=[weather])

    async def ask(self, session: SessionarySession) -> None:
        await session.save_run(await Runner.run(self.agent(), FARO, session=session))


@pytest.fixture
async def guide(model: ModelServer) -> AsyncIterator[Guide]:
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=model.openai_url, api_key="none") as openai_client:
        yield Guide(OpenAIChatCompletionsModel(MODEL, openai_client))


async def test_a_run_that_is_killed_goes_on_in_another_process(
    urls: Urls, model: ModelServer, tmp_path: Path
) -> None:
    async def program(number: int, point: str) -> tuple[int | None, str]:
        task = {
            "url": urls[number],
            "model": model.url,
            "ran": str(tmp_path / f"ran-{number}"),
            "die": point,
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integrations.programs.openai_runs",
            json.dumps(task),
            cwd=ROOT,
            env=environ(),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await child.communicate()
        return child.returncode, out.decode().strip()

    async def once(number: int) -> None:
        for point in ("while it waits", "before it is deleted"):
            assert await program(number, point) == (-signal.SIGKILL, "")

        assert await program(number, "") == (0, ANSWER)

        # A run that ended and was not deleted is resumed again.
        assert (tmp_path / f"ran-{number}").read_text() == "Faro\n" * 2
        with Sessionary(urls[number]) as client:
            (head,) = client.sessions().items
            assert await SessionarySession("alice", client).load_run(Agent(name="guide")) is None
            texts = [each.text for each in client.find(head.id).messages() if each.text]
            assert texts[0] == FARO
            assert texts[-1] == ANSWER
            assert broken(client) == []

    await asyncio.gather(*(once(number) for number in range(len(urls))))


async def test_a_run_is_stored_once_and_its_items_and_costs_are_in_the_session_once(
    client: Sessionary, guide: Guide
) -> None:
    session = SessionarySession("alice", client)
    assert await session.load_run(guide.agent()) is None
    assert not await session.delete_run()
    await guide.ask(session)
    assert guide.cities == []

    again = SessionarySession("alice", client)
    agent = guide.agent()
    state = await again.load_run(agent)
    assert state is not None
    (item,) = state.get_interruptions()
    state.approve(item)
    await again.save_run(state)  # the decision is stored too
    state = await again.load_run(agent)
    assert state is not None
    result = await Runner.run(agent, state, session=again)

    assert result.final_output == ANSWER
    assert guide.cities == ["Faro"]
    assert await again.delete_run()
    assert not await again.delete_run()
    kinds = [each.get("type", each.get("role")) for each in await again.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    (head,) = client.sessions().items
    assert head.usage.calls == 2
    assert broken(client) == []


async def test_a_run_with_a_context_of_its_own_comes_back(client: Sessionary, guide: Guide) -> None:
    @dataclass
    class Tenant:
        name: str

    session = SessionarySession("alice", client)
    result = await Runner.run(guide.agent(), FARO, context=Tenant("acme\x00"), session=session)
    await session.save_run(result, context_serializer=lambda given: {"name": given.name})

    state = await session.load_run(guide.agent(), context_deserializer=lambda told: Tenant(**told))

    assert state is not None
    assert state._context is not None
    assert state._context.context == Tenant("acme\x00")


async def test_a_run_is_found_only_with_the_context_of_its_tenant(
    client: Sessionary, guide: Guide
) -> None:
    def session() -> SessionarySession:
        return SessionarySession("alice", client, about=lambda given: About(profile=given["of"]))

    ours, theirs = (RunContextWrapper({"of": name}) for name in ("ours", "theirs"))
    agent = guide.agent()
    result = await Runner.run(agent, FARO, context={"of": "ours"}, session=session())
    await session().save_run(result)

    assert await session().load_run(agent, wrapper=theirs) is None
    assert not await session().delete_run(wrapper=theirs)
    for asking in (session().load_run(agent), session().delete_run()):
        with pytest.raises(BadInput, match=r"wrapper=RunContextWrapper\(context\)"):
            await asking
    state = await session().load_run(agent, wrapper=ours)
    assert state is not None
    await session().save_run(state)
    assert client.sessions().items == ()
    with Sessionary(client.store.url, profile="ours") as tenant:
        assert len(tenant.sessions().items) == 1
    assert await session().delete_run(wrapper=ours)


async def test_a_run_of_an_older_sdk_is_read_and_one_of_a_newer_sdk_is_left_alone(
    client: Sessionary, guide: Guide
) -> None:
    session = SessionarySession("alice", client)
    await guide.ask(session)

    def say_version(tx: Tx, schema: str) -> None:
        told = tx.one("get_stored_run", session_no=1, sdk="openai-agents")
        assert told is not None
        stored = json.loads(told[0])
        stored["run"]["$schemaVersion"] = schema
        stored["version"] = "9.9.9"
        tx.run("put_stored_run", session_no=1, sdk="openai-agents", at=0, run=json.dumps(stored))

    client.store.write(say_version, "1.20").result()
    state = await session.load_run(guide.agent())
    assert state is not None
    assert len(state.get_interruptions()) == 1
    client.store.write(say_version, "9.0").result()
    for _ in range(2):
        with pytest.raises(
            BadInput, match=r"openai-agents 9\.9\.9 in a form \(9\.0\).*left as it is"
        ):
            await session.load_run(guide.agent())


async def test_a_parked_run_of_a_newer_sdk_is_left_alone(client: Sessionary, guide: Guide) -> None:
    with client.session("alice").turn(FARO) as turn:
        await park_run(turn, await Runner.run(guide.agent(), FARO))
    (question,) = client.questions.list()
    client.questions.answer(question.id, approve=True)

    with client.session("alice").resume_turn() as turn:
        newer = Newer(
            turn.questions, str(turn.state).replace('"$schemaVersion": "1', '"$schemaVersion": "9')
        )
        with pytest.raises(BadInput, match="cannot read; it was left as it is"):
            await resume_run(newer, guide.agent())


@dataclass
class Newer:
    """A turn whose run another version of the SDK has stored."""

    questions: Any
    state: str

    def wait_for(self, questions: Any, *, state: str | None = None) -> Any:
        raise AssertionError


async def test_an_exclusive_session_gives_its_run_to_one_at_a_time(
    client: Sessionary, guide: Guide
) -> None:
    async with SessionarySession("alice", client, exclusive=True) as session:
        await guide.ask(session)
        with pytest.raises(Conflict):
            await SessionarySession("alice", client, exclusive=True).__aenter__()
    with pytest.raises(BadInput, match="in a block"):
        await session.load_run(guide.agent())

    lost = SessionarySession("alice", client, exclusive=True)
    await lost.__aenter__()
    assert await lost.load_run(guide.agent()) is not None
    assert lost._turn is not None
    ending = turns.Ending()
    client.store.write(
        turns.end, lost._turn.lease, ending, profile="main", moment=client.moment()
    ).result()
    with pytest.raises(TurnLost):
        await lost.delete_run()
    with pytest.raises(TurnLost):
        await lost.save_run(await Runner.run(guide.agent(), FARO))
    with pytest.raises(TurnLost):
        await lost.__aexit__(None, None, None)

    async with SessionarySession("alice", client, exclusive=True) as session:
        assert await session.load_run(guide.agent()) is not None


@pytest.mark.parametrize("how", ["trash", "purge", "end"])
async def test_a_run_goes_with_its_session(client: Sessionary, guide: Guide, how: str) -> None:
    session = SessionarySession("alice", client)
    await guide.ask(session)
    (head,) = client.sessions().items

    getattr(client.find(head.id), how)()

    assert await session.load_run(guide.agent()) is None
    if how == "trash":
        client.find(head.id).restore()
        assert await session.load_run(guide.agent()) is not None
    if how == "purge":
        first = client.store.read(
            lambda tx: tx.all("copy_page_stored_runs", after_session_no=0, after_sdk="", limit=9)
        ).result()
        assert first == []
