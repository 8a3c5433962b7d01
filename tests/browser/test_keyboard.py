"""The keyboard is enough, and focus is never lost."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WRITE, Served, Visitor

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_keyboard_is_enough(lived_in: Served, visit: Visitor, theme: str) -> None:
    page = visit(lived_in).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    expect(page.locator(".item").first).to_be_visible()
    page.keyboard.press("Escape")

    page.keyboard.press("j")
    expect(page.locator(".item:focus")).to_have_count(1)
    first = page.locator(".item:focus").get_attribute("title") or ""
    page.keyboard.press("j")
    expect(page.locator(".item:focus")).not_to_have_attribute("title", first)
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
    expect(page.get_by_role("main")).to_be_focused()


def test_a_row_that_goes_hands_its_focus_to_the_next(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in, "/?source=discord").page
    rows = page.locator(".item")
    expect(rows.nth(2)).to_be_visible()
    gone, next_one = (rows.nth(place).get_attribute("title") or "" for place in (0, 1))
    rows.nth(0).focus()

    page.keyboard.press("e")

    expect(page.locator(f'.item[title="{gone}"]')).to_have_count(0)
    expect(page.locator(f'.item[title="{next_one}"]')).to_be_focused()
    page.keyboard.press("z")
    expect(page.locator(f'.item[title="{gone}"]')).to_have_count(1)
    expect(page.locator(f'.item[title="{next_one}"]')).to_be_focused()


def test_a_row_far_away_keeps_its_focus(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page
    row = page.locator(".item").nth(2)
    expect(row).to_be_visible()
    name = row.get_attribute("title") or ""
    row.focus()

    page.locator(".rows").evaluate("rows => { rows.scrollTop = 99999 }")

    expect(page.locator(f'.item[title="{name}"]').first).to_be_focused()
    expect(page.locator(".stuck .heading")).to_be_visible()


def test_dialogs_give_the_focus_back(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page
    row = page.locator(".item").nth(3)
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


def test_a_chat_without_a_mouse(talking: Served, visit: Visitor) -> None:
    seen = visit(talking)
    page = seen.page
    seen.asks("break something")
    expect(page.locator(".message.assistant")).to_contain_text("no model was asked")

    page.keyboard.press("Escape")
    expect(page.locator(".log")).to_be_focused()
    page.keyboard.press("t")
    expect(page.locator(".step.failed .fold")).to_be_visible()
    page.keyboard.press("[")
    expect(page.locator(".message.user")).to_be_focused()
    page.keyboard.press("o")
    expect(page.locator(".outline button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".message.user")).to_be_focused()
    page.keyboard.press("n")
    expect(page.get_by_role("textbox", name=WRITE)).to_be_focused()


def test_single_letters_can_be_switched_off(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in, "/settings").page
    page.get_by_label("Single-letter shortcuts").uncheck()
    page.goto(lived_in.address)
    expect(page.locator(".item").first).to_be_visible()
    page.locator(".item").first.focus()

    page.keyboard.press("j")
    page.keyboard.press("Control+k")

    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".item").first).to_be_focused()
