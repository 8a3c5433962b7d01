"""Messages go in as a program has them and come back as they were given."""

from typing import Any

import pytest

from sessionary.actions.sessions import read
from sessionary.compat.hermes.state import SessionDB
from sessionary.errors import BadInput, NotFound
from tests.compat.hermes.test_sessions import row

COLUMNS = """
id session_id role content tool_call_id tool_calls tool_name timestamp token_count finish_reason
reasoning reasoning_content reasoning_details codex_reasoning_items codex_message_items
platform_message_id observed
"""
CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"q": 1}'}}
ODD_CALL = {"call_id": "c2", "name": "ls", "arguments": {"p": "."}, "vendor": [1, None]}


@pytest.fixture
def chat(db: SessionDB) -> SessionDB:
    db.create_session("s1", "cli")
    return db


def contents(db: SessionDB, id: str = "s1") -> list[Any]:
    return [each["content"] for each in db.get_messages(id)]


def test_a_message_has_exactly_these_columns(chat: SessionDB) -> None:
    number = chat.append_message("s1", "user", "hi", platform_message_id="77", token_count=3)

    [found] = chat.get_messages("s1")
    assert sorted(found) == sorted(COLUMNS.split())
    assert (found["id"], found["session_id"], found["role"]) == (number, "s1", "user")
    assert (found["platform_message_id"], found["token_count"]) == ("77", 3)
    assert isinstance(found["timestamp"], float)
    assert found["observed"] is False
    assert found["tool_calls"] is None


def test_numbers_grow_and_no_two_messages_share_one(chat: SessionDB) -> None:
    chat.create_session("s2", "cli")
    numbers = [chat.append_message(id, "user", "x") for id in ("s1", "s1", "s2", "s1", "s2")]

    assert len(set(numbers)) == 5
    assert numbers[0] < numbers[1] < numbers[3]


CONTENTS: list[Any] = [
    "plain",
    "",
    None,
    "a lone \ud800 surrogate and a \x00 nul",
    "long " * 20_000,
    [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
    [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "loose", 7],
    [{"type": "tool_call", "id": "x", "name": "not a call of ours"}],
    {"type": "weird", "deep": [[{}]]},
    [],
]


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_content_comes_back_as_it_was_given(chat: SessionDB, role: str) -> None:
    chat.append_messages_batch("s1", [{"role": role, "content": each} for each in CONTENTS])

    assert contents(chat) == CONTENTS
    assert row(chat, "s1")["tool_call_count"] == 0


def test_calls_are_counted_by_their_number_and_a_single_value_as_one(chat: SessionDB) -> None:
    chat.append_message("s1", "assistant", "", tool_calls=[CALL, ODD_CALL])
    chat.append_message("s1", "assistant", None, tool_calls={"odd": True})
    chat.append_message("s1", "tool", "out", tool_call_id="c1", tool_name="grep", tool_calls=[CALL])
    chat.append_message("s1", "assistant", "done", tool_calls=[])

    found = chat.get_messages("s1")
    assert [each["tool_calls"] for each in found] == [
        [CALL, ODD_CALL],
        {"odd": True},
        [CALL],
        None,
    ]
    assert (row(chat, "s1")["message_count"], row(chat, "s1")["tool_call_count"]) == (4, 3)


def test_what_a_model_thought_comes_back_field_by_field(chat: SessionDB) -> None:
    given: dict[str, Any] = {
        "reasoning": "hm",
        "reasoning_content": "hm, well",
        "reasoning_details": [{"type": "x", "signature": "s"}],
        "codex_reasoning_items": [{"id": "r"}],
        "codex_message_items": [{"id": "m"}],
    }
    chat.append_message("s1", "assistant", "yes", finish_reason="stop", **given)
    chat.append_message("s1", "assistant", "no", reasoning_content="only this")
    chat.append_message("s1", "assistant", "no", reasoning_details={"a": 1})

    first, second, third = chat.get_messages("s1")
    assert {name: first[name] for name in given} == given
    assert (second["reasoning"], second["reasoning_content"]) == (None, "only this")
    assert (third["reasoning"], third["reasoning_details"]) == (None, {"a": 1})


def test_the_conversation_has_only_what_is_set(chat: SessionDB) -> None:
    chat.append_message("s1", "user", "look", platform_message_id="1", finish_reason="odd")
    chat.append_message("s1", "assistant", "", tool_calls=[CALL], reasoning="hm")
    chat.append_message("s1", "tool", "out", tool_call_id="c1", tool_name="grep")
    chat.append_message("s1", "assistant", "found", finish_reason="stop")

    assert chat.get_messages_as_conversation("s1") == [
        {"role": "user", "content": "look", "message_id": "1"},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning": "hm"},
        {"role": "tool", "content": "out", "tool_call_id": "c1", "tool_name": "grep"},
        {"role": "assistant", "content": "found", "finish_reason": "stop"},
    ]
    assert chat.get_messages_as_conversation("nobody") == []


def test_the_server_reads_the_same_conversation(chat: SessionDB) -> None:
    chat.append_message("s1", "user", "look")
    chat.append_message("s1", "assistant", "", tool_calls=[CALL])
    chat.append_message("s1", "tool", "out", tool_call_id="c1", tool_name="grep")

    assert chat._store.read(read.read_context, "s1", profile="main") == [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "out", "tool_call_id": "c1", "tool_name": "grep"},
    ]


