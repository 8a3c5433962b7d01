"""A chat in the terminal shows its own messages and answers only, whoever else uses the store."""

import asyncio
import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from sessionary import Sessionary
from sessionary.actions import inbox, turns
from sessionary.actions.budgets import periods
from sessionary.actions.sessions import routing
from sessionary.actions.turns import Claim, Ending
from sessionary.app.chat import TerminalChat
from sessionary.app.engine import build_engine
from sessionary.engine.context import LiveEvent
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.errors import Conflict
from sessionary.model.message import Message, Text, ToolCall, ToolResult, message
from sessionary.model.reset import ResetPolicy
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.model.turn import Arrival, ArrivalState, Lease
from sessionary.store.database import Tx
from sessionary.store.tables import access, arrivals, deliveries
from sessionary.store.tables import turns as turn_rows

# Agents on a busy machine; nothing waits for so long.
TIMEOUT_SECONDS = 60
ELSEWHERE = Source(platform="webhook", chat_id="7", user_id="7", platform_message_id="1")
CONFIGURED = """
[engine]
poll_seconds = 0.05
sweep_seconds = 0.05

[agents.silent]
kind = "python"
function = "tests.app.test_chat:without_deltas"
resume = true

[agents.busy]
kind = "python"
function = "tests.app.test_chat:all_at_once"

[agents.stepwise]
kind = "python"
function = "tests.app.test_chat:several_texts"

[budget."person:terminal:nobody"]
tokens = 1

[channels.webhook]
url = "http://127.0.0.1:9/never"
secret_env = "NO_SECRET"
"""


@pytest.fixture(params=["sqlite", "postgres"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sessionary]:
    (tmp_path / "sessionary.toml").write_text(CONFIGURED)
    url = None if request.param == "sqlite" else request.getfixturevalue("migrated_url")
    with Sessionary(url, home=str(tmp_path)) as opened:
        yield opened


def without_deltas(_: TurnRequest) -> Iterator[Event]:
    """An agent that gives whole messages only, and uses a tool between them."""
    looking = (Text("Let me look."), ToolCall("c1", "clock", {}))
    yield Step(Message(message("assistant", "x").role, looking))
    yield Step(message("tool", [ToolResult("c1", "09:30", "clock")]))
    yield Step(message("assistant", "Half past nine."))


def several_texts(_: TurnRequest) -> Iterator[Event]:
    """An agent that streams several messages without a tool call between them."""
    for text in ("one", "two", "three"):
        yield Delta(text)
        yield Step(message("assistant", text))


def all_at_once(_: TurnRequest) -> Iterator[Event]:
    """An agent that says more in a moment than anyone can listen to."""
    for number in range(3000):
        yield Delta(f"{number} ")


async def send(talk: TerminalChat, text: str) -> list[LiveEvent]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [live async for live in talk.send(text)]


def words(events: list[LiveEvent]) -> list[str]:
    return [str(live.data) for live in events if live.kind in ("text", "answer")]


def wait_elsewhere(client: Sessionary, text: str = "hello from elsewhere") -> str:
    """Something waits in the inbox for another conversation."""
    key = key_for(ELSEWHERE, profile=client.profile)
    found, _ = client.store.write(
        inbox.receive, key, ELSEWHERE, message("user", text), moment=client.moment()
    ).result()
    return str(found.id)


async def test_an_answer_that_comes_whole_is_received_whole(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "silent"})
        events = await send(talk, "What time is it?")

    assert words(events) == ["Let me look.", "Half past nine."]
    assert events[-1].data == {"state": "done", "reason": None}


async def test_no_word_is_missed_however_fast_they_come(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "busy"})
        events = await send(talk, "Count.")

    assert words(events) == ["".join(f"{number} " for number in range(3000))]


async def test_the_steps_of_an_answer_are_told_apart_from_the_text_after_them(
    client: Sessionary,
) -> None:
    """A step without a tool call could be the last: it was told only after the text of the next one."""
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "stepwise"})
        events = await send(talk, "Go on.")

    told = [str(live.data) for live in events if live.kind in ("delta", "text")]
    assert words(events) == ["one", "two", "three"]
    # Each is streamed, then told as a whole; of the last one, the whole may come first.
    assert [text for text, _ in itertools.groupby(told)] == ["one", "two", "three"]


async def test_what_waits_for_others_is_left_for_those_who_stay(client: Sessionary) -> None:
    other = wait_elsewhere(client)

    async with TerminalChat(client.app) as talk:
        for _ in range(3):
            events = await send(talk, "hello")
            assert words(events)
            assert events[-1].data["state"] == "done"

    assert _arrival(client, other).state is ArrivalState.WAITING


def _arrival(client: Sessionary, id: str) -> Arrival:
    found = client.store.read(arrivals.get, id, profile="main").result()
    assert found is not None
    return found


async def test_a_reply_of_a_process_without_the_channel_is_put_into_the_outbox(
    client: Sessionary,
) -> None:
    """Another process has the channel, and sends what waits there."""
    other = wait_elsewhere(client)
    engine = build_engine(client.app, adapters={})
    await engine.start()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (  # noqa: ASYNC110 - the record is what is looked at
                _arrival(client, other).turn_id is None or engine.turns.turns
            ):
                await asyncio.sleep(0.01)
    finally:
        await engine.stop()

    waiting = client.store.read(_deliveries, key_for(ELSEWHERE)).result()
    assert waiting == ["webhook:7"]


def _deliveries(tx: Tx, key: SessionKey) -> list[str]:
    head = routing.get_current(tx, key)
    assert head is not None
    return [str(each.channel) for each in deliveries.of_session(tx, head.no)]


