"""Sessions as files: whole or in part, harmless, and never more than was asked for."""

from typing import Any

import pytest

from hansard.actions import read
from hansard.clock import RandomIds, SystemClock
from hansard.store.opening import open_store
from tests.transfer import imported
from tests.web.conftest import Client

PHONE = "+49 170 1234567"
SOURCE = {"platform": "signal", "chat_id": PHONE, "user_id": PHONE, "user_name": PHONE}
FORMS = ["jsonl", "md", "html"]


async def told(client: Client) -> str:
    body = {"text": f"I am {PHONE}", "source": SOURCE, "title": f"call {PHONE}"}
    id = str((await client.post("/sessions", body, status=201))["id"])
    call = {"type": "tool_call", "id": "1", "name": "dial", "arguments": {"number": PHONE}}
    thought = {"type": "reasoning", "text": "pondering deeply"}
    result = {"type": "tool_result", "call_id": "1", "content": "it rang thrice"}
    for role, parts in (
        ("assistant", [thought, call]),
        ("tool", [result]),
        ("assistant", [{"type": "text", "text": "Nobody answers."}]),
    ):
        await client.post(f"/sessions/{id}/messages", {"role": role, "parts": parts}, status=201)
    return id


async def exported(client: Client, **query: Any) -> str:
    answer = await client.call("GET", "/export", params=query)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


@pytest.mark.parametrize("form", FORMS)
async def test_tools_and_thoughts_can_be_left_out(client: Client, form: str) -> None:
    id = await told(client)

    whole = await exported(client, session=id, format=form)
    plain = await exported(client, session=id, format=form, tools=False, reasoning=False)

    assert "rang thrice" in whole
    assert "pondering" in whole
    assert "rang thrice" not in plain
    assert "dial" not in plain
    assert "pondering" not in plain
    assert "Nobody answers." in plain


@pytest.mark.parametrize("form", FORMS)
async def test_a_redacted_file_names_nobody(client: Client, form: str) -> None:
    id = await told(client)

    whole = await exported(client, session=id, format=form)
    redacted = await exported(client, session=id, format=form, redact=True)

    digits = PHONE.replace(" ", "")[1:]
    assert "1234567" in whole
    assert "1234567" not in redacted
    assert digits not in redacted
    assert "user\\_" in redacted or "user_" in redacted


async def test_what_was_left_out_does_not_keep_the_rest_from_being_imported(client: Client) -> None:
    id = await told(client)
    text = await exported(client, session=id, tools=False, redact=True)
    there = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())

    report = imported(there, text.encode())

    assert not report.refused
    head = there.read(read.head, id, profile="main").result()
    assert (head.message_count, head.tool_call_count, head.key) == (4, 0, None)
    there.close()
