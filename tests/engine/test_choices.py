"""A session's own agent, model, persona and tools: chosen by commands, used by turns, recorded in the log."""

from dataclasses import replace
from typing import Any

import pytest

from sessionary.actions import budgets, turns, verify
from sessionary.actions.sessions import choice, edit, revise
from sessionary.agents.registry import ConfiguredAgent
from sessionary.config.engine import AccessPolicy, Budget, ChoiceName
from sessionary.engine.context import EngineContext
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.errors import BadInput, Conflict
from sessionary.model.access import BudgetUse
from sessionary.model.choice import (
    AgentOffer,
    ChoiceCatalog,
    ChoiceChange,
    Persona,
    add_pending,
    record_of,
)
from sessionary.model.message import Message, Role, message
from sessionary.model.session import SessionHead
from sessionary.model.source import Person, Source
from sessionary.store.database import Store
from sessionary.store.tables import sessions
from sessionary.testing.fakes import ScriptedRunner, scripted_agent
from tests.support.engine_world import QUICK, EngineWorld

ADA = Person("u", name="Ada")
CATALOG = ChoiceCatalog(
    agents={
        "writer": AgentOffer("writer", "model", "p:small", ("p:small", "p:large")),
        "coder": AgentOffer("coder", "model", "p:code", ("p:code",)),
        "plain": AgentOffer("plain", "echo"),
    },
    personas={"pirate": Persona("pirate", "Speak like a pirate.", "Pirate")},
    default="writer",
    known_tools=lambda name: ("files_read", "files_write") if name == "writer" else None,
)
EVERYTHING = replace(
    QUICK, access={"loopback": AccessPolicy(everyone=True, may_choose=frozenset(ChoiceName))}
)


def reply(request: TurnRequest) -> list[Event]:
    """One message, without usage."""
    return [Step(message("assistant", f"re: {request.context[-1]['content']}"))]


class Agents:
    """An agent for each name; each remembers what it was asked."""

    def __init__(self) -> None:
        self.runners = {name: ScriptedRunner(reply) for name in CATALOG.agents}

    def choose(self, _: Source, name: str | None) -> ConfiguredAgent:
        """The named agent, or the default."""
        name = name or "writer"
        return replace(scripted_agent(self.runners[name]), name=name)


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
def world(store: Store, agents: Agents) -> EngineWorld:
    return EngineWorld(store, settings=EVERYTHING, agent_for=agents.choose, catalog=CATALOG)


async def choose(world: EngineWorld, context: EngineContext, **changes: Any) -> SessionHead:
    return await world.store.write(
        choice.choose,
        await world.head(),
        changes,
        by=ADA,
        moment=context.moment(),
        catalog=context.catalog,
    )


async def records(world: EngineWorld) -> list[Message]:
    found = await world.messages((await world.head()).id)
    return [each for each in found if "record" in each.extra]


def last(agents: Agents, name: str = "writer") -> TurnRequest:
    return agents.runners[name].requests[-1]


