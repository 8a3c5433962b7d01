"""What an export contains: without tools, reasoning or personal data, as the options say."""

from datetime import UTC, datetime

import pytest

from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.record import WHOLE, ExportOptions, entry_within, is_empty
from sessionary.model.source import Person, Source

SOURCE = Source("signal", "+49 170 1234567", user_id="uuid-1234-5678", user_name="+49 170 1234567")
ADA = Person("uuid-1234-5678", name="Ada")
AT = datetime(2026, 1, 1, tzinfo=UTC)
REDACTED = ExportOptions(redact=True)


def entry(*parts: object, role: Role = Role.USER) -> Entry:
    return Entry("s", 1, AT, Message(role, parts, person=ADA))  # type: ignore[arg-type]


def words(found: Entry) -> str:
    assert isinstance(found.body, Message)
    return found.body.text


def test_everything_is_the_entry_itself() -> None:
    original = entry(Text("call +49 170 1234567"), ToolCall("1", "x"), Reasoning("hm"))

    assert entry_within(original, SOURCE, WHOLE) is original


def test_tools_and_thoughts_are_left_out_apart() -> None:
    original = entry(Text("a"), ToolCall("1", "x"), ToolResult("1", "y"), Reasoning("hm"))

    no_tools = entry_within(original, SOURCE, ExportOptions(tools=False)).body
    no_thoughts = entry_within(original, SOURCE, ExportOptions(reasoning=False)).body

    assert isinstance(no_tools, Message)
    assert isinstance(no_thoughts, Message)
    assert [type(part) for part in no_tools.parts] == [Text, Reasoning]
    assert [type(part) for part in no_thoughts.parts] == [Text, ToolCall, ToolResult]


def test_a_message_of_tools_alone_is_empty_without_them() -> None:
    original = entry(ToolResult("1", "y"), role=Role.TOOL)

    assert not is_empty(original)
    assert is_empty(entry_within(original, SOURCE, ExportOptions(tools=False)))


@pytest.mark.parametrize(
    "secret",
    ["+49 170 1234567", "+1 (555) 010-9999", "ada@example.org", "uuid-1234-5678", "+491701234567"],
)
def test_numbers_addresses_and_ids_are_hidden_wherever_they_stand(secret: str) -> None:
    original = entry(
        Text(f"write to {secret}, please"),
        Reasoning(f"who is {secret}?", details={"raw": secret}),
        ToolCall("1", "send", {"to": [secret]}),
        ToolResult("1", f"sent to {secret}"),
        Attachment("0" * 64, name=f"{secret}.pdf"),
        Unknown({"type": "card", "tel": secret}),
    )

    hidden = entry_within(original, SOURCE, REDACTED)

    assert secret not in repr(hidden)
    assert "user_" in words(hidden)
    assert words(hidden).startswith("write to user_")
    assert words(hidden).endswith(", please")


def test_the_same_person_has_the_same_name_everywhere() -> None:
    one = entry_within(entry(Text("ada@example.org")), SOURCE, REDACTED)
    two = entry_within(entry(Text("ada@example.org")), SOURCE, REDACTED)

    assert one == two


@pytest.mark.parametrize(
    "text",
    ["version 1.2.3", "2026-01-01 10:20", "a+b=c", "10 + 20 = 30", "x@y", "price: 1,234,567"],
)
def test_what_is_no_number_of_a_person_stays(text: str) -> None:
    assert words(entry_within(entry(Text(text)), SOURCE, REDACTED)) == text


def test_a_summary_is_redacted_too() -> None:
    mark = Entry("s", 2, AT, Compaction("Ada (ada@example.org) asked", 1))

    hidden = entry_within(mark, SOURCE, REDACTED).body

    assert isinstance(hidden, Compaction)
    assert "ada@example.org" not in hidden.summary
