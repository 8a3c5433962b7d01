"""Commands that a person sends in a chat."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial

import pytest

from sessionary.actions import access
from sessionary.config.engine import AccessPolicy, Budget
from sessionary.engine import commands
from sessionary.engine import engine as engine_module
from sessionary.engine.commands import REGISTRY
from sessionary.engine.ports import Step
from sessionary.model.message import message
from sessionary.model.session import Lineage
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Store
from sessionary.testing.fakes import ScriptedRunner, scripted_agent
from tests.support.crash import CrashPoint
from tests.support.engine_world import TIMEOUT_SECONDS, EngineWorld
from tests.support.misbehaving_runner import MisbehavingRunner


def _crash_now(crash: CrashPoint) -> None:
    crash.crashed = True
    crash.step()


# About 700 tokens: long enough to be compacted.
LONG = "and more " * 300
NAMES = (
    "new resume sessions title undo retry branch compact agent model persona tools usage status stop steer "
    "queue pin unpin sethome help whoami"
)


def test_the_registry_has_every_command_of_the_rule() -> None:
    assert set(REGISTRY) == set(NAMES.split())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/new", ("new", "")),
        ("  /NEW  My plan ", ("new", "My plan")),
        ("/new@sessionary_bot plan", ("new", "plan")),
        ("/resume\nsecond line", ("resume", "second line")),
    ],
)
def test_a_command_is_found_however_it_is_written(text: str, found: tuple[str, str]) -> None:
    call = commands.find(text)
    assert call is not None
    assert (call.name, call.words) == found


@pytest.mark.parametrize("text", ["/etc/passwd", "/unknown", "/", "say /new", "/newer thing", ""])
def test_what_is_no_command_is_for_the_agent(text: str) -> None:
    """An unknown /word goes to the agent."""
    assert commands.find(text) is None


async def test_an_unknown_command_goes_to_the_agent(world: EngineWorld) -> None:
    engine = await world.started()
    assert await world.asks(engine, "/etc/passwd") == ["re: /etc/passwd"]
    await engine.stop()


async def test_a_command_is_no_message_of_the_conversation(world: EngineWorld) -> None:
    """The agent does not see it, and it costs nothing."""
    engine = await world.started()
    await world.asks(engine, "hello")
    before = await world.texts()

    await world.asks(engine, "/help")
    await engine.stop()

    assert await world.texts() == before
    assert len(world.runner.requests) == 1


async def test_a_command_that_comes_twice_is_carried_out_once(world: EngineWorld) -> None:
    """P2, S25: the same platform message id."""
    engine = await world.started()
    for text in ("one", "two", "three"):
        await world.asks(engine, text)

    await world.says(engine, "/undo", number="u1")
    await world.says(engine, "/undo", number="u1")
    await world.settle(engine)
    await engine.stop()

    assert [text for text in await world.texts() if text] == ["one", "re: one", "two", "re: two"]
    taken = [text for text in world.adapter.texts("loopback:1") if text.startswith("Taken")]
    assert len(taken) == 1


async def test_a_refusal_is_an_answer_and_changes_nothing(world: EngineWorld) -> None:
    engine = await world.started()
    assert await world.asks(engine, "/title x") == [
        "There is no session here yet; write something first."
    ]
    await world.asks(engine, "hello")
    refused = [
        await world.asks(engine, text)
        for text in ("/undo 9", "/undo many", "/resume nothing", f"/title {'x' * 101}", "/resume 7")
    ]
    await engine.stop()

    assert all(len(sent) == 1 for sent in refused)
    assert "fewer than 9" in refused[0][0]
    assert "no number" in refused[1][0]
    assert "No session is called 'nothing'" in refused[2][0]
    assert (await world.texts())[-1] == "re: hello"


async def test_new_ends_the_session_and_names_the_next(world: EngineWorld) -> None:
    """The next message opens it, not the command: no ghosts."""
    engine = await world.started()
    await world.asks(engine, "hello")
    old = await world.head()

    sent = await world.asks(engine, "/new Trip to Rome")
    assert len(await world.sessions()) == 1
    await world.asks(engine, "again")
    await engine.stop()

    assert sent[0].endswith("Your next message begins a new session called Trip to Rome.")
    new = await world.head()
    assert (new.title, new.parent_id, new.lineage) == ("Trip to Rome", old.id, Lineage.RESET)
    assert await world.texts() == ["again", "", "", "re: again"]


async def test_resume_goes_back_with_the_whole_transcript(world: EngineWorld) -> None:
    """By name, by number, by the beginning of an id; its transcript is the context."""
    engine = await world.started()
    await world.asks(engine, "hello")
    await world.asks(engine, "/title First")
    first = await world.head()
    await world.asks(engine, "/new")
    await world.asks(engine, "other")
    second = await world.head()

    assert await world.asks(engine, "/resume First") == ["Now in “First”, 4 messages."]
    ended = await world.store.read(lambda tx: tx.one("get_head_by_no", no=second.no))
    assert ended is not None
    assert "switch" in ended
    await world.asks(engine, "on we go")
    context = world.runner.requests[-1].context
    assert [each["content"] for each in context if each["role"] == "user"] == ["hello", "on we go"]

    listed = await world.asks(engine, "/resume")
    assert "“First”" in listed[0]
    place = next(line for line in listed[0].splitlines() if "other" in line).partition(".")[0]
    await world.asks(engine, f"/resume {place}")
    assert (await world.head()).id == second.id
    await world.asks(engine, f"/resume {first.id}")
    assert (await world.head()).id == first.id
    await engine.stop()


async def test_what_another_may_not_see_looks_as_if_it_were_not_there(store: Store) -> None:
    """P17: another person in another chat, and another profile."""
    world = EngineWorld(store)
    engine = await world.started()
    await world.asks(engine, "hello", chat="mine")
    await world.asks(engine, "/title Diary", chat="mine")
    mine = await world.head("mine")
    elsewhere = EngineWorld(store, profile="other")
    elsewhere.ids = world.ids
    foreign = await elsewhere.started()
    await elsewhere.says(foreign, "hello", chat="mine")
    await elsewhere.settle(foreign)

    stranger = {"user_id": "v", "user_name": "Bob"}
    for text in ("Diary", mine.id, mine.id[:25], mine.id[:3]):
        (missing,) = await world.asks(engine, f"/resume {text}x", chat="his", **stranger)
        (hidden,) = await world.asks(engine, f"/resume {text}", chat="his", **stranger)
        assert hidden == missing.replace(f"{text}x", text)
        if text not in ("Diary", mine.id):
            continue  # the beginning of an id may be that of one of theirs
        await elsewhere.says(foreign, f"/resume {text}", chat="mine", number=f"o{text}")
        await elsewhere.settle(foreign)
        assert elsewhere.adapter.sent[-1][1] == missing.replace(f"{text}x", text)
    assert await world.asks(engine, "/sessions", chat="his", **stranger) == [
        "There are no earlier sessions here."
    ]
    # The same title is his all the same, and names no holder.
    (named,) = await world.asks(engine, "/new Diary", chat="his", **stranger)
    assert mine.id not in named
    await engine.stop()
    await foreign.stop()


async def test_the_same_person_resumes_in_another_chat(world: EngineWorld) -> None:
    """The same person on the same platform."""
    engine = await world.started()
    await world.asks(engine, "hello", chat="a")
    await world.asks(engine, "/title Diary", chat="a")

    assert (await world.asks(engine, "/resume Diary", chat="b"))[0].startswith("Now in “Diary”")
    await engine.stop()
    assert (await world.head("b")).id == (await world.head("a")).id


async def test_an_interrupted_turn_is_reported_in_the_chat_that_asked(world: EngineWorld) -> None:
    """Also when the session was opened in another chat."""
    engine = await world.started()
    await world.asks(engine, "hello", chat="a")
    await world.asks(engine, "/title Diary", chat="a")
    await world.asks(engine, "/resume Diary", chat="b")
    await engine.stop()
    crash = CrashPoint()
    world.runner.between = partial(_crash_now, crash)
    dying = await world.started(crash)
    await world.says(dying, "lost", chat="b", number="9")
    await world.until(lambda: crash.crashed)
    await dying.stop()
    world.runner.between = lambda: None

    world.clock.tick(300)
    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    assert world.adapter.texts("loopback:b")[-1].startswith("Interrupted")
    assert not any(text.startswith("Interrupted") for text in world.adapter.texts("loopback:a"))


async def test_undo_takes_back_and_keeps(world: EngineWorld) -> None:
    """N messages and what followed them; the log keeps them."""
    engine = await world.started()
    for text in ("one", "two", "three"):
        await world.asks(engine, text)

    (reply,) = await world.asks(engine, "/undo 2")
    await engine.stop()

    assert reply == "Taken back; 4 messages left. Nothing was deleted."
    assert await world.texts() == ["one", "", "", "re: one"]
    assert (await world.head()).last_seq == 13


async def test_retry_puts_the_question_again(world: EngineWorld) -> None:
    """The first answer is taken back, the question is there once."""
    engine = await world.started()
    await world.asks(engine, "hello")

    sent = await world.asks(engine, "/retry")
    await engine.stop()

    assert sent == ["Trying again.", "re: hello"]
    assert await world.texts() == ["hello", "", "", "re: hello"]
    assert len(world.runner.requests) == 2


async def test_retry_twice_at_once_asks_no_earlier_question_again(world: EngineWorld) -> None:
    """Whoever presses twice means the same question."""
    engine = await world.started()
    await world.asks(engine, "one")
    await world.asks(engine, "two")

    await asyncio.gather(
        world.says(engine, "/retry", number="retry-1"),
        world.says(engine, "/retry", number="retry-2"),
    )
    await world.settle(engine)
    await engine.stop()

    assert [text for text in await world.texts() if text] == ["one", "re: one", "two", "re: two"]


@pytest.mark.parametrize("scope", ["person", "channel", "session", "agent", "model", "profile"])
async def test_retry_takes_nothing_back_if_a_budget_is_used_up(
    world: EngineWorld, scope: str
) -> None:
    """What the scripted agent uses for its first answer: 11 tokens."""
    world.settings = replace(world.settings, budgets={scope: Budget(tokens=11)})
    engine = await world.started()
    await world.asks(engine, "hello")
    before = await world.head()

    (told,) = await world.asks(engine, "/retry")
    await engine.stop()

    assert told.startswith("The budget of ")
    assert "for the day is used up; nothing was changed. It begins again on " in told
    assert (await world.texts())[-1] == "re: hello"
    assert (await world.head()).last_seq == before.last_seq
    assert len(world.runner.requests) == 1


async def test_a_count_of_one_is_said_in_the_singular(world: EngineWorld) -> None:
    agent = ScriptedRunner(lambda _: [Step(message("assistant", "yes"), Usage(input_tokens=3))])
    engine = await world.started(runner=agent)
    await world.asks(engine, "hello")
    (used,) = await world.asks(engine, "/usage")
    (refused,) = await world.asks(engine, "/unpin 3")
    await world.asks(engine, "/pin")
    (missing,) = await world.asks(engine, "/unpin 3")
    await engine.stop()

    assert used.startswith("1 model call, ")
    assert refused == "Nothing is pinned here."
    assert missing == "There is no pinned message 3; /pin list shows what is pinned."


async def test_branch_goes_on_in_a_copy(world: EngineWorld) -> None:
    """The old session stays as it was."""
    engine = await world.started()
    await world.asks(engine, "hello")
    old = await world.head()

    await world.asks(engine, "/branch Another way")
    await world.asks(engine, "differently")
    await engine.stop()

    new = await world.head()
    assert (new.title, new.parent_id, new.lineage) == ("Another way", old.id, Lineage.FORK)
    texts = [text for text in await world.texts() if text]
    assert texts == ["hello", "re: hello", "differently", "re: differently"]
    assert await world.texts_of(old.id) == ["hello", "", "", "re: hello"]


class Endless:
    """A summarizer whose model does not answer."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def summarize(
        self, context: object, *, focus: str | None, limits: object = None
    ) -> tuple[str, None]:
        self.is_asked.set()
        await asyncio.Event().wait()
        return "", None