def test_a_role_that_we_do_not_know_and_an_observed_message_are_kept(chat: SessionDB) -> None:
    chat.append_message("s1", "session_meta", "tools: 5")
    chat.append_message("s1", "user", "not to you", observed=True)

    meta, second = chat.get_messages("s1")
    assert (meta["role"], second["observed"]) == ("session_meta", True)


def test_a_batch_goes_in_whole_or_not_at_all(chat: SessionDB) -> None:
    numbers = chat.append_messages_batch(
        "s1",
        [
            {"role": "user", "content": "a", "timestamp": 1_700_000_000.5},
            {"role": "assistant", "content": "b", "tool_calls": [CALL]},
        ],
    )
    with pytest.raises(BadInput):
        chat.append_messages_batch("s1", [{"role": "user", "content": "c"}, {"role": None}])

    found = chat.get_messages("s1")
    assert [each["id"] for each in found] == numbers
    assert found[0]["timestamp"] == 1_700_000_000.5
    assert (row(chat, "s1")["message_count"], row(chat, "s1")["tool_call_count"]) == (2, 1)


def test_replaced_messages_stand_for_the_old_in_counts_and_search(chat: SessionDB) -> None:
    chat.append_message("s1", "user", "the marmalade")
    chat.append_message("s1", "assistant", "yes", tool_calls=[CALL])
    assert len(chat.search_messages("marmalade")) == 1

    chat.replace_messages("s1", [{"role": "user", "content": "the honey"}])

    assert contents(chat) == ["the honey"]
    assert (row(chat, "s1")["message_count"], row(chat, "s1")["tool_call_count"]) == (1, 0)
    assert chat.search_messages("marmalade") == []
    assert len(chat.search_messages("honey")) == 1


def test_cleared_messages_are_gone_for_everyone_and_new_ones_can_come(chat: SessionDB) -> None:
    chat.append_message("s1", "user", "marmalade")
    chat.clear_messages("s1")
    chat.clear_messages("s1")

    assert contents(chat) == []
    assert row(chat, "s1")["message_count"] == 0
    assert chat.search_messages("marmalade") == []
    chat.append_message("s1", "user", "again")
    assert contents(chat) == ["again"]
    assert chat.message_count("s1") == chat.message_count() == 1


def test_a_message_to_nobody_is_refused(db: SessionDB) -> None:
    with pytest.raises(NotFound):
        db.append_message("nobody", "user", "hello")

    assert db.get_messages("nobody") == []


def test_a_window_shows_the_messages_around_one(chat: SessionDB) -> None:
    numbers = [chat.append_message("s1", "user", str(place)) for place in range(9)]

    view = chat.get_messages_around("s1", numbers[4], window=2)
    edge = chat.get_messages_around("s1", numbers[1], window=5)

    assert sorted(view) == ["messages_after", "messages_before", "window"]
    assert [each["content"] for each in view["window"]] == ["2", "3", "4", "5", "6"]
    assert (view["messages_before"], view["messages_after"]) == (2, 2)
    assert (edge["messages_before"], edge["messages_after"]) == (1, 5)


def test_an_anchored_view_keeps_some_roles_the_anchor_and_bookends(chat: SessionDB) -> None:
    roles = ["user", "assistant", "tool", "user", "tool", "assistant", "user", "tool", "assistant"]
    numbers = [chat.append_message("s1", role, str(n)) for n, role in enumerate(roles)]

    view = chat.get_anchored_view("s1", numbers[4], window=1, bookend=2)

    def texts(name: str) -> list[str]:
        return [each["content"] for each in view[name]]

    assert texts("window") == ["3", "4", "5"]
    assert texts("bookend_start") == ["0", "1"]
    assert texts("bookend_end") == ["6", "8"]
    assert (view["messages_before"], view["messages_after"]) == (1, 1)


def test_an_unknown_anchor_gives_empty_results(chat: SessionDB) -> None:
    chat.append_message("s1", "user", "x")
    nothing = {"window": [], "messages_before": 0, "messages_after": 0}

    assert chat.get_messages_around("s1", 1) == nothing
    assert chat.get_messages_around("nobody", 1) == nothing
    assert chat.get_anchored_view("s1", 1) == nothing | {"bookend_start": [], "bookend_end": []}


def test_an_export_is_the_row_with_its_messages(chat: SessionDB) -> None:
    chat.append_message("s1", "user", "x")
    chat.create_session("s2", "telegram")

    exported = chat.export_session("s1")
    assert exported == row(chat, "s1") | {"messages": chat.get_messages("s1")}
    assert chat.export_session("nobody") is None
    assert [each["id"] for each in chat.export_all()] == ["s2", "s1"]
    assert [each["id"] for each in chat.export_all("telegram")] == ["s2"]
