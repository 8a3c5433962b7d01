"""Talking with the agent, whatever happens meanwhile."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import expect

from sessionary import Sessionary
from sessionary.model.source import Source
from tests.browser.conftest import (
    WRITE,
    GatedAgent,
    Served,
    Visitor,
    behind_wire,
    install_gated_agent,
    served,
    settled,
    start,
    wait_for_reply,
)
from tests.browser.test_kept import is_draft

pytestmark = pytest.mark.timeout(300)
# Long enough for a busy machine to renew the lease in time, and short to wait for.
LEASE_SECONDS = 10


def test_a_reply_goes_on_through_a_reload(gated: GatedAgent, visit: Visitor) -> None:
    seen = visit(gated.server)
    page = seen.page
    seen.asks("Write a long answer")
    expect(page.locator(".live-reply .markdown")).to_contain_text("How a message")

    page.reload()

    expect(page.locator(".message.user")).to_contain_text("Write a long answer")
    expect(page.locator(".live-reply .markdown")).to_contain_text("How a message")
    gated.finish()
    wait_for_reply(page, "That was all.")
    expect(page.locator(".message.assistant table")).to_be_visible()
    whole = page.locator(".message.assistant .markdown").inner_text()
    page.reload()
    expect(page.locator(".message.assistant .markdown")).to_have_text(whole, use_inner_text=True)


def test_a_network_that_goes_and_comes_back_loses_nothing(
    gated: GatedAgent, visit: Visitor
) -> None:
    with behind_wire(gated.server) as (server, wire):
        seen = visit(server)
        page = seen.page
        seen.asks("Write a long answer")
        expect(page.locator(".live-reply .markdown")).to_contain_text("How a message")

        wire.cut()
        expect(page.get_by_text("The server does not answer")).to_be_visible()
        gated.finish()
        page.get_by_role("textbox", name=WRITE).fill("typed in the dark")
        expect(page.get_by_text("your text is kept in this browser")).to_be_visible()
        page.get_by_role("button", name="Retry now").click()
        wire.mend()

        expect(page.get_by_text("live", exact=True)).to_be_visible()
        wait_for_reply(page, "That was all.")
        expect(page.get_by_role("textbox", name=WRITE)).to_have_value("typed in the dark")
        came_back = page.locator(".message.assistant .markdown").inner_text()
        page.reload()
        expect(page.locator(".message.assistant .markdown")).to_have_text(
            came_back, use_inner_text=True
        )
        expect(page.get_by_role("textbox", name=WRITE)).to_have_value("typed in the dark")


def test_a_new_chat_can_be_written_to_while_its_details_cannot_be_loaded(
    talking: Served, visit: Visitor
) -> None:
    page = visit(talking).page
    details = re.compile(r"/api/v1/sessions/\w{26}$")
    page.route(details, lambda route: route.abort())
    box = page.get_by_role("textbox", name=WRITE)
    with page.expect_event("requestfailed", lambda request: bool(details.search(request.url))):
        box.fill("hello there")
        page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/s/"))
    expect(page.locator(".transcript").get_by_role("button", name="Retry")).to_be_visible()

    box.fill("and this")

    expect(box).to_have_value("and this")
    expect(box).to_be_editable()


def test_a_send_that_fails_keeps_the_text_and_is_sent_once(talking: Served, visit: Visitor) -> None:
    page = visit(talking).page
    box = page.get_by_role("textbox", name=WRITE)
    box.fill("hello there")
    page.route("**/api/v1/sessions", lambda route: route.abort())
    page.keyboard.press("Enter")

    expect(page.get_by_role("alert")).to_contain_text("Not sent")
    expect(box).to_have_value("hello there")

    page.unroute("**/api/v1/sessions")
    page.get_by_role("button", name="Retry").click()
    expect(page).to_have_url(re.compile(r"/s/\w+"))
    expect(page.locator(".message.user")).to_have_count(1)


def test_details_that_cannot_be_loaded_after_a_message_was_sent_are_reported(
    talking: Served, visit: Visitor
) -> None:
    seen = visit(talking)
    page = seen.page
    seen.asks("hello")
    wait_for_reply(page, "no model was asked")
    settled(page)
    details = re.compile(r"/api/v1/sessions/\w{26}$")
    page.route(details, lambda route: route.abort())

    with page.expect_event("requestfailed", lambda request: bool(details.search(request.url))):
        seen.says("list the files")

    expect(page.locator(".toast").first).to_contain_text("The server does not answer.")
    expect(page.locator(".message.user").nth(1)).to_contain_text("list the files")
    expect(page.locator(".message.assistant[id]").nth(1)).to_contain_text("two files")


def test_a_draft_is_there_in_another_browser(talking: Served, visit: Visitor) -> None:
    seen = visit(talking)
    one = seen.page
    seen.asks("hello")
    wait_for_reply(one, "no model was asked")
    with one.expect_response(is_draft):
        one.get_by_role("textbox", name=WRITE).fill("half a thought")

    two = visit(talking, one.url.removeprefix(talking.address)).page

    expect(two.get_by_role("textbox", name=WRITE)).to_have_value("half a thought")


def test_what_waits_can_be_changed_and_taken_back(gated: GatedAgent, visit: Visitor) -> None:
    seen = visit(gated.server)
    page = seen.page
    seen.asks("Write a long answer")
    expect(page.locator(".live-reply .markdown")).to_contain_text("How a message")
    waiting = page.get_by_role("list", name="Queued messages").get_by_role("listitem")
    seen.says("first of two")
    expect(waiting).to_have_count(1)
    seen.says("second of two")
    expect(waiting).to_have_count(2)

    waiting.nth(0).get_by_role("button", name="Edit queued message").click()
    page.get_by_role("textbox", name="Edit queued message").fill("changed my mind")
    page.get_by_role("button", name="Apply").click()
    expect(waiting.nth(0)).to_contain_text("changed my mind")
    waiting.nth(1).get_by_role("button", name="Remove queued message").click()
    expect(waiting).to_have_count(1)
    gated.finish()

    expect(page.locator(".message.user")).to_have_count(2)
    expect(page.locator(".message.user").nth(1)).to_contain_text("changed my mind")


def test_a_reply_can_be_stopped_and_its_text_stays(gated: GatedAgent, visit: Visitor) -> None:
    seen = visit(gated.server)
    page = seen.page
    seen.asks("Write a long answer")
    expect(page.locator(".live-reply .markdown")).to_contain_text("How a message")

    page.keyboard.press("Control+.")

    wait_for_reply(page, "interrupted")
    expect(page.locator(".message.assistant")).to_contain_text("How a message")


def test_an_edited_message_leaves_its_old_version_reachable(
    talking: Served, visit: Visitor
) -> None:
    seen = visit(talking)
    page = seen.page
    seen.asks("hello from Ada")
    wait_for_reply(page, "no model was asked")
    page.locator(".message.user").hover()
    page.get_by_role("button", name="Edit and resend").click()
    seen.says("hello from Grace")
    expect(page.locator(".message.user")).to_contain_text("Grace")
    versions = page.get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/2")

    versions.get_by_role("button", name="Previous version").click()
    expect(page.locator(".message.user")).to_contain_text("Ada")
    expect(page).to_have_url(re.compile(r"\?branch=\d+"))
    page.reload()
    expect(page.locator(".message.user")).to_contain_text("Ada")
    expect(versions).to_contain_text("1/2")
    page.get_by_role("button", name="Continue from here in a copy").click()

    expect(page).not_to_have_url(re.compile("branch="))
    expect(page.locator(".message.user")).to_contain_text("Ada")
    expect(page.get_by_role("textbox", name=WRITE)).to_be_visible()


def test_files_go_with_a_message(talking: Served, visit: Visitor, tmp_path: Path) -> None:
    seen = visit(talking)
    page = seen.page
    (tmp_path / "notes.txt").write_text("three apples")
    page.locator("input[type=file]").set_input_files(tmp_path / "notes.txt")
    chips = page.get_by_role("list", name="Attached files").get_by_role("listitem")
    expect(chips).to_contain_text("12 B")
    page.get_by_role("textbox", name=WRITE).focus()
    page.evaluate(PASTE)
    expect(chips).to_have_count(2)
    page.locator(".composer").evaluate(DROP)
    expect(chips).to_have_count(3)
    page.get_by_role("button", name="Remove dropped.md").click()
    expect(chips).to_have_count(2)
    expect(page.locator(".upload progress")).to_have_count(0)

    seen.asks("hello, look at these")

    asked = page.locator(".message.user")
    expect(asked).to_contain_text("hello, look at these")
    expect(asked.get_by_role("link", name="notes.txt")).to_be_visible()
    picture = asked.get_by_role("img", name="dot.png")
    expect(picture).to_be_visible()
    expect(picture).to_have_js_property("naturalWidth", 2)
    with page.expect_download() as kept:
        asked.get_by_role("link", name="notes.txt").click()
    assert Path(kept.value.path()).read_text() == "three apples"


PASTE = """async () => {
    const canvas = Object.assign(document.createElement('canvas'), { width: 2, height: 2 })
    const blob = await new Promise((done) => canvas.toBlob(done))
    const carried = new DataTransfer()
    carried.items.add(new File([blob], 'dot.png', { type: 'image/png' }))
    const event = new ClipboardEvent('paste', { clipboardData: carried, bubbles: true })
    document.activeElement.dispatchEvent(event)
}"""
DROP = """(form) => {
    const carried = new DataTransfer()
    carried.items.add(new File(['# hi'], 'dropped.md', { type: 'text/markdown' }))
    form.dispatchEvent(new DragEvent('drop', { dataTransfer: carried, bubbles: true }))
}"""


def test_a_server_that_dies_in_a_reply_is_survived(tmp_path: Path, visit: Visitor) -> None:
    gate = install_gated_agent(tmp_path)
    with (tmp_path / "sessionary.toml").open("a") as settings:
        settings.write(f"[engine]\nlease_seconds = {LEASE_SECONDS}\n")
    agent = GatedAgent(start(tmp_path), gate)
    seen = visit(agent.server)
    page = seen.page
    seen.asks("Write a long answer")
    expect(page.locator(".live-reply .markdown")).to_contain_text("A turn begins")
    port = int(agent.server.address.rpartition(":")[2])
    agent.server.stop(kill=True)
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    expect(page.locator(".message.user")).to_contain_text("Write a long answer")

    again = start(tmp_path, port)
    try:
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        # The turn of the dead server is given up when its lease has expired.
        expect(page.get_by_text("Interrupted at")).to_be_visible(timeout=150_000)
        expect(page.locator(".message.user")).to_have_count(1)
        agent.finish()
        page.get_by_role("button", name="Retry", exact=True).click()
        expect(page.locator(".message.assistant").last).to_contain_text("That was all.")
    finally:
        again.stop()


@pytest.mark.parametrize("platform", ["telegram", "api", "web"])
@pytest.mark.parametrize("steps", [0, 1])
def test_a_broken_turn_can_be_tried_again_wherever_its_session_came_from(
    tmp_path: Path, visit: Visitor, platform: str, steps: int
) -> None:
    call = {"type": "tool_call", "id": "1", "name": "bash", "arguments": {"command": "ls"}}
    result = {"type": "tool_result", "call_id": "1", "content": "nothing"}
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(Source(platform, chat_id="7"), title="broken")
        with suppress(ValueError), chat.turn("list the files") as turn:
            for _ in range(steps):
                turn.append("assistant", [call])
                turn.append("tool", [result])
            raise ValueError("the model is away")
        id = chat.id
    with served(tmp_path) as server:
        page = visit(server, f"/s/{id}").page
        expect(page.get_by_text("Interrupted at")).to_be_visible()

        page.get_by_role("button", name="Retry", exact=True).click()

        expect(page.locator(".message.assistant").last).to_contain_text("two files and a folder")
        expect(page.get_by_text("Interrupted at")).to_have_count(0)
        expect(page.locator(".message.user")).to_have_count(1)


def test_no_turn_of_a_session_that_is_read_only_is_tried_again(
    tmp_path: Path, visit: Visitor
) -> None:
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title="over")
        with suppress(ValueError), chat.turn("hello"):
            raise ValueError("the model is away")
        chat.end()
        id = chat.id
    with served(tmp_path) as server:
        page = visit(server, f"/s/{id}").page
        expect(page.get_by_role("button", name="Continue in a copy")).to_be_visible()

        expect(page.get_by_role("button", name="Retry", exact=True)).to_have_count(0)


def test_a_command_is_answered_and_leads_where_it_says(talking: Served, visit: Visitor) -> None:
    seen = visit(talking)
    page = seen.page
    seen.asks("hello")
    wait_for_reply(page, "no model was asked")
    before = page.url

    seen.says("/status")
    expect(page.locator(".notice.answer")).to_contain_text("No turn is running.")
    expect(page.locator(".message.user")).to_have_count(1)
    seen.says("/branch Another way")
    expect(page.locator(".session-header h1")).to_have_text("Another way")
    expect(page).not_to_have_url(before)
    seen.says("/new")

    expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    expect(page.locator(".toast", has_text="Your next message begins")).to_be_visible()