async def test_a_compaction_that_a_planned_stop_interrupts_is_reported(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F2, P7: a person who reads «you will be told» gets a message."""
    # It is cut short after a fifth of a second; to say so it has as long as a busy machine needs.
    monkeypatch.setattr(engine_module, "LAST_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(engine_module, "STOP_SECONDS", TIMEOUT_SECONDS + 0.2)
    endless = Endless()
    agent = replace(scripted_agent(world.runner), summarizer=endless)
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    await world.asks(engine, LONG)
    await world.says(engine, "/compact", number="c")
    await endless.is_asked.wait()
    await engine.stop()

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    notice = "The conversation was not compacted: the server stopped. Send /compact to try again."
    assert world.adapter.texts("loopback:1")[-2:] == ["Compacting; you will be told.", notice]


async def test_compact_lets_a_summary_stand_for_the_model_only(world: EngineWorld) -> None:
    """With the summarizer that needs no model."""
    engine = await world.started()
    await world.asks(engine, f"remember the number 4711 {LONG}")

    await world.says(engine, "/compact the number", number="c")
    await world.until(lambda: any("Compacted" in text for _, text in world.adapter.sent))
    await world.asks(engine, "what was it?")
    await engine.stop()

    sent = world.adapter.texts("loopback:1")
    assert sent[1] == "Compacting; you will be told."
    assert sent[2].startswith("Compacted: ")
    context = str(world.runner.requests[-1].context)
    assert "4711" in context
    assert len(context) < 4000
    assert (await world.texts())[0].startswith("remember the number 4711")


@dataclass
class Wordy:
    """A summarizer whose summaries are long."""

    asked: int = 0

    async def summarize(
        self, context: object, *, focus: str | None, limits: object = None
    ) -> tuple[str, None]:
        self.asked += 1
        return "and so on " * 2_000, None


async def test_a_short_chat_is_not_compacted_and_no_model_is_asked(world: EngineWorld) -> None:
    wordy = Wordy()
    agent = replace(scripted_agent(world.runner), summarizer=wordy)
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    await world.asks(engine, "hello, how are you today?")
    await world.asks(engine, "and tomorrow?")

    told = await world.asks(engine, "/compact")
    outcome = await engine.compactor.compact((await world.head()).id, focus=None)
    await engine.stop()

    refusal = "This conversation is short enough as it is; nothing was changed."
    assert told == [refusal]
    assert outcome == f"The conversation was not compacted. {refusal}"
    assert wordy.asked == 0


async def test_a_summary_that_is_not_shorter_is_called_so(world: EngineWorld) -> None:
    agent = replace(scripted_agent(world.runner), summarizer=Wordy())
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    await world.asks(engine, LONG)

    outcome = await engine.compactor.compact((await world.head()).id, focus=None)
    await engine.stop()

    assert outcome.startswith("Compacted, but it did not become shorter: about ")


async def test_compact_is_refused_at_once_while_a_turn_is_running(world: EngineWorld) -> None:
    """Only the turn may write to the log: the summary would be lost."""
    wordy = Wordy()
    runner = MisbehavingRunner([MisbehavingRunner.HANG])
    agent = replace(scripted_agent(runner), summarizer=wordy)
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    await world.says(engine, LONG)
    await world.until(lambda: runner.hanging == 1)

    received = await world.says(engine, "/compact", number="2")
    await world.says(engine, "/stop", number="3")
    await world.settle(engine)
    await engine.stop()

    assert received.answer is not None
    assert received.answer.startswith("A turn is running in this session; nothing was changed.")
    assert (received.compaction, wordy.asked) == (None, 0)


async def test_only_an_owner_makes_a_chat_the_home_channel(world: EngineWorld) -> None:
    """Questions to the owners are asked there, with everything that a tool would be called with."""
    engine = await world.started()
    (refused,) = await world.asks(engine, "/sethome")
    await engine.stop()

    assert refused.startswith("Only an owner can make this chat the home channel")
    assert await world.store.read(access.list_homes, profile="main") == []


async def test_usage_status_whoami_title_and_home_say_where_one_is(world: EngineWorld) -> None:
    owned = AccessPolicy(everyone=True, owners=frozenset({"u"}))
    world.settings = replace(world.settings, access={"loopback": owned})
    engine = await world.started()
    await world.asks(engine, "hello")

    assert await world.asks(engine, "/usage") == [
        "2 model calls, 8 tokens in, 3 out, cost unknown (unknown)."
    ]
    (status,) = await world.asks(engine, "/status")
    assert "4 messages.\nNo turn is running.\nIt does not reset by itself." in status
    assert await world.asks(engine, "/whoami") == [
        "You are Ada (u) on loopback. Conversation: main/loopback/dm/chat=1"
    ]
    assert await world.asks(engine, "/title Greetings") == ["This session is now called Greetings."]
    assert await world.asks(engine, "/title") == ["This is “Greetings”."]
    assert await world.asks(engine, "/sethome") == [
        "This chat is now the home channel of loopback."
    ]
    assert len((await world.asks(engine, "/help"))[0].splitlines()) == len(REGISTRY)
    await world.asks(engine, "where?")
    await engine.stop()
    assert '"deliver_to": [\n  "origin",\n  "local",\n  "loopback"' in (
        world.runner.requests[-1].system_prompt
    )


async def test_stop_reaches_a_turn_in_another_process(store: Store) -> None:
    """The text until then is kept and marked, the person is notified, the next turn runs."""
    world = EngineWorld(store)
    misbehaving = MisbehavingRunner(["some words", MisbehavingRunner.HANG])
    one = await world.started(runner=misbehaving)
    await world.says(one, "hello")
    await world.until(lambda: misbehaving.hanging == 1)
    two = await world.started()

    await world.says(two, "/stop", number="2")
    await world.settle(one)
    await world.settle(two)
    turn = (await world.turns())[0]
    await one.stop()
    sent = await world.asks(two, "next")
    await two.stop()

    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, "stopped by you")
    assert (await world.texts())[:2] == ["hello", "some words"]
    assert world.adapter.texts("loopback:1")[:2] == [
        "Stopping.",
        "Interrupted: stopped by you. Your message is kept. Send /retry to try again.",
    ]
    assert sent == ["re: next"]
