"""`sessionary acp`: sessions of an editor, driven by the client of the protocol's own library."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.schema import (
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from sessionary import Sessionary
from sessionary.actions.sessions import edit
from tests.support.acp_editor import Editor, editor, eventually, make_home, open_gate, texts

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path / "home")


def is_waiting(home: Path, session_id: str) -> bool:
    """Whether a message waits for a turn."""
    with Sessionary(home=str(home)) as client:
        return bool(client.find(session_id).waiting())


async def ids_in_list(open_editor: Editor) -> list[str]:
    page = await open_editor.connection.list_sessions()
    return [each.session_id for each in page.sessions]


async def test_a_session_is_made_by_its_first_prompt_and_its_answer_streams(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        assert await ids_in_list(ed) == []

        answered = await ed.say(made.session_id, "hello")

        assert answered.stop_reason == "end_turn"
        assert ed.text(made.session_id) == "You said: hello"
        assert len(ed.shown("agent_message_chunk")) == 2
        page = await ed.connection.list_sessions(cwd=str(home))
        (listed,) = page.sessions
        assert (listed.session_id, listed.cwd, listed.title) == (
            made.session_id,
            str(home),
            "hello",
        )
        assert (await ed.connection.list_sessions(cwd="/elsewhere")).sessions == []
        names = {
            each["name"] for each in ed.shown("available_commands_update")[0]["availableCommands"]
        }
        assert {"status", "model", "undo"} <= names
        assert not names & {"new", "resume"}
    assert ed.process.returncode == 0
    assert texts(home, made.session_id) == ["hello", "You said: hello"]


async def test_a_session_without_a_prompt_leaves_nothing_in_the_record(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.connection.set_config_option("persona", made.session_id, "pirate")
        answered = await ed.say(made.session_id, "/status")
        assert "write something first" in ed.text()
        assert answered.stop_reason == "end_turn"

    with Sessionary(home=str(home)) as client:
        assert list(client.sessions()) == []


async def test_commands_work_in_a_session_and_those_for_chats_say_what_to_do(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "hello")
        for prompt, expected in {
            "/title A name": "This session is now called A name.",
            "/undo": "Taken back; 0 messages left. Nothing was deleted.",
            "/compact": "This conversation is short enough as it is; nothing was changed.",
            "/branch": "Fork the session with your editor, or in the workbench: both stay open.",
            "/new": "Begin a new thread in your editor: it is a session of its own.",
            "/nonsense": "You said: /nonsense",
        }.items():
            ed.forget()
            await ed.say(made.session_id, prompt)
            assert ed.text() == expected
        assert await ids_in_list(ed) == [made.session_id]
        page = await ed.connection.list_sessions()
        assert page.sessions[0].title == "A name"


async def test_tool_calls_plans_and_thoughts_are_shown_live_and_again_when_loaded(
    home: Path,
) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "edit it")
        live = [each for _, each in ed.updates if "tool" in each["sessionUpdate"]]
        assert ed.text(kind="agent_thought_chunk") == "Hm."
        assert ed.text() == "I edit.Done."
    async with editor(home) as other:
        await other.connection.load_session(cwd=str(home), session_id=made.session_id)
        again = [each for _, each in other.updates if "tool" in each["sessionUpdate"]]
        kinds = [each["sessionUpdate"] for _, each in other.updates]

    edit, edited, plan, failed = live
    assert (edit["kind"], edit["title"]) == ("edit", "edit_file: a.py")
    path = str(home / "a.py")
    diff = {"type": "diff", "path": path, "oldText": "a", "newText": "b"}
    assert edit["content"] == [diff]
    assert edit["locations"] == [{"path": path}]
    assert (edited["toolCallId"], edited["status"]) == (edit["toolCallId"], "completed")
    assert edited["content"] == [
        diff,
        {"type": "content", "content": {"type": "text", "text": "edited"}},
    ]
    # The agent gives both calls the same id; the editor gets two.
    assert plan["toolCallId"] != edit["toolCallId"]
    assert (failed["toolCallId"], failed["status"]) == (plan["toolCallId"], "failed")
    assert ed.shown("plan")[0]["entries"] == [
        {"content": "Edit", "priority": "medium", "status": "completed"},
        {"content": "Test", "priority": "medium", "status": "pending"},
    ]
    assert again == live
    assert kinds[:5] == [
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
    ]


async def test_a_resumed_session_goes_on_and_shows_nothing_again(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "one")
    async with editor(home) as ed:
        await ed.connection.resume_session(cwd=str(home), session_id=made.session_id)
        await ed.say(made.session_id, "two")

        assert ed.text() == "You said: two"
        assert ed.shown("user_message_chunk") == []
    assert texts(home, made.session_id) == ["one", "You said: one", "two", "You said: two"]


async def test_a_session_that_was_ended_goes_on_with_the_next_prompt(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "one")
        with Sessionary(home=str(home)) as client:
            client.find(made.session_id).end()
        await ed.say(made.session_id, "two")
    assert texts(home, made.session_id)[2:] == ["two", "You said: two"]


async def test_a_fork_has_the_history_and_leaves_the_session_as_it_is(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "one")
        fork = await ed.connection.fork_session(cwd=str(home), session_id=made.session_id)
        await ed.say(fork.session_id, "two")
        unborn = await ed.connection.new_session(cwd=str(home))
        twin = await ed.connection.fork_session(cwd=str(home), session_id=unborn.session_id)

        assert len({made.session_id, fork.session_id, unborn.session_id, twin.session_id}) == 4
        assert set(await ids_in_list(ed)) == {made.session_id, fork.session_id}
    async with editor(home) as other:
        await other.connection.load_session(cwd=str(home), session_id=fork.session_id)
        assert other.text() == "You said: oneYou said: two"
    assert texts(home, made.session_id) == ["one", "You said: one"]
    assert texts(home, fork.session_id) == ["one", "You said: one", "two", "You said: two"]


async def test_a_read_only_session_goes_on_in_a_copy_and_the_editor_is_told(home: Path) -> None:
    with Sessionary(home=str(home)) as client:
        old = client.session("imported")
        imported = old.append("user", "from another tool").session_id
        old.append("assistant", "indeed")
        client.store.write(edit.seal, imported, profile=client.profile).result()
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=imported)
        assert ed.text(imported) == "indeed"
        ed.forget()
        await ed.say(imported, "go on")
        await ed.say(imported, "once more")

        said = ed.text(imported)
        assert "goes on in a copy" in said
        assert said.endswith("You said: go onYou said: once more")
        copy = next(id for id in await ids_in_list(ed) if id != imported)
    assert texts(home, imported) == ["from another tool", "indeed"]
    assert texts(home, copy)[2:] == ["go on", "You said: go on", "once more", "You said: once more"]


async def test_lists_are_read_page_by_page_newest_first(home: Path) -> None:
    with Sessionary(home=str(home)) as client:
        for number in range(60):
            client.session(f"s{number:02}").append("user", f"message {number}")
    async with editor(home) as ed:
        first = await ed.connection.list_sessions()
        second = await ed.connection.list_sessions(cursor=first.next_cursor)

        found = [each.title for page in (first, second) for each in page.sessions]
        assert found == [f"message {number}" for number in reversed(range(60))]
        assert second.next_cursor is None
        # Where it was held is not known: the editor gets its own directory.
        assert first.sessions[0].cwd == str(home)
        with pytest.raises(RequestError) as caught:
            await ed.connection.list_sessions(cursor="rubbish")
        assert caught.value.code == -32602


async def test_files_and_links_of_a_prompt_are_stored_and_shown_again(home: Path) -> None:
    image = base64.b64encode(PIXEL).decode()
    blocks: list[Any] = [
        TextContentBlock(type="text", text="Look at"),
        ImageContentBlock(type="image", data=image, mime_type="image/png", uri="file:///x/dot.png"),
        ResourceContentBlock(type="resource_link", name="a.py", uri="file:///x/a.py"),
        EmbeddedResourceContentBlock(
            type="resource",
            resource=TextResourceContents(uri="file:///x/b.py", text="```\nb = 2\n"),
        ),
    ]
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.connection.prompt(session_id=made.session_id, prompt=blocks)
        assert "b = 2" in ed.text()
        bad = ImageContentBlock(type="image", data="%%%", mime_type="image/png")
        with pytest.raises(RequestError, match="cannot be read"):
            await ed.connection.prompt(session_id=made.session_id, prompt=[bad])
        with pytest.raises(RequestError, match="empty"):
            await ed.connection.prompt(session_id=made.session_id, prompt=[])
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=made.session_id)
        content = [each["content"] for each in ed.shown("user_message_chunk")]

    text, picture, link, resource = content
    assert text == {"type": "text", "text": "Look at"}
    assert (picture["type"], picture["data"]) == ("image", image)
    assert link == {"type": "resource_link", "name": "a.py", "uri": "file:///x/a.py"}
    assert resource["resource"] == {"uri": "file:///x/b.py", "text": "```\nb = 2\n"}


async def test_agent_model_and_persona_are_options_and_change_what_answers(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        assert made.modes is not None
        assert made.modes.current_mode_id == "own"
        options = {each.id: each for each in made.config_options or []}
        assert set(options) == {"agent", "persona"}  # the function picks its model itself

        await ed.connection.set_session_mode(made.session_id, "other")
        set_model = await ed.connection.set_config_option("model", made.session_id, "large")
        current = {each.id: each.current_value for each in set_model.config_options}
        assert current == {"agent": "other", "model": "large", "persona": "none"}
        await ed.say(made.session_id, "hello")
        assert "I am the demo agent" in ed.text()

        await ed.say(made.session_id, "/agent own")
        changed = await ed.until(lambda: ed.shown("current_mode_update"))
        assert changed[-1]["currentModeId"] == "own"
        ed.forget()
        await ed.say(made.session_id, "hello")
        assert ed.text() == "You said: hello"
        with pytest.raises(RequestError, match="There is no agent 'nobody'"):
            await ed.connection.set_session_mode(made.session_id, "nobody")
        with pytest.raises(RequestError, match="no option"):
            await ed.connection.set_config_option("colour", made.session_id, "red")


async def test_a_named_agent_answers_in_the_sessions_that_the_editor_begins(home: Path) -> None:
    async with editor(home, "--agent", "other") as ed:
        made = await ed.connection.new_session(cwd=str(home))
        assert made.modes is not None
        assert made.modes.current_mode_id == "other"
        await ed.say(made.session_id, "hello")
        assert "I am the demo agent" in ed.text()


async def test_half_a_character_does_not_make_a_message_unreadable(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        block = {"type": "text", "text": "\ud83d half, \U0001f600 whole"}
        prompt = {"sessionId": made.session_id, "prompt": [block]}
        await ed.connection._conn.send_request("session/prompt", prompt)
        assert ed.text() == "You said: \ufffd half, \U0001f600 whole"


async def test_a_failed_turn_is_an_error_with_its_reason_and_can_be_asked_again(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        for prompt in ("fail", "/retry"):
            with pytest.raises(RequestError, match="no power") as caught:
                await ed.say(made.session_id, prompt)
            assert caught.value.code == -32603
        assert ed.text().startswith("I begin")


async def test_cancel_stops_the_turn_and_takes_back_the_prompts_that_wait(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        running = asyncio.create_task(ed.say(made.session_id, "count"))
        await ed.until(lambda: "part 1. part " in ed.text())
        waiting = asyncio.create_task(ed.say(made.session_id, "and then?"))
        await eventually(lambda: is_waiting(home, made.session_id))
        await ed.connection.cancel(session_id=made.session_id)
        assert (await running).stop_reason == "cancelled"
        assert (await waiting).stop_reason == "cancelled"
        await open_gate(home)
        assert (await ed.say(made.session_id, "hello")).stop_reason == "end_turn"
    assert "and then?" not in texts(home, made.session_id)


async def test_what_another_editor_does_in_a_session_is_shown(home: Path) -> None:
    async with editor(home) as ada, editor(home) as bob:
        made = await ada.connection.new_session(cwd=str(home))
        await ada.say(made.session_id, "one")
        await bob.connection.load_session(cwd=str(home), session_id=made.session_id)
        bob.forget()
        counting = asyncio.create_task(ada.say(made.session_id, "count"))
        await bob.until(lambda: "part 1. " in bob.text())
        waiting = asyncio.create_task(bob.say(made.session_id, "two"))
        await ada.until(lambda: "part 1. part " in ada.text())
        await open_gate(home)

        assert (await counting).stop_reason == "end_turn"
        assert (await waiting).stop_reason == "end_turn"
        await ada.until(lambda: "You said: two" in ada.text())

        whole = "part 0. part 1. part 2. part 3. part 4. "
        assert bob.text() == f"{whole}You said: two"
        assert bob.text(kind="user_message_chunk") == "count"
        assert ada.text() == f"You said: one{whole}You said: two"
        assert ada.text(kind="user_message_chunk") == "two"


async def test_closed_and_deleted_sessions_are_not_open_any_more(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        running = asyncio.create_task(ed.say(made.session_id, "count"))
        await ed.until(lambda: "part 1. part " in ed.text())
        await ed.connection.close_session(made.session_id)
        assert (await running).stop_reason == "cancelled"

        await ed.connection.load_session(cwd=str(home), session_id=made.session_id)
        await ed.connection._conn.send_request("session/delete", {"sessionId": made.session_id})
        assert await ids_in_list(ed) == []
        with pytest.raises(RequestError, match="in the trash"):
            await ed.connection.load_session(cwd=str(home), session_id=made.session_id)


async def test_mcp_servers_that_are_not_used_are_told(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = McpServerStdio(name="files", command="files", args=[], env=[])
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home), mcp_servers=[server])
        await ed.say(made.session_id, "hello")
    assert (
        "the agent own does not use the MCP servers of the editor: files" in capfd.readouterr().err
    )