async def test_an_answer_of_another_process_is_received(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await send(talk, "hello")
        key = key_for(talk.source, profile="main")
        lease = await client.store.write(_take_elsewhere, key, client)
        events: list[LiveEvent] = []
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for live in talk.send("and now?"):
                events.append(live)
                if live.kind == "waiting":
                    await client.store.write(_answer_elsewhere, key, lease, client)

    assert [live.kind for live in events] == ["waiting", "text", "ended"]
    assert words(events) == ["from elsewhere"]
    assert events[-1].data == {"state": "done", "reason": None}


def _take_elsewhere(tx: Tx, key: SessionKey, client: Sessionary) -> Lease:
    head = routing.get_current(tx, key)
    assert head is not None
    claim = Claim("another process", 60, "other")
    return turns.take_lease(tx, head.no, head.id, claim=claim, moment=client.moment())


def _answer_elsewhere(tx: Tx, key: SessionKey, lease: Lease, client: Sessionary) -> None:
    """The other process ends its turn, and answers what has come meanwhile, at one stroke."""
    moment, claim = client.moment(), Claim("another process", 60, "other")
    turns.end(tx, lease, Ending(), profile="main", moment=moment)
    begun = turns.begin(tx, key, policy=ResetPolicy(), claim=claim, moment=moment)
    assert begun is not None
    ending = Ending(messages=(message("assistant", "from elsewhere"),))
    turns.end(tx, begun.lease, ending, profile="main", moment=moment)


async def test_a_question_that_is_asked_again_is_followed_to_its_answer(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "silent"})
        await send(talk, "What time is it?")
        events = await send(talk, "/retry")

    assert words(events) == ["Trying again.", "Let me look.", "Half past nine."]
    assert events[-1].data == {"state": "done", "reason": None}


async def test_a_used_up_budget_is_reported_at_once(
    client: Sessionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "nobody")
    scope, now = "person:terminal:nobody", client.moment().now
    for at in (now, now + timedelta(days=1)):  # midnight may pass during the test
        day = periods(at)[0]
        await client.store.write(
            access.add_spending, scope, day, profile="main", tokens=1, cost_microusd=0
        )
    async with TerminalChat(client.app) as talk:
        events = await send(talk, "hello")

    assert [live.kind for live in events] == ["ended"]
    assert events[0].data["state"] == "refused"
    assert "budget of this person" in events[0].data["reason"]


async def test_a_user_without_a_name_can_talk(
    client: Sessionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1_234_567)

    assert TerminalChat(client.app).source.user_id == "1234567"


def dead_turn(client: Sessionary, *, agent: str | None = "silent") -> Lease:
    """A turn of this terminal whose process has died; the agent's turns are continued."""
    context = build_engine(client.app).context
    talk = TerminalChat(client.app)
    key = context.key(talk.source)
    claim = Claim("another-machine/1", -1, agent, resumable=agent is not None)

    def begin(tx: Tx) -> Lease:
        inbox.receive(tx, key, talk.source, message("user", "hello"), moment=context.moment())
        begun = turns.begin(tx, key, policy=ResetPolicy(), claim=claim, moment=context.moment())
        assert begun is not None
        return begun.lease

    return client.store.write(begin).result()


def state_of(client: Sessionary, lease: Lease) -> str:
    found = client.store.read(turn_rows.get, lease.turn_id, profile="main").result()
    assert found is not None
    return str(found[0].state)


async def test_a_chat_goes_on_with_the_turn_of_a_killed_chat_and_shows_its_answer(
    client: Sessionary,
) -> None:
    lease = dead_turn(client)
    step = message("assistant", "A first step.")
    client.store.write(
        turns.add_step, lease, step, None, profile="main", moment=client.moment()
    ).result()

    async with TerminalChat(client.app) as talk, asyncio.timeout(TIMEOUT_SECONDS):
        await talk.begin()
        events = [live async for live in talk.continued()]

    assert events[0].kind == "resumed"
    assert words(events) == ["A first step.", "Let me look.", "Half past nine."]
    assert events[-1].data == {"state": "done", "reason": None}


async def test_a_chat_without_a_turn_to_go_on_with_shows_nothing(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin()

        assert [live async for live in talk.continued()] == []


@pytest.mark.parametrize("to_other", [False, True])
async def test_a_new_chat_gives_up_the_turn_of_a_killed_one(
    client: Sessionary, *, to_other: bool
) -> None:
    """Before, it was refused: a turn was said to be running, and nothing could stop it."""
    lease = dead_turn(client)
    other = client.session("other")
    other.append("user", "hello")

    async with TerminalChat(client.app) as talk:
        await talk.begin(ref=other.id if to_other else None, new=not to_other)
        await send(talk, "What now?")

    assert state_of(client, lease) == "interrupted"


def test_stop_ends_a_turn_whose_process_has_ended(client: Sessionary) -> None:
    lease = dead_turn(client)
    session = client.find(lease.session_id)

    assert session.stop("enough of it")
    assert state_of(client, lease) == "interrupted"
    assert not session.stop()


def test_a_message_is_refused_while_a_turn_waits_to_go_on(client: Sessionary) -> None:
    """Before, the turn was interrupted, and the person who had asked never heard of it."""
    lease = dead_turn(client)
    session = client.find(lease.session_id)

    with pytest.raises(Conflict, match="waits for an answer or for a server to go on"):
        session.append("user", "a note")
    with pytest.raises(Conflict, match="for a server to go on"):
        session.turn("a note").__enter__()

    assert state_of(client, lease) == "running"


def test_a_turn_that_nobody_continues_does_not_block_its_session(client: Sessionary) -> None:
    lease = dead_turn(client, agent=None)

    client.find(lease.session_id).append("user", "a note")

    assert state_of(client, lease) == "interrupted"
