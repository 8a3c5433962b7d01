"""A person's day at the workbench."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Served, Visitor, start

pytestmark = pytest.mark.timeout(300)
MOST_REQUESTS = 12
WRITE = "Write a message"


def test_an_empty_store_says_what_to_do(empty: Served, visit: Visitor) -> None:
    page = visit(empty).page

    expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    expect(page.get_by_role("link", name="Import what you have")).to_be_visible()
    expect(page.get_by_role("textbox", name=WRITE)).to_be_focused()


def test_the_first_load_is_light_and_asks_nobody_else(lived_in: Served, visit: Visitor) -> None:
    seen = visit(lived_in)
    expect(seen.page.locator(".item").first).to_be_visible()
    expect(seen.page.get_by_text("live", exact=True)).to_be_visible()

    asked = [url for url in seen.requests if "/login" not in url]

    assert len(asked) <= MOST_REQUESTS, asked
    assert [url for url in seen.requests if not url.startswith(lived_in.address)] == []


def test_a_message_deep_in_an_old_session_is_found_and_landed_on(
    lived_in: Served, visit: Visitor
) -> None:
    page = visit(lived_in).page
    expect(page.locator(".item").first).to_be_visible()

    page.keyboard.press("Control+k")
    page.keyboard.type("Chana saag cumin")
    expect(page.locator(".option .snippet mark").first).to_be_visible()
    option = page.locator(".option", has=page.locator(".snippet")).first
    option.click()

    expect(page).to_have_url(re.compile(r"/s/\w+\?q=.*#m\d+$"))
    target = page.locator(".message.target")
    expect(target).to_be_in_viewport()
    expect(target.locator("mark").first).to_be_visible()


def test_what_is_organised_can_be_undone(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page
    first = page.locator(".item").nth(4)
    first.click()
    title = page.locator(".head h1")
    name = title.inner_text()

    page.locator(".log").focus()
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Rename").fill(f"{name} renamed")
    page.keyboard.press("Enter")
    expect(title).to_have_text(f"{name} renamed")

    page.keyboard.press("e")
    expect(page.locator(".item", has_text=f"{name} renamed")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".item", has_text=f"{name} renamed")).to_have_count(1)

    page.locator(".log").focus()
    page.keyboard.press("p")
    pinned = page.locator(".slot", has_text="Pinned").locator("xpath=following-sibling::*[1]")
    expect(pinned).to_contain_text(f"{name} renamed")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )


def test_many_are_trashed_at_once_and_come_back(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in, "/?source=telegram").page
    rows = page.locator(".item")
    expect(rows.first).to_be_visible()
    names = [rows.nth(place).get_attribute("title") for place in range(3)]
    for place in range(3):
        rows.nth(place).click(modifiers=["Control"])
    expect(page.get_by_text("3 selected")).to_be_visible()

    page.get_by_role("toolbar").get_by_role("button", name="Move to trash").click()
    expect(page.get_by_text("3 sessions moved to trash")).to_be_visible()
    expect(page.locator(f'.item[title="{names[0]}"]')).to_have_count(0)

    page.get_by_role("button", name="Undo").click()
    for name in names:
        expect(page.locator(f'.item[title="{name}"]')).to_have_count(1)


def test_a_reply_goes_on_through_a_reload(empty: Served, visit: Visitor) -> None:
    page = visit(empty).page
    page.get_by_role("textbox", name=WRITE).fill("Write a long answer")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/s/\w+"))
    expect(page.locator(".live .md")).to_contain_text("How a message")

    page.reload()

    expect(page.locator(".message.user")).to_contain_text("Write a long answer")
    expect(page.locator(".message.assistant")).to_contain_text("no model was asked")
    expect(page.locator(".live")).to_have_count(0)
    expect(page.locator(".message.assistant table")).to_be_visible()
    whole = page.locator(".message.assistant").inner_text()
    page.reload()
    expect(page.locator(".message.assistant")).to_have_text(whole, use_inner_text=True)


def test_two_windows_see_the_same(empty: Served, visit: Visitor) -> None:
    one = visit(empty).page
    one.get_by_role("textbox", name=WRITE).fill("hello")
    one.keyboard.press("Enter")
    expect(one.locator(".message.assistant")).to_contain_text("demo agent")
    two = visit(empty, one.url.removeprefix(empty.address)).page
    expect(two.locator(".message.assistant")).to_have_count(1)

    one.get_by_role("textbox", name=WRITE).fill("list the files")
    one.keyboard.press("Enter")

    expect(two.locator(".message.user")).to_have_count(2)
    expect(two.locator(".message.assistant").nth(1)).to_contain_text("two files and a folder")


def test_a_send_that_fails_keeps_the_text(empty: Served, visit: Visitor) -> None:
    seen = visit(empty)
    page = seen.page
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


def test_a_draft_is_there_in_another_browser(empty: Served, visit: Visitor) -> None:
    one = visit(empty).page
    one.get_by_role("textbox", name=WRITE).fill("hello")
    one.keyboard.press("Enter")
    expect(one.locator(".message.assistant")).to_be_visible()
    with one.expect_response(lambda answer: answer.request.method == "PATCH"):
        one.get_by_role("textbox", name=WRITE).fill("half a thought")

    two = visit(empty, one.url.removeprefix(empty.address)).page

    expect(two.get_by_role("textbox", name=WRITE)).to_have_value("half a thought")


def test_a_server_that_dies_in_a_reply_is_survived(empty: Served, visit: Visitor) -> None:
    page = visit(empty).page
    page.get_by_role("textbox", name=WRITE).fill("Write a long answer")
    page.keyboard.press("Enter")
    expect(page.locator(".live .md")).to_contain_text("A turn begins")
    port = int(empty.address.rpartition(":")[2])
    empty.stop(kill=True)
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    expect(page.locator(".message.user")).to_contain_text("Write a long answer")

    again = start(empty.home, port)
    try:
        page.get_by_role("button", name="Retry now").click()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.get_by_text("Interrupted at")).to_be_visible(timeout=60_000)
        expect(page.locator(".message.user")).to_have_count(1)
        page.get_by_role("button", name="Retry", exact=True).click()
        expect(page.locator(".message.assistant").last).to_contain_text("no model was asked")
    finally:
        again.stop()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_keyboard_is_enough(lived_in: Served, visit: Visitor, theme: str) -> None:
    page = visit(lived_in).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    expect(page.locator(".item").first).to_be_visible()
    page.keyboard.press("Escape")

    page.keyboard.press("j")
    expect(page.locator(".item:focus")).to_have_count(1)
    page.keyboard.press("j")
    name = page.locator(".item:focus").get_attribute("title")
    page.keyboard.press("Enter")
    expect(page.locator(".head h1")).to_have_text(name or "")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".item:focus")).to_have_count(1)
    page.keyboard.press("g")
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="Usage")).to_be_visible()


def test_older_messages_come_without_a_jump(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in, "/").page
    found = page.evaluate(
        """async () => {
        const list = await (await fetch('/api/v1/sessions?limit=200')).json()
        return list.items.sort((a, b) => b.message_count - a.message_count)[0]
    }"""
    )
    assert found["message_count"] > 200
    page.goto(f"{lived_in.address}/s/{found['id']}")
    expect(page.locator(".round").last).to_be_in_viewport()
    before = page.locator(".round").count()

    page.locator(".log").evaluate("log => { log.scrollTop = 300 }")

    expect(page.locator(".round")).not_to_have_count(before)
    assert page.locator(".log").evaluate("log => log.scrollTop") > 300


def test_on_a_phone_one_thing_is_shown_at_a_time(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in, "/search", phone=True).page
    page.goto(lived_in.address + "/")
    expect(page.locator(".item").first).to_be_visible()

    page.locator(".item").nth(3).tap()

    expect(page.locator(".list")).to_have_count(0)
    expect(page.locator(".head h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Show or hide the list").tap()
    expect(page.locator(".list")).to_be_visible()
