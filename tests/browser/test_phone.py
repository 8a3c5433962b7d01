"""The workbench in a hand: one thing at a time, and fingers."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import WRITE, Served, Visitor, eventually, settled, wait_for_reply

pytestmark = pytest.mark.timeout(300)
SMALL = """() => [...document.querySelectorAll('button, a, select, textarea')]
    .filter((each) => each.checkVisibility() && !each.closest('.markdown, .facts, .visually-hidden, .hidden-sessions'))
    .map((each) => ({ box: each.getBoundingClientRect(), name: each.outerHTML.slice(0, 120) }))
    .filter(({ box }) => box.width && box.height && (box.width < 24 || box.height < 24))
    .map(({ name }) => name)"""
FINGER = """async (row, { by, held }) => {
    const box = row.getBoundingClientRect()
    const at = { x: box.left + 120, y: box.top + 12 }
    const touch = (type, x) => row.dispatchEvent(new PointerEvent(type, {
        pointerType: 'touch', pointerId: 7, isPrimary: true, bubbles: true, clientX: x, clientY: at.y }))
    touch('pointerdown', at.x)
    if (held) return
    for (let moved = 0; Math.abs(moved) < Math.abs(by); moved += Math.sign(by) * 10) touch('pointermove', at.x + moved)
    touch('pointerup', at.x + by)
}"""


def on_phone(server: Served, visit: Visitor) -> tuple[Page, Locator]:
    page = visit(server, "/search", phone=True).page
    page.goto(server.address + "/")
    expect(page.locator(".session-row").first).to_be_visible()
    return settled(page), page.locator(".session-row")


def test_one_thing_is_shown_at_a_time(shared_demo: Served, visit: Visitor) -> None:
    page, rows = on_phone(shared_demo, visit)

    rows.nth(3).tap()

    expect(page.locator(".list")).to_have_count(0)
    expect(page.locator(".session-header h1")).to_be_visible()
    expect(page.locator(".message").first).to_be_visible()
    settled(page)
    eventually(page, "document.documentElement.scrollWidth <= innerWidth")
    eventually(page, lambda: page.evaluate(SMALL) == [])
    page.get_by_role("button", name="Show or hide the list").tap()
    expect(page.locator(".list")).to_be_visible()


def test_a_swipe_archives_and_can_be_undone(own_demo: Served, visit: Visitor) -> None:
    page, rows = on_phone(own_demo, visit)
    name = rows.nth(4).get_attribute("title")
    row = page.locator(f'.session-row[title="{name}"]')

    row.evaluate(FINGER, {"by": -140, "held": False})

    expect(row).to_have_count(0)
    page.get_by_role("button", name="Undo").tap()
    expect(row).to_have_count(1)


def test_a_short_swipe_does_nothing(own_demo: Served, visit: Visitor) -> None:
    page, rows = on_phone(own_demo, visit)
    name = rows.nth(5).get_attribute("title")
    row = page.locator(f'.session-row[title="{name}"]')

    row.evaluate(FINGER, {"by": 40, "held": False})

    expect(row).to_have_css("translate", "none")
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    expect(row).to_have_count(1)


def test_a_finger_that_stays_opens_the_menu(own_demo: Served, visit: Visitor) -> None:
    page, rows = on_phone(own_demo, visit)

    rows.nth(5).evaluate(FINGER, {"by": 0, "held": True})

    expect(page.get_by_role("button", name="Move to trash")).to_be_visible()
    page.get_by_role("button", name="Rename").tap()
    expect(page.get_by_role("textbox", name="Rename")).to_be_visible()


def test_a_chat_on_a_phone(talking: Served, visit: Visitor) -> None:
    page = visit(talking, phone=True).page
    scrim = page.get_by_role("button", name="Close the list")
    scrim.dispatch_event("click")
    page.get_by_role("textbox", name=WRITE).fill("hello")
    page.get_by_role("button", name="Send").tap()

    wait_for_reply(page, "no model was asked")
    box = page.get_by_role("textbox", name=WRITE)
    eventually(
        page, lambda: box.evaluate("box => parseFloat(getComputedStyle(box).fontSize) >= 16")
    )


@pytest.mark.parametrize(
    "path", ["/", "/usage", "/live", "/questions", "/import", "/settings", "/search?q=disk"]
)
def test_nothing_is_wider_than_the_narrowest_phone(
    shared_demo: Served, visit: Visitor, path: str
) -> None:
    page = visit(shared_demo, "/search", phone=True).page
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(shared_demo.address + path)
    expect(page.locator(".session-row, .page h1").first).to_be_visible()
    settled(page)

    eventually(page, "document.documentElement.scrollWidth === 320")
