"""The log: what goes in comes back, once, in order."""

import pytest
from msgspec.structs import replace

from sessionary.actions.sessions import edit
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.message import (
    Attachment,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    message,
)
from sessionary.model.source import Person
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries
from tests.support.suite import Suite, refused
from tests.support.world import ANN, World

TEXTS = {
    "a lone surrogate": "half \ud83d of a pair",
    "a surrogate at the end": "\udc80",
    "a NUL": "before\x00after",
    "a four-byte emoji": "👩‍👩‍👧 🫠",
    "control characters": "\x1b[31m\r\n\t\x7f\u2028",
    "right to left": "\u202eabc שלום",
    "nothing": "",
    "what looks like JSON": '{"$blob": "x", "type": "attachment"}',
    "quotes and per cent": "100% 'sure' \"yes\" %s :name $1 \\",
}
PARTS: dict[str, Part] = {
    "reasoning": Reasoning("hm", details={"signature": "xyz", "n": [1, None]}),
    "a tool call": ToolCall("c1", "search", {"q": "é", "deep": {"a": [1.5, True, None]}}),
    "arguments as text": ToolCall("c1", "search", '{"q":1}'),
    "a tool result": ToolResult("c1", [{"type": "text", "text": "x"}], "search", is_error=True),
    "an unknown part": Unknown({"type": "hologram", "depth": 3}),
    "a known part that does not fit": Unknown({"type": "text", "text": 7}),
    "an unknown kind of attachment": Unknown({"type": "attachment", "url": "https://x.test"}),
    "data that looks like our mark": ToolResult("c1", {"$blob": "0" * 64, "size": 3}),
    "a text with extra fields": Text("x", extra={"cache_control": {"type": "ephemeral"}}),
}


