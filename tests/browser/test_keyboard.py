"""The keyboard is enough, and focus is never lost."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sessionary import Sessionary
from tests.browser.conftest import (
    WRITE,
    Served,
    Visitor,
    eventually,
    hold,
    served,
    settled,
    wait_for_reply,
)

pytestmark = pytest.mark.timeout(300)
FRAMES_PASS = """(count) => new Promise((done) => {
    const next = (left) => (left ? requestAnimationFrame(() => next(left - 1)) : done())
    next(count)
})"""


def go_to_usage(page: Page) -> None:
    """Press the two keys that open the page of usage."""

    def pressed_in_time() -> bool:
        # The second key counts within 1.2 seconds of the first; a slow machine needs another attempt.
        page.keyboard.press("g")
        page.keyboard.press("u")
        return page.url.endswith("/usage")

    eventually(page, pressed_in_time)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_keyboard_is_enough(shared_demo: Served, visit: Visitor, theme: str) -> None:
    page = visit(shared_demo).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    expect(page.get_by_role("textbox", name=WRITE)).to_be_focused()
    page.keyboard.press("Escape")
    rows = page.locator(".session-row")
    expect(rows.first).to_be_focused()

    page.keyboard.press("j")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("j")
    expect(rows.nth(2)).to_be_focused()
    name = rows.nth(2).get_attribute("title")
    page.keyboard.press("Enter")
    expect(page.locator(".session-header h1")).to_have_text(name or "")
    settled(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".session-row:focus")).to_have_count(1)
    go_to_usage(page)
    expect(page.get_by_role("heading", name="Usage")).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()


def test_a_row_that_goes_hands_its_focus_to_the_next(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo, "/?source=discord").page
    rows = page.locator(".session-row")
    expect(rows.nth(2)).to_be_visible()
    gone, next_one = (rows.nth(place).get_attribute("title") or "" for place in (0, 1))
    rows.nth(0).focus()

    page.keyboard.press("e")

    expect(page.locator(f'.session-row[title="{gone}"]')).to_have_count(0)
    expect(page.locator(f'.session-row[title="{next_one}"]')).to_be_focused()
    page.keyboard.press("z")
    expect(page.locator(f'.session-row[title="{gone}"]')).to_have_count(1)
    expect(page.locator(f'.session-row[title="{next_one}"]')).to_be_focused()


def test_a_row_far_away_keeps_its_focus(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    row = page.locator(".session-row").nth(2)
    expect(row).to_be_visible()
    name = row.get_attribute("title") or ""
    row.focus()

    page.locator(".rows").evaluate("rows => { rows.scrollTop = 99999 }")

    expect(page.locator(f'.session-row[title="{name}"]').first).to_be_focused()
    expect(page.locator(".sticky-heading .group-heading")).to_be_visible()


def test_dialogs_give_the_focus_back(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    row = page.locator(".session-row").nth(3)
    expect(row).to_be_visible()
    row.focus()
    for key in ("r", "l", "m", "Control+k", "?"):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(row).to_be_focused()
    page.keyboard.press("Shift+F10")
    expect(page.get_by_role("button", name="Rename").last).to_be_visible()
    page.keyboard.press("Escape")
    expect(row).to_be_focused()


# Types a letter at the very moment at which an element gets the focus back.
TYPE_WHEN_FOCUSED = """() => addEventListener('focusin', (event) => event.target.dispatchEvent(
    new KeyboardEvent('keydown', { key: 'l', bubbles: true, cancelable: true })), { once: true })"""


def test_a_key_pressed_right_after_a_dialog_closed_works(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    page.locator(".session-row").nth(3).focus()
    page.keyboard.press("r")
    expect(page.get_by_role("dialog", name="Rename")).to_be_visible()

    page.evaluate(TYPE_WHEN_FOCUSED)
    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog", name="Label")).to_be_visible()


def test_a_chat_without_a_mouse(talking: Served, visit: Visitor) -> None:
    seen = visit(talking)
    page = seen.page
    seen.asks("break something")
    wait_for_reply(page, "no model was asked")

    page.keyboard.press("Escape")
    expect(page.locator(".transcript")).to_be_focused()
    page.keyboard.press("t")
    expect(page.locator(".step.failed .toggle")).to_be_visible()
    page.keyboard.press("[")
    expect(page.locator(".message.user")).to_be_focused()
    page.keyboard.press("o")
    expect(page.locator(".outline button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".message.user")).to_be_focused()
    page.keyboard.press("n")
    expect(page.get_by_role("textbox", name=WRITE)).to_be_focused()


def test_single_letters_can_be_switched_off(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo, "/settings").page
    page.get_by_label("Single-letter shortcuts").uncheck()
    page.goto(shared_demo.address)
    expect(page.locator(".session-row").first).to_be_visible()
    settled(page)
    page.locator(".session-row").first.focus()

    page.keyboard.press("j")
    page.keyboard.press("Control+k")

    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".session-row").first).to_be_focused()


def test_two_messages_typed_in_a_row_are_both_sent_and_change_nothing_else(
    talking: Served, visit: Visitor
) -> None:
    page = visit(talking).page
    changes: list[str] = []
    page.on("request", lambda asked: changes.append(_change_of(asked.method, asked.post_data)))
    box = page.get_by_role("textbox", name=WRITE)
    expect(box).to_be_focused()

    page.keyboard.type("hello from the keyboard")
    page.keyboard.press("Enter")
    page.keyboard.type("please explain more")
    expect(page).to_have_url(re.compile(r"/s/\w+"))
    expect(box).to_be_focused()
    expect(box).to_have_value("please explain more")
    page.keyboard.press("Enter")

    asked = page.locator(".message.user")
    expect(asked).to_have_count(2)
    expect(asked.nth(0)).to_contain_text("hello from the keyboard")
    expect(asked.nth(1)).to_contain_text("please explain more")
    expect(box).to_be_focused()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Pin", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )
    assert [each for each in changes if each not in ("", "draft")] == []


def _change_of(method: str, body: str | None) -> str:
    """Which field of a session a request changes; empty when it changes none."""
    return ",".join(json.loads(body or "{}")) if method == "PATCH" else ""


def test_letters_do_nothing_where_the_page_put_the_focus(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    href = page.locator(".session-row").nth(5).get_attribute("href")
    page.goto(f"{shared_demo.address}{href}")
    log = page.locator(".transcript")
    expect(log).to_be_focused()
    expect(page.locator(".message").first).to_be_visible()
    settled(page)
    title = page.locator(".session-header h1").inner_text()

    page.keyboard.type("please explain more")

    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".toast")).to_have_count(0)
    expect(page.locator(".inspector")).to_have_count(0)
    expect(log).to_be_focused()
    page.keyboard.press("PageUp")
    page.keyboard.press("r")
    expect(page.get_by_role("textbox", name="Rename")).to_have_value(title)


def test_a_click_on_a_message_does_not_make_letters_change_the_session(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    page.locator(".session-row").nth(5).click()
    expect(page.locator(".message .markdown").last).to_be_visible()
    settled(page).locator(".message .markdown").last.click()

    page.keyboard.type("explore")

    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".toast")).to_have_count(0)
    expect(page.get_by_role("button", name="Pin", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )


def test_escape_in_the_composer_of_the_home_page_goes_to_the_list(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    expect(page.locator(".session-row").first).to_be_visible()
    expect(page.get_by_role("textbox", name=WRITE)).to_be_focused()

    page.keyboard.press("Escape")
    expect(page.locator(".session-row").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".session-row").first).to_be_focused()


def test_escape_in_the_composer_stays_where_there_is_nothing_else(
    empty: Served, visit: Visitor
) -> None:
    page = visit(empty).page
    box = page.get_by_role("textbox", name=WRITE)
    expect(box).to_be_focused()
    expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()

    page.keyboard.press("Escape")

    expect(box).to_be_focused()


def test_x_selects_each_row_it_is_pressed_on(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    rows = page.locator(".session-row")
    expect(rows.nth(7)).to_be_visible()
    rows.nth(1).focus()

    page.keyboard.press("x")
    page.keyboard.press("j")
    expect(rows.nth(2)).to_be_focused()
    page.keyboard.press("x")
    chosen = page.locator(".session-row.selected")
    expect(chosen).to_have_count(2)
    page.keyboard.press("j")
    expect(rows.nth(3)).to_be_focused()
    page.keyboard.press("j")
    expect(rows.nth(4)).to_be_focused()
    page.keyboard.press("Shift+X")
    expect(chosen).to_have_count(4)
    page.keyboard.press("x")
    expect(chosen).to_have_count(3)
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)
    page.keyboard.press("Shift+ArrowDown")
    expect(chosen).to_have_count(2)
    expect(rows.nth(5)).to_be_focused()
    page.keyboard.press("Shift+ArrowDown")
    expect(chosen).to_have_count(3)
    expect(rows.nth(6)).to_be_focused()
    page.keyboard.press("Shift+ArrowUp")
    expect(chosen).to_have_count(2)
    expect(page.get_by_role("toolbar", name="Selected")).to_contain_text("2")


def _many_sessions(home: Path, count: int) -> None:
    with Sessionary(home=str(home), create=True) as client:
        for number in range(count):
            client.new_session(title=f"session {number}").append("user", f"message {number}")


def test_end_and_home_go_to_the_ends_of_the_whole_list(tmp_path: Path, visit: Visitor) -> None:
    _many_sessions(tmp_path, 420)
    with served(tmp_path) as server:
        page = visit(server).page
        newest = page.locator(".session-row").first.get_attribute("title")
        page.locator(".session-row").first.focus()

        page.keyboard.press("End")

        expect(page.locator('.session-row[title="session 0"]')).to_be_focused()
        expect(page.locator('.session-row[title="session 0"]')).to_be_in_viewport()
        page.keyboard.press("Home")
        expect(page.locator(f'.session-row[title="{newest}"]')).to_be_focused()


def test_end_and_home_go_to_the_ends_of_the_whole_transcript(
    tmp_path: Path, visit: Visitor
) -> None:
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title="Long")
        for number in range(150):
            chat.append("user", f"message {number}.")
    with served(tmp_path) as server:
        page = visit(server, f"/s/{chat.id}").page
        expect(page.locator(".message").last).to_contain_text("message 149.")
        page.locator(".transcript").focus()

        page.keyboard.press("Home")
        expect(page.locator(".message", has_text="message 0.")).to_be_focused()
        expect(page.locator(".message", has_text="message 0.")).to_be_in_viewport()
        page.keyboard.press("End")
        expect(page.locator(".message", has_text="message 149.")).to_be_focused()
        expect(page.locator(".message", has_text="message 149.")).to_be_in_viewport()


def test_home_goes_to_the_first_message_although_the_end_moves_while_it_loads(
    tmp_path: Path, visit: Visitor
) -> None:
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title="Long")
        for number in range(150):
            chat.append("user", f"message {number}.")
    with served(tmp_path) as server:
        page = visit(server, f"/s/{chat.id}").page
        expect(page.locator(".message").last).to_contain_text("message 149.")
        waiting = hold(page, "**/entries?*after=0*")
        page.locator(".transcript").focus()

        page.keyboard.press("Home")
        eventually(page, lambda: waiting)
        # A row gets its true height late, and the end comes into view again.
        page.locator(".transcript").dispatch_event("scroll")
        waiting[0].continue_()

        expect(page.locator(".message", has_text="message 0.")).to_be_focused()
        settled(page)
        expect(page.locator(".message", has_text="message 0.")).to_be_in_viewport()


def test_a_page_takes_the_focus_however_late_its_code_comes(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    waiting = hold(page, "**/assets/Usage-*.js")

    page.keyboard.press("Escape")
    expect(page.locator(".session-row").first).to_be_focused()
    go_to_usage(page)
    eventually(page, lambda: waiting)
    page.evaluate(FRAMES_PASS, 200)
    waiting[0].continue_()

    expect(page.get_by_role("heading", name="Usage")).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()
