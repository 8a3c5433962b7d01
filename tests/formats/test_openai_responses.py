"""Items of the Responses API: read as messages, written from messages, and accepted by OpenAI's own types."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from sessionary.errors import BadInput
from sessionary.formats import openai_responses
from sessionary.formats.openai_responses import ResponsesInput, TurnItems, parse_item_id
from sessionary.model.message import (
    Attachment,
    Entry,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.prefix import prefix_digests
from sessionary.model.transcript import INTERRUPTED
from sessionary.model.turn_answer import answer_of
from sessionary.testing.fakes import FakeClock

Json = dict[str, Any]
OUTPUT: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
CONVERSATION: TypeAdapter[Any] = TypeAdapter(ConversationItem)
TURN = "turn1"


def read(*items: Any) -> list[Message]:
    reader = ResponsesInput()
    for each in items:
        reader.add(each)
    return [each.message for each in reader.messages]


def output(
    *messages: Message,
    tools: tuple[str, ...] = (),
    with_encrypted: bool = False,
    is_cut: bool = False,
) -> list[Json]:
    items = TurnItems(TURN, tools=tools, server_label="helper", with_encrypted=with_encrypted)
    for each in messages:
        items.add(each)
    if is_cut:
        items.cut()
    for item in items.output:
        OUTPUT.validate_python(item)
    return items.output


def of_conversation(message: Message, step: int | None = None) -> list[Json]:
    entry = Entry("session-1", 3, FakeClock().now(), message, None if step is None else TURN)
    made = openai_responses.entry_items(entry, step)
    for each in made:
        CONVERSATION.validate_python(each)
    return made


def assistant(*parts: Any, **more: Any) -> Message:
    return Message(Role.ASSISTANT, parts, **more)


CALL = ToolCall("call_1", "look", {"at": "it"})
RESULT = Message(Role.TOOL, (ToolResult("call_1", "seen"),))
STEPS = (
    assistant(Reasoning("hm", {"encrypted_content": "xyz"}), Text("Let me look."), CALL),
    RESULT,
    assistant(Text("It is there.")),
)


def test_a_turn_is_what_was_thought_said_and_done_in_it() -> None:
    thought, said, called, answered = output(*STEPS)

    assert thought["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert "encrypted_content" not in thought
    assert said["content"][0]["text"] == "Let me look."
    assert (called["type"], called["server_label"]) == ("mcp_call", "helper")
    assert (called["name"], called["arguments"]) == ("look", '{"at":"it"}')
    assert (called["output"], called["error"], called["status"]) == ("seen", None, "completed")
    assert answered["content"][0]["text"] == "\n\nIt is there."
    ids = [each["id"] for each in (thought, said, called, answered)]
    assert ids == ["rs_turn1_0", "msg_turn1_0", "mcp_turn1_0.0", "msg_turn1_1"]


def test_what_was_thought_is_given_encrypted_to_whoever_asks_for_it() -> None:
    assert output(*STEPS, with_encrypted=True)[0]["encrypted_content"] == "xyz"


def test_calls_of_the_programs_tools_are_left_to_it() -> None:
    [call] = output(assistant(CALL), tools=("look",))

    assert call == {
        "id": "fc_turn1_0.0",
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at":"it"}',
        "status": "completed",
    }


def test_a_call_without_a_result_is_in_progress_and_a_failed_one_has_an_error() -> None:
    [running] = output(assistant(CALL))
    failed = Message(Role.TOOL, (ToolResult("call_1", "no such thing", is_error=True),))
    [done] = output(assistant(CALL), failed)

    assert (running["status"], running["output"]) == ("in_progress", None)
    assert (done["status"], done["output"]) == ("failed", None)
    assert done["error"]["content"] == "no such thing"


def test_results_belong_to_the_step_before_them_when_ids_are_used_twice() -> None:
    again = Message(Role.TOOL, (ToolResult("call_1", "seen again"),))

    outputs = [each["output"] for each in output(assistant(CALL), RESULT, assistant(CALL), again)]

    assert outputs == ["seen", "seen again"]


def test_an_answer_that_was_cut_off_goes_on_without_a_blank_line() -> None:
    items = output(
        assistant(Text("One, t"), finish_reason=INTERRUPTED), assistant(Text("wo, three."))
    )

    assert "".join(each["content"][0]["text"] for each in items) == "One, two, three."


def test_the_last_message_of_a_turn_that_ended_early_is_incomplete() -> None:
    [item] = output(assistant(Text("One, t")), is_cut=True)

    assert item["status"] == "incomplete"


def test_an_output_that_is_sent_back_is_the_answer_that_the_record_knows() -> None:
    [message] = read(*output(*STEPS))

    assert message.text == "Let me look.\n\nIt is there."
    assert prefix_digests([message]) == prefix_digests([answer_of(STEPS).message])


def test_a_call_that_is_sent_back_is_the_answer_that_the_record_knows() -> None:
    steps = (assistant(Text("Let me see."), CALL),)

    message, result = read(
        *output(*steps, tools=("look",)),
        {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
    )

    assert prefix_digests([message]) == prefix_digests([answer_of(steps).message])
    assert result == Message(Role.TOOL, (ToolResult("call_1", "seen"),))


def test_every_way_to_write_a_message_is_read() -> None:
    messages = read(
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "role": "assistant", "content": [openai_responses.output_text("yes")]},
        {"type": "message", "role": "user", "content": "bye"},
    )

    assert [(str(each.role), each.text) for each in messages] == [
        ("system", "Be short."),
        ("user", "hi"),
        ("assistant", "yes"),
        ("user", "bye"),
    ]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("hi", "JSON object"),
        ({"role": "king", "content": "hi"}, "'king'"),
        ({"role": "user", "content": 5}, "text or a list"),
        ({"role": "user"}, "text or a list"),
        ({"role": "user", "content": [{"type": "magic"}]}, "magic"),
        ({"type": "computer_call", "id": "1"}, "computer_call"),
        ({"type": ["x"]}, "cannot be read"),
        ({"type": "function_call", "name": "f"}, "call_id"),
        ({"type": "function_call_output", "output": "x"}, "call_id"),
    ],
)
def test_what_no_model_could_read_is_refused(item: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(item)


def test_a_message_of_a_user_shows_its_files() -> None:
    items = of_conversation(
        Message(
            Role.USER,
            (
                Text("look"),
                Attachment("b" * 64, "image/png", "a.png", 5, {"file_id": "file-1"}),
                Attachment("c" * 64, "text/plain", "b.txt", 5),
                Unknown({"type": "secret"}),
            ),
        )
    )

    assert [each["content"] for each in items] == [
        [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "detail": "auto", "file_id": "file-1", "image_url": None},
            {"type": "input_file", "file_id": None, "filename": "b.txt"},
        ]
    ]
    assert items[0]["id"] == "msg_session-1-3"


def test_a_conversation_has_calls_and_results_as_they_are_in_the_log() -> None:
    ids = [each["id"] for each in of_conversation(STEPS[0], step=0)]
    [result] = of_conversation(RESULT)

    assert ids == ["rs_turn1_0", "msg_turn1_0", "fc_turn1_0.0"]
    assert (result["id"], result["output"]) == ("fco_session-1-3.0", "seen")
    assert [each["id"] for each in of_conversation(STEPS[2])] == ["msg_session-1-3"]


@pytest.mark.parametrize(
    ("id", "owner", "number", "is_entry", "call"),
    [
        ("msg_turn1_2", "turn1", 2, False, 0),
        ("fc_turn1_2.1", "turn1", 2, False, 1),
        ("msg_my_own-session.2026-7", "my_own-session.2026", 7, True, 0),
        ("fco_s-1-7.3", "s-1", 7, True, 3),
    ],
)
def test_an_id_says_where_its_item_comes_from(
    id: str, owner: str, number: int, is_entry: bool, call: int
) -> None:
    found = parse_item_id(id)

    assert found is not None
    assert (found.owner, found.number, found.is_entry, found.call) == (
        owner,
        number,
        is_entry,
        call,
    )


@given(st.text(max_size=40) | st.from_regex(r"(msg|fc)_.{0,20}[_-]\d{0,12}"))
def test_any_other_id_is_none_of_ours(id: str) -> None:
    found = parse_item_id(id)

    assert found is None or id.startswith(found.kind)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "text", "summary", "call_id", "output", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_whatever_is_sent_is_read_or_refused(item: Any) -> None:
    with suppress(BadInput):
        read(item)