async def test_a_choice_is_recorded_and_used_by_the_next_turn(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")

    head = await choose(world, engine.context, model="large", persona="pirate")
    await world.asks(engine, "and now")
    await engine.stop()

    assert head.settings == {"model": "p:large", "persona": "pirate"}
    assert head.model == "p:large"
    (record,) = await records(world)
    assert record.role is Role.SYSTEM
    assert record.text == "Ada chose the model p:large and the persona pirate."
    assert record.extra["record"] == {
        "kind": "settings",
        "changed": {"model": "p:large", "persona": "pirate"},
        "before": {"model": None, "persona": None},
        "by": "Ada",
    }
    assert last(agents).settings["model"] == "p:large"
    assert last(agents).system_prompt.startswith("Speak like a pirate.")
    assert [chat["role"] for chat in last(agents).context] == ["user", "assistant", "user"]
    assert verify.verify(world.store).broken == ()


async def test_the_chosen_agent_runs_the_turn_and_is_recorded_with_it(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await world.asks(engine, "/agent coder")
    await world.asks(engine, "write a loop")
    await world.asks(engine, "/agent default")
    await world.asks(engine, "thanks")
    await engine.stop()

    assert [turn.agent for turn in await world.turns()] == ["writer", "coder", "writer"]
    assert len(agents.runners["coder"].requests) == 1
    assert [each.text for each in await records(world)] == [
        "Ada chose the agent coder.",
        "Ada chose the default agent.",
    ]


async def test_nothing_is_written_if_nothing_changes(world: EngineWorld) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    first = await choose(world, engine.context, model="p:large")
    second = await choose(world, engine.context, model="large", persona=None)
    await engine.stop()

    assert (first.last_seq, second.last_seq) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agent": "nobody"}, ["'nobody'", "coder, plain, writer"]),
        ({"model": "p:code"}, ["writer", "p:code", "p:small, p:large"]),
        ({"agent": "plain", "model": "x"}, ["plain", "offers no models"]),
        ({"persona": "clown"}, ["'clown'", "pirate"]),
        ({"tools": ["files_*", "web_*"]}, ["'web_*'", "files_read, files_write"]),
        ({"tools": "files_read"}, ["list"]),
        ({"temperature": 1}, ["'temperature'", "agent, model, persona, tools"]),
        ({"model": ""}, ["model", "1 to 200"]),
    ],
)
async def test_what_there_is_not_is_refused_with_what_there_is(
    world: EngineWorld, changes: dict[str, Any], words: list[str]
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")

    with pytest.raises(BadInput) as refused:
        await choose(world, engine.context, **changes)
    await engine.stop()

    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert (await world.head()).settings == {}


async def test_another_agent_does_not_keep_a_model_that_it_does_not_offer(
    world: EngineWorld,
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await choose(world, engine.context, model="p:large")
    head = await choose(world, engine.context, agent="coder")
    await engine.stop()

    assert head.settings == {"agent": "coder"}
    assert head.model is None
    assert (await records(world))[-1].text == (
        "Ada chose the agent coder and the agent's own model."
    )


async def test_a_choice_during_a_turn_takes_effect_and_is_recorded_with_the_next(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    claim = turns.Claim("other", 60, "writer", catalog=CATALOG, platform="loopback")
    begun = await world.store.write(
        turns.begin_in_session,
        (await world.head()).id,
        None,
        profile="main",
        claim=claim,
        moment=engine.context.moment(),
    )
    during = await choose(world, engine.context, model="p:large", persona="pirate")
    again = await choose(world, engine.context, persona=None)
    seen = [each.text for each in await records(world)]
    await world.store.write(
        turns.end, begun.lease, turns.Ending(), profile="main", moment=engine.context.moment()
    )
    await world.asks(engine, "and now")
    await engine.stop()

    assert during.last_seq == again.last_seq == 2
    assert during.model == "p:large"
    assert seen == []
    assert [each.text for each in await records(world)] == [
        "Ada chose the model p:large and the persona pirate.",
        "Ada removed the persona.",
    ]
    assert (await world.texts())[-2:] == ["and now", "re: and now"]
    assert (await world.head()).settings == {"model": "p:large"}
    assert last(agents).settings == {"model": "p:large"}


async def test_what_is_configured_no_more_is_dropped_and_said_once(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await choose(world, engine.context, agent="coder", persona="pirate", tools=["files_*"])
    await engine.stop()
    fewer = {name: CATALOG.agents[name] for name in ("writer", "plain")}
    world.use(catalog=ChoiceCatalog(agents=fewer, default="writer"))
    engine = await world.started()
    for text in ("one", "two"):
        await world.asks(engine, text)
    await engine.stop()

    assert [each.text for each in (await records(world))[1:]] == [
        "There is no agent coder any more: writer answers instead.",
        "There is no persona pirate any more: the session goes on without one.",
    ]
    assert (await world.head()).settings == {"tools": ["files_*"]}
    assert [turn.agent for turn in await world.turns()] == ["writer"] * 3


async def test_a_model_that_is_offered_no_more_gives_way_to_the_agent_s_own(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await choose(world, engine.context, model="p:large")
    await engine.stop()
    world.use(
        catalog=ChoiceCatalog(
            agents={"writer": AgentOffer("writer", "model", "p:small", ("p:small",))},
            default="writer",
        )
    )
    engine = await world.started()
    await world.asks(engine, "and now")
    await engine.stop()

    assert last(agents).settings == {}
    assert "does not offer the model p:large" in (await records(world))[-1].text


async def test_a_fork_inherits_what_was_chosen_when_its_last_entry_was_written(
    world: EngineWorld,
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")  # 1, 2
    await choose(world, engine.context, model="p:large", tools=["files_*"])  # 3
    await world.asks(engine, "and now")  # 4, 5
    await choose(world, engine.context, model=None, persona="pirate")  # 6
    head = await world.head()
    found = [
        await world.store.write(
            edit.fork, head.id, profile="main", moment=engine.context.moment(), at_seq=seq
        )
        for seq in (2, 5, None)
    ]
    await engine.stop()

    assert [each.settings for each in found] == [
        {},
        {"model": "p:large", "tools": ["files_*"]},
        {"persona": "pirate", "tools": ["files_*"]},
    ]
    assert [each.model for each in found] == [None, "p:large", None]


async def test_undo_takes_back_messages_and_not_choices(world: EngineWorld) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await world.asks(engine, "more")
    await choose(world, engine.context, model="p:large")
    head = await world.head()
    await world.store.write(revise.undo, head.id, profile="main", rounds=1, at=world.clock.now())
    await engine.stop()

    assert (await world.head()).settings == {"model": "p:large"}


@pytest.mark.parametrize("state", ["ended", "read_only"])
async def test_a_session_that_cannot_go_on_cannot_choose(world: EngineWorld, state: str) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    head = await world.head()
    if state == "ended":
        await world.store.write(edit.end, head.id, profile="main", moment=engine.context.moment())
    else:
        await world.store.write(edit.seal, head.id, profile="main")

    with pytest.raises(Conflict):
        await choose(world, engine.context, model="p:large")
    await engine.stop()


async def test_commands_say_what_is_chosen_and_what_there_is(world: EngineWorld) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    asked = ["/agent", "/model", "/persona", "/tools"]
    before = [text for each in asked for text in await world.asks(engine, each)]
    changes = ["/model large", "/persona pirate", "/tools files_read, files_w*", "/tools none"]
    said = [text for each in changes for text in await world.asks(engine, each)]
    after = [text for each in asked for text in await world.asks(engine, each)]
    back = [
        text
        for each in ("/model default", "/persona none", "/tools all", "/model nothing")
        for text in await world.asks(engine, each)
    ]
    await engine.stop()

    assert before == [
        "The agent here is writer. There are: coder, plain, writer.",
        "The model here is p:small. There are: p:small, p:large.",
        "There is no persona here. There are: pirate (Pirate).",
        "The agent may use all tools here. There are: files_read, files_write.",
    ]
    assert said == [
        "This session uses the model p:large.",
        "This session uses the persona pirate.",
        "This session uses the tools files_read, files_w*.",
        "This session uses no tools.",
    ]
    assert after[1:] == [
        "The model here is p:large. There are: p:small, p:large.",
        "The persona here is pirate. There are: pirate (Pirate).",
        "The agent may use no tools here. There are: files_read, files_write.",
    ]
    assert back[:3] == [
        "This session uses the agent's own model.",
        "This session uses no persona.",
        "This session uses all tools.",
    ]
    assert "does not offer the model 'nothing'" in back[3]


async def test_what_is_chosen_before_the_first_message_begins_the_next_session(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    (said,) = await world.asks(engine, "/model large")
    await world.asks(engine, "/agent coder")
    await world.asks(engine, "/agent writer")
    await world.asks(engine, "/model large")
    await world.asks(engine, "hello")
    first = await world.messages((await world.head()).id)
    await world.asks(engine, "/new plans")
    await world.asks(engine, "/persona pirate")
    await world.asks(engine, "ahoy")
    await engine.stop()

    assert said == "Your next session uses the model p:large."
    assert [each.text for each in first] == [
        "Ada chose the agent writer and the model p:large.",
        "hello",
        "re: hello",
    ]
    head = await world.head()
    assert (head.title, head.settings) == ("plans", {"persona": "pirate"})
    assert head.preview == "ahoy"
    assert await world.texts() == ["Ada chose the persona pirate.", "ahoy", "re: ahoy"]
    assert verify.verify(world.store).broken == ()


@pytest.mark.parametrize(
    ("policy", "chat_type", "words"),
    [
        (AccessPolicy(everyone=True), "dm", ["Only the owner", "may_choose", "[access.loopback]"]),
        (
            AccessPolicy(everyone=True, may_choose=frozenset({ChoiceName.PERSONA})),
            "dm",
            ["Only the owner may choose the model"],
        ),
        (
            AccessPolicy(everyone=True, may_choose=frozenset(ChoiceName)),
            "group",
            ["In a group only people in allow of [access.loopback]"],
        ),
        (
            AccessPolicy(allow=frozenset({"u"}), may_choose=frozenset(ChoiceName)),
            "group",
            ["This session uses the model p:large."],
        ),
        (
            AccessPolicy(everyone=True, may_choose=frozenset(ChoiceName)),
            "dm",
            ["This session uses the model p:large."],
        ),
    ],
)
async def test_who_may_choose_what_is_configured_for_each_platform(
    world: EngineWorld, policy: AccessPolicy, chat_type: str, words: list[str]
) -> None:
    world.settings = replace(QUICK, access={"loopback": policy})
    engine = await world.started()
    await world.asks(engine, "hello", chat_type=chat_type)
    (said,) = await world.asks(engine, "/model large", chat_type=chat_type)
    (shown,) = await world.asks(engine, "/model", chat_type=chat_type)
    await engine.stop()

    assert all(word in said for word in words), said
    assert shown.startswith("The model here is p:")


async def test_an_agent_that_this_process_was_given_answers_whatever_was_chosen(
    world: EngineWorld, agents: Agents
) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await choose(world, engine.context, model="p:large")
    await engine.stop()
    world.use(catalog=ChoiceCatalog(agents=CATALOG.agents, default="writer", only="coder"))
    world.use(agent_for=lambda source, _: agents.choose(source, "coder"))
    engine = await world.started()
    await world.asks(engine, "and now")
    await engine.stop()

    assert last(agents, "coder").settings == {}
    assert (await world.head()).settings == {"model": "p:large"}


@pytest.mark.parametrize(
    ("changed", "nobody", "ada"),
    [
        ({"persona": None}, "The persona was removed.", "Ada removed the persona."),
        ({"tools": []}, "All tools were turned off.", "Ada turned off all tools."),
        ({"tools": None}, "All tools were turned on.", "Ada turned on all tools."),
        ({"agent": None}, "The default agent was chosen.", "Ada chose the default agent."),
        (
            {"agent": "mytools", "model": None},
            "The agent mytools and the agent's own model were chosen.",
            "Ada chose the agent mytools and the agent's own model.",
        ),
        (
            {"model": "p:large", "persona": None},
            "The model p:large was chosen, and the persona was removed.",
            "Ada chose the model p:large, and removed the persona.",
        ),
        ({"agent": "mytools"}, "The agent mytools was chosen.", "Ada chose the agent mytools."),
    ],
)
def test_a_record_says_what_was_removed(changed: dict[str, Any], nobody: str, ada: str) -> None:
    """“No persona was chosen” would say that nobody chose one."""
    assert record_of(ChoiceChange(changed), {}).text == nobody
    assert record_of(ChoiceChange(changed, ADA), {}).text == ada


@pytest.mark.parametrize("is_pending", [False, True])
async def test_before_a_turn_the_budget_of_the_chosen_model_is_checked(
    world: EngineWorld, agents: Agents, is_pending: bool
) -> None:
    """Not that of the agent's own. A choice names the provider, a budget does not."""
    world.use(agent_for=lambda source, name: replace(agents.choose(source, name), model="small"))
    world.settings = replace(EVERYTHING, budgets={"model:small": Budget(tokens=10)})
    engine = await world.started()
    await world.asks(engine, "hello")
    await use_up(world, "model:small")
    if is_pending:
        head, change = await world.head(), ChoiceChange({"model": "p:large"}, ADA)
        pending = add_pending(head.settings, change)
        await world.store.write(sessions.set_settings, head.no, pending, model=head.model)
    else:
        await world.asks(engine, "/model large")

    with_chosen = await world.asks(engine, "and now")
    await world.asks(engine, "/model default")
    with_own = await world.asks(engine, "and then")
    await engine.stop()

    assert with_chosen == ["re: and now"]
    assert with_own[0].startswith("The budget of the model small for the day is used up")


async def test_a_used_up_budget_of_the_chosen_model_refuses_a_message(
    world: EngineWorld, agents: Agents
) -> None:
    world.use(agent_for=lambda source, name: replace(agents.choose(source, name), model="small"))
    world.settings = replace(EVERYTHING, budgets={"model:large": Budget(tokens=10)})
    engine = await world.started()
    await world.asks(engine, "hello")
    await use_up(world, "model:large")
    await world.asks(engine, "/model large")

    with_chosen = await world.asks(engine, "and now")
    await world.asks(engine, "/agent coder")
    with_other_agent = await world.asks(engine, "and then")
    await engine.stop()

    assert with_chosen[0].startswith("The budget of the model large for the day is used up")
    assert with_other_agent == ["re: and then"]


async def use_up(world: EngineWorld, scope: str) -> None:
    """Count 10 tokens under a scope."""
    await world.store.write(
        budgets.count,
        {scope: BudgetUse(tokens=10)},
        world.settings.budgets,
        profile="main",
        now=world.clock.now(),
    )
