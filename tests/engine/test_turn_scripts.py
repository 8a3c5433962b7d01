"""The scripts of a turn leave what the general way leaves, and write nothing where they do not apply."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from sessionary.actions import inbox, turn_scripts, turns, verify
from sessionary.actions.sessions import read, routing
from sessionary.clock import Moment
from sessionary.errors import TurnLost
from sessionary.model.message import Attachment, Message, Role, Text, ToolCall, message
from sessionary.model.reset import ResetMode, ResetPolicy
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Store, Tx
from sessionary.store.tables import arrivals, deliveries, entries
from sessionary.testing.fakes import FakeClock, SequentialIds, moment_of

SOURCE = Source("telegram", "chat", user_id="ann", user_name="Ann", platform_message_id="1")
CLAIM = turns.Claim("holder", 30, "agent")
NEVER = ResetPolicy()


class Chat:
    """One conversation on a store."""

    def __init__(self, store: Store, number: int = 0) -> None:
        self.store = store
        self.clock = FakeClock()
        self.ids = SequentialIds(str(number))
        self.source = replace(SOURCE, chat_id=f"chat{number}")
        self.key: SessionKey = key_for(self.source)

    def moment(self) -> Moment:
        return moment_of(self.clock, self.ids)

    def sent(self, text: str, id: str) -> tuple[Source, Message]:
        return replace(self.source, platform_message_id=id), message("user", text)

    def begin(self, text: str, id: str, policy: ResetPolicy = NEVER) -> turns.Begun:
        """The general way."""
        source, said = self.sent(text, id)
        self.store.write(inbox.receive, self.key, source, said, moment=self.moment()).result()
        begun = self.store.write(
            turns.begin, self.key, policy=policy, claim=CLAIM, moment=self.moment()
        ).result()
        assert begun is not None
        return begun

    def begin_by_script(
        self, text: str | Message, id: str, policy: ResetPolicy = NEVER
    ) -> turn_scripts.BegunWithPrompt | None:
        source, said = self.sent("", id)
        return self.store.write(
            turn_scripts.begin,
            self.key,
            source,
            text if isinstance(text, Message) else replace(said, parts=(Text(text),)),
            policy=policy,
            claim=CLAIM,
            moment=self.moment(),
            known_context=lambda *_: None,
        ).result()

    def ending(self, text: str = "answer") -> turns.Ending:
        channel = self.source.channel
        assert channel is not None
        said = message("assistant", text, finish_reason="stop")
        replies = tuple(turns.TurnReply(channel, (Text(each),)) for each in ("one", "two"))
        used = Usage("model", input_tokens=3, output_tokens=2, cost_microusd=5, call_id=None)
        return turns.Ending(messages=(said,), replies=replies, usage=(used,))

    def end(self, begun: turns.Begun, ending: turns.Ending | None = None) -> None:
        self.store.write(
            turns.end, begun.lease, ending or self.ending(), profile="main", moment=self.moment()
        ).result()

    def end_by_script(self, begun: turns.Begun, ending: turns.Ending | None = None) -> bool:
        return bool(
            self.store.write(
                turn_scripts.end,
                begun.lease,
                ending or self.ending(),
                last_seq=begun.prompts[-1].seq,
                key=self.key,
                moment=self.moment(),
            ).result()
        )

    def state(self) -> list[Any]:
        """All that the store says about the conversation, without what differs between two."""
        return self.store.read(_state, self.key).result()


def _state(tx: Tx, key: SessionKey) -> list[Any]:
    head = routing.get_current(tx, key)
    assert head is not None
    log = read.read_log(tx, head.id, profile="main")
    feed = [
        (each.seq, each.what) for each in entries.read_feed(tx, 0) if each.session_id == head.id
    ]
    came = [
        arrivals.get_by_idempotency_key(tx, f"telegram/{key.chat}/{number}", profile="main")
        for number in range(10)
    ]
    channel = replace(head.source, chat_id="")
    return [
        replace(head, id="", no=0, key="", source=channel, running_turn=str(head.running)),
        [replace(each, session_id="", turn_id=str(bool(each.turn_id))) for each in log],
        feed,
        [
            None if each is None else (each.state, each.seq, each.message, each.received_at)
            for each in came
        ],
        [replace(each, id="", session_id="") for each in turns.list_turns(tx, head.no)],
        [
            (each.parts, each.state, each.attempts, each.not_before, each.created_at, each.reason)
            for each in deliveries.of_session(tx, head.no)
        ],
    ]


def test_a_turn_by_scripts_leaves_what_the_general_way_leaves(store: Store) -> None:
    general, scripted = Chat(store, 1), Chat(store, 2)
    for chat in (general, scripted):
        chat.end(chat.begin("first", "0"))
        chat.clock.tick(60)

    begun = general.begin("second", "1")
    by_script = scripted.begin_by_script("second", "1")
    assert by_script is not None
    assert scripted.state() == general.state()
    head = store.read(read.get_head, by_script.head.id, profile="main").result()
    assert by_script.head == head, "the agent is given the head as it is now"

    for chat in (general, scripted):
        chat.clock.tick(5)
    general.end(begun)
    assert scripted.end_by_script(by_script.begun)
    assert scripted.state() == general.state()
    assert verify.verify(store).broken == ()


def test_no_script_begins_a_turn_that_needs_more(store: Store) -> None:
    chat = Chat(store)
    assert chat.begin_by_script("hello", "0") is None, "no session yet"
    begun = chat.begin("hello", "0")
    assert chat.begin_by_script("meanwhile", "1") is None, "a turn is running"
    chat.end(begun)
    before = chat.state()
    assert chat.begin_by_script("hello", "0") is None, "it came before"
    part = Attachment("0" * 64)
    assert chat.begin_by_script(Message(Role.USER, (part,)), "2") is None, "it has a file"
    chat.clock.tick(3600)
    idle = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(minutes=1))
    assert chat.begin_by_script("late", "3", idle) is None, "the session is over"
    assert chat.state() == before

    source, said = chat.sent("waits", "4")
    store.write(inbox.receive, chat.key, source, said, moment=chat.moment()).result()
    assert chat.begin_by_script("next", "5") is None, "a message waits"


def test_no_script_ends_a_turn_that_needs_more(store: Store) -> None:
    chat = Chat(store)
    begun = chat.begin("hello", "0")
    before = chat.state()
    simple = chat.ending()
    call = Message(Role.ASSISTANT, (ToolCall("1", "look"),))
    for ending in (
        replace(simple, state=TurnState.FAILED, reason="it failed"),
        replace(simple, messages=()),
        replace(simple, messages=simple.messages * 2),
        replace(simple, messages=(call,)),
        replace(simple, files=(b"bytes",)),
    ):
        assert not chat.end_by_script(begun, ending)
    stale = replace(begun, lease=replace(begun.lease, turn_id="another"))
    assert not chat.end_by_script(stale), "its lease is lost"
    late = replace(begun, prompts=(replace(begun.prompts[0], seq=7),))
    assert not chat.end_by_script(late), "something else was appended"
    assert chat.state() == before

    chat.end(begun)
    with pytest.raises(TurnLost):
        chat.end(begun)
