"""Sessions as files: whole or in part, harmless, and never more than was asked for."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions.sessions import read
from sessionary.actions.transfer import export
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.access import Scope
from sessionary.model.handover.forms import HANDOVER_FORMATS
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.web.routes.exports import HandoverTool
from tests.support.transfer import imported
from tests.web.conftest import Client, Served

PHONE = "+49 170 1234567"
SOURCE = {"platform": "signal", "chat_id": PHONE, "user_id": PHONE, "user_name": PHONE}
FORMATS = ["jsonl", "md", "html"]


async def create_session(client: Client) -> str:
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


@pytest.mark.parametrize("form", FORMATS)
async def test_tools_and_thoughts_can_be_left_out(client: Client, form: str) -> None:
    id = await create_session(client)

    whole = await exported(client, session_id=id, format=form)
    plain = await exported(client, session_id=id, format=form, tools=False, reasoning=False)

    assert "rang thrice" in whole
    assert "pondering" in whole
    assert "rang thrice" not in plain
    assert "dial" not in plain
    assert "pondering" not in plain
    assert "Nobody answers." in plain


@pytest.mark.parametrize("form", FORMATS)
async def test_a_redacted_file_names_nobody(client: Client, form: str) -> None:
    id = await create_session(client)

    whole = await exported(client, session_id=id, format=form)
    redacted = await exported(client, session_id=id, format=form, redact=True)

    digits = PHONE.replace(" ", "")[1:]
    assert "1234567" in whole
    assert "1234567" not in redacted
    assert digits not in redacted
    assert "user\\_" in redacted or "user_" in redacted


async def test_what_was_left_out_does_not_keep_the_rest_from_being_imported(client: Client) -> None:
    id = await create_session(client)
    text = await exported(client, session_id=id, tools=False, redact=True)
    there = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())

    report = imported(there, text.encode())

    assert not report.refused
    head = there.read(read.get_head, id, profile="main").result()
    assert (head.message_count, head.tool_call_count, head.key) == (4, 0, None)
    there.close()


def test_every_tool_that_can_go_on_can_be_named() -> None:
    assert set(HandoverTool) == set(HANDOVER_FORMATS)


@pytest.mark.parametrize("tool", list(HANDOVER_FORMATS))
async def test_another_tool_goes_on_from_the_file_that_it_gets(
    client: Client, store: Store, tool: str
) -> None:
    id = await create_session(client)

    answer = await client.call("GET", "/export", params={"session_id": id, "as": tool})
    preview = await client.get(f"/sessions/{id}/handover", params={"as": tool})

    made = export.handover_excerpt(store, id, profile="main")
    assert answer.text == "".join(HANDOVER_FORMATS[tool].pieces(made))
    assert f'filename="{preview["file"]}"' in answer.headers["content-disposition"]
    assert (preview["messages"], preview["left_out"]) == (len(made.lines), 0)
    assert preview["advice"] == HANDOVER_FORMATS[tool].advice(made, preview["file"])


async def test_a_budget_keeps_the_newest_and_the_preview_says_what_is_left_out(
    client: Client,
) -> None:
    id = await create_session(client)
    for count in range(20):
        body = {"role": "user", "text": f"question {count} " + "word " * 50}
        await client.post(f"/sessions/{id}/messages", body, status=201)

    text = await exported(client, session_id=id, **{"as": "openai", "budget": 300})
    preview = await client.get(f"/sessions/{id}/handover", params={"as": "openai", "budget": 300})

    assert "question 19" in text
    assert "question 1 " not in text
    assert preview["left_out"] + preview["messages"] == 24
    assert 0 < preview["messages"] < 10


@pytest.mark.parametrize(
    "query", [{"format": "jsonl"}, {"format": "md"}, {"format": "html"}, {"as": "claude-code"}]
)
async def test_secrets_can_be_masked_in_every_file(client: Client, query: dict[str, str]) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    body = {"text": f"my token is {secret}, remember it"}
    id = (await client.post("/sessions", body, status=201))["id"]

    whole = await exported(client, session_id=id, **query)
    masked = await exported(client, session_id=id, mask_secrets=True, **query)

    assert secret in whole.replace("\\", "")
    assert secret not in masked.replace("\\", "")
    assert "remember it" in masked


@pytest.mark.parametrize(
    ("query", "status", "why"),
    [
        ({"as": "codex"}, 422, "one `session_id`"),
        ({"as": "codex", "session_id": ["a", "b"]}, 422, "one `session_id`"),
        ({"as": "codex", "session_id": "a", "format": "md"}, 422, "no `format`"),
        ({"budget": 5}, 422, "goes with `as`"),
        ({"as": "codex", "session_id": "a", "budget": 0}, 422, "budget"),
        ({"as": "emacs", "session_id": "a"}, 422, "as"),
        ({"as": "codex", "session_id": "nowhere"}, 404, "nowhere"),
    ],
)
async def test_what_cannot_be_handed_over_is_refused_in_words(
    client: Client, query: dict[str, Any], status: int, why: str
) -> None:
    answer = await client.call("GET", "/export", params=query)

    assert answer.status_code == status
    assert why in answer.json()["detail"]


async def test_nobody_is_handed_the_conversation_of_another_profile(
    client: Client, server: Served
) -> None:
    id = await create_session(client)
    stranger = await server.client(Scope.READ, profile="other")

    file = await stranger.call("GET", "/export", params={"session_id": id, "as": "openai"})
    preview = await stranger.call("GET", f"/sessions/{id}/handover", params={"as": "openai"})

    assert (file.status_code, preview.status_code) == (404, 404)


async def test_sessions_become_a_file_with_the_tables_of_hermes(
    client: Client, tmp_path: Path
) -> None:
    id = await create_session(client)
    await client.post("/sessions", {"text": "hello"}, status=201)
    file = tmp_path / "state.db"

    async def found(sql: str, **query: Any) -> list[Any]:
        answer = await client.call("GET", "/export", params={"as": "hermes-state", **query})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/vnd.sqlite3"
        file.write_bytes(answer.content)
        with closing(sqlite3.connect(file)) as connection:
            return connection.execute(sql).fetchall()

    results = "SELECT session_id, content FROM messages WHERE role = 'tool'"
    assert await found("SELECT COUNT(*) FROM sessions") == [(2,)]
    assert await found("SELECT id FROM sessions", session_id=id) == [(id,)]
    assert await found(results) == [(id, "it rang thrice")]
    assert await found(results, tools=False) == []
    missing = await client.call(
        "GET", "/export", params={"as": "hermes-state", "session_id": "nobody"}
    )
    mixed = await client.call("GET", "/export", params={"as": "hermes-state", "format": "md"})
    assert (missing.status_code, mixed.status_code) == (404, 422)