class LogSuite(Suite):
    """Appending and reading back."""

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    def test_any_text_goes_in_and_comes_back(self, world: World, text: str) -> None:
        session = world.session("first")

        world.append_text(session, text)

        assert world.texts(session) == ["first", text]

    @pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
    def test_any_part_goes_in_and_comes_back(self, world: World, part: Part) -> None:
        session = world.session("first")
        sent = Message(Role.ASSISTANT, (Text("so"), part))

        world.append(session, sent)

        assert world.transcript(session)[-1].body == sent

    def test_every_field_of_a_message_comes_back(self, world: World) -> None:
        session = world.session("first")
        sent = Message(
            Role.USER,
            (Text("x"),),
            person=Person("7", alt_id="uuid", name="Ann \ud800"),
            model="m",
            finish_reason="stop",
            token_count=0,
            platform_message_id="99",
            extra={"edited": True},
        )

        world.append(session, sent)

        assert world.transcript(session)[-1].body == sent

    @pytest.mark.parametrize(
        "text", ["x" * 1_000_000, "é\ud800\x00" * 100_000], ids=["plain", "odd"]
    )
    def test_a_megabyte_goes_to_the_blobs_and_comes_back(self, world: World, text: str) -> None:
        """F19."""
        session = world.session(text)
        again = world.session(text)
        first = world.head(session).no << 24

        kept = world.read(lambda tx: tx.all("blobs_of_entries", first=first, last=first + 9))

        assert world.texts(session) == world.texts(again) == [text]
        assert kept == [(blobs.hash_of_text(text),)]

    def test_large_tool_results_and_arguments_come_back(self, world: World) -> None:
        session = world.session("first")
        large = "y" * 40_000
        sent = Message(Role.TOOL, (ToolResult("c", large), ToolResult("d", {"long": large})))

        world.append(session, sent)

        assert world.transcript(session)[-1].body == sent

    def test_more_than_32_mebibytes_are_refused(self, world: World) -> None:
        """F19: a documented limit, a clear refusal."""
        session = world.session("first")

        with refused(BadInput, "32 MiB", unchanged=world):
            world.append_text(session, "é" * (entries.MAX_BODY // 2 + 1))

    def test_what_is_too_large_for_the_log_does_not_block_the_inbox(self, world: World) -> None:
        source = replace(ANN, platform_message_id="1")

        with refused(BadInput, "32 MiB"):
            world.arrive(source, "x" * (entries.MAX_BODY + 1))

        assert world.begin(source) is None

    def test_an_attachment_needs_its_bytes_in_the_store(self, world: World) -> None:
        """A blob by hash."""
        session = world.session("first")
        sent = Message(Role.USER, (Attachment("0" * 64, "image/png", "x.png", 3),))

        with refused(BadInput, "0000", unchanged=world):
            world.append(session, sent)

    def test_an_attachment_comes_back_with_its_bytes(self, world: World) -> None:
        """A blob by hash."""
        session = world.session("first")
        name = world.write(_keep, b"\x89PNG\x00", session)
        sent = Message(Role.USER, (Attachment(name, "image/png", "x.png", 5),))

        world.append(session, sent)

        assert world.transcript(session)[-1].body == sent
        assert world.read(blobs.get, name) == b"\x89PNG\x00"

    def test_an_append_returns_its_place_in_the_order(self, world: World) -> None:
        """Dense from 1, whatever the clock says."""
        session = world.session("1")
        world.clock.tick(-1000)

        places = [world.append_text(session, str(n)).seq for n in (2, 3, 4)]

        assert places == [2, 3, 4]
        assert [entry.seq for entry in world.transcript(session)] == [1, 2, 3, 4]
        assert world.texts(session) == ["1", "2", "3", "4"]

    def test_an_idempotency_key_is_kept_once(self, world: World) -> None:
        """P2."""
        session = world.session("first")

        first = world.append_text(session, "once", idempotency_key="k")
        again = world.append_text(session, "once", idempotency_key="k")

        assert (first.repeated, again.repeated) == (False, True)
        assert again.seq == first.seq
        assert world.texts(session) == ["first", "once"]

    def test_an_idempotency_key_with_another_message_is_a_conflict(self, world: World) -> None:
        session, other = world.session("a"), world.session("b")
        large = "x" * 100_000
        world.append_text(session, "once \ud800", idempotency_key="k")
        world.append_text(session, large, idempotency_key="large")
        call = message("assistant", [ToolCall("c", "f", {"a": (1, 2)})])
        world.append(session, call, idempotency_key="call")

        assert world.append_text(session, "once \ud800", idempotency_key="k").repeated
        assert world.append_text(session, large, idempotency_key="large").repeated
        assert world.append(session, call, idempotency_key="call").repeated
        with refused(Conflict, "belongs to another message", unchanged=world):
            world.append_text(other, "twice", idempotency_key="k")
        with refused(Conflict, "belongs to another message", unchanged=world):
            world.append_text(session, large + "x", idempotency_key="large")
        with refused(Conflict, "belongs to another message", unchanged=world):
            world.append(session, message("assistant", "once \ud800"), idempotency_key="k")

    def test_a_repeat_finds_the_first_in_any_session_and_state(self, world: World) -> None:
        """P2: for ever."""
        session, other = world.session("a"), world.session("b")
        first = world.append_text(session, "once", idempotency_key="k")
        world.write(edit.end, session, profile="main", moment=world.moment())

        again = world.append_text(session, "once", idempotency_key="k")
        elsewhere = world.append_text(other, "once", idempotency_key="k")

        assert (again.session_id, again.seq) == (session, first.seq)
        assert (elsewhere.session_id, elsewhere.seq) == (session, first.seq)
        assert world.texts(other) == ["b"]

    def test_a_repeat_is_known_after_the_purge(self, world: World) -> None:
        """P2: for ever."""
        session, other = world.session("a"), world.session("b")
        world.append_text(session, "once", idempotency_key="k")
        world.purge(session)

        again = world.append_text(other, "once", idempotency_key="k")

        assert (again.repeated, again.session_id, again.seq) == (True, session, 2)
        assert world.texts(other) == ["b"]

    def test_profiles_have_their_own_idempotency_keys(self, world: World) -> None:
        other = World(world.store, profile="work")
        mine, theirs = world.session("a"), other.session("b")

        world.append_text(mine, "x", idempotency_key="k")

        assert not other.append_text(theirs, "x", idempotency_key="k").repeated

    @pytest.mark.parametrize("idempotency_key", ["", "x" * 513, "a\x00b", "a\ud800"])
    def test_a_key_that_cannot_be_kept_exactly_is_refused(
        self, world: World, idempotency_key: str
    ) -> None:
        session = world.session("a")

        with refused(BadInput, "idempotency key", unchanged=world):
            world.append_text(session, "x", idempotency_key=idempotency_key)

    def test_nothing_is_appended_to_a_session_that_has_ended(self, world: World) -> None:
        session = world.session("a")
        world.write(edit.end, session, profile="main", moment=world.moment(), reason="done \ud800")

        with refused(Conflict, "has ended (done", unchanged=world):
            world.append_text(session, "late")

    def test_nothing_is_appended_to_a_read_only_session(self, world: World) -> None:
        session = world.session(read_only=True)

        with refused(Conflict, "read-only", unchanged=world):
            world.append_text(session, "x")

    def test_only_the_turn_appends_while_it_runs(self, world: World) -> None:
        session = world.session("a")
        world.begin_in(session)

        with refused(Conflict, "turn is running", unchanged=world):
            world.append_text(session, "x")

    def test_nothing_is_appended_to_trash(self, world: World) -> None:
        session = world.session("a")
        world.write(edit.trash, session, profile="main", moment=world.moment())

        with refused(Conflict, "has ended (trash)", unchanged=world):
            world.append_text(session, "x")

    @pytest.mark.parametrize("name", ["no-such-id", "", "a\x00b", "\ud800"])
    def test_an_unknown_session_takes_nothing(self, world: World, name: str) -> None:
        with refused(NotFound, "no session", unchanged=world):
            world.append_text(name, "x")

    def test_a_session_of_another_profile_looks_missing(self, world: World) -> None:
        """P17."""
        session = world.session("a")

        with refused(NotFound, f"There is no session {session}.", unchanged=world):
            world.append_text(session, "x", profile="other")

    def test_the_head_counts_as_the_log_grows(self, world: World) -> None:
        session = world.session("  first\n words ", "answer")
        calls = (ToolCall("1", "a"), ToolCall("2", "b"))
        world.append(session, Message(Role.ASSISTANT, calls))
        world.append(session, Message(Role.TOOL, (ToolResult("1", "x"),)))

        head = world.head(session)

        assert (head.message_count, head.tool_call_count) == (4, 2)
        assert (head.last_seq, head.last_reply_seq) == (4, 3)
        assert head.preview == "first words"
        assert head.unread

    def test_only_people_and_the_agent_are_active(self, world: World) -> None:
        session = world.session("a")
        began = world.head(session).last_active_at

        world.append(session, message("system", "note"))
        world.append(session, Message(Role.TOOL, (ToolResult("1", "x"),)))
        world.write(edit.rename, session, "title", profile="main")
        quiet = world.head(session).last_active_at
        world.append_text(session, "b", role="assistant")

        assert quiet == began
        assert world.head(session).last_active_at == world.clock.now()

    def test_a_clock_set_back_never_moves_activity_back(self, world: World) -> None:
        """F12."""
        session = world.session("a")
        before = world.head(session).last_active_at
        world.clock.tick(days=-30)

        world.append_text(session, "b")

        assert world.head(session).last_active_at == before


def _keep(tx: Tx, data: bytes, session_id: str) -> str:
    row = tx.one("lock_session", id=session_id, profile="main")
    assert row is not None
    return blobs.keep(tx, data, entry_no=row[0] << 24)
