"""The page that describes the HTTP interface: one finds an operation and reads its types, with keys alone too."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Served, Visitor, eventually, settled

pytestmark = pytest.mark.timeout(300)


def operations(page: Page) -> Locator:
    """The operations that the page lists."""
    return page.locator("details.operation")


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until an element has the focus."""

    def has_focus() -> bool:
        if wanted.evaluate("(element) => element === document.activeElement"):
            return True
        page.keyboard.press("Tab")
        return False

    eventually(page, has_focus)


def test_an_operation_is_found_and_its_types_are_shown(shared_demo: Served, visit: Visitor) -> None:
    visitor = visit(shared_demo, "/api")
    page = visitor.page
    expect(page).to_have_title("HTTP interface · Sessionary")
    expect(page.get_by_role("region", name="sessions", exact=True)).to_be_visible()
    settled(page)
    count = operations(page).count()
    assert count > 60

    page.get_by_role("searchbox", name="Filter").fill("get sessions entries")
    expect(operations(page)).to_have_count(1)
    found = operations(page)
    expect(found.locator("> summary")).to_contain_text("GET /api/v1/sessions/{session_id}/entries")
    found.locator("> summary").click()
    around = found.get_by_role("row").filter(has=page.get_by_role("rowheader", name="around"))
    expect(around).to_contain_text("Entries on both sides of this seq.")
    page_type = found.locator("details").filter(has_text="EntryPage").first
    page_type.locator("> summary").click()
    more = page_type.get_by_role("rowheader", name="more_before")
    expect(more).to_be_visible()
    expect(more.locator("xpath=..")).to_contain_text("boolean")

    page.get_by_role("searchbox", name="Filter").fill("no such operation")
    expect(operations(page)).to_have_count(0)
    page.get_by_role("searchbox", name="Filter").fill("")
    expect(operations(page)).to_have_count(count)
    assert [url for url in visitor.requests if not url.startswith(shared_demo.address)] == []
    assert visitor.complaints == []


def test_the_keyboard_is_enough_to_read_a_schema(shared_demo: Served, visit: Visitor) -> None:
    visitor = visit(shared_demo)
    page = visitor.page
    page.keyboard.press("Escape")
    expect(page.locator(".session-row").first).to_be_focused()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    tab_to(page, dialog.locator('a[href="/api"]'))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="HTTP interface")).to_be_visible()
    expect(operations(page).first).to_be_visible()

    tab_to(page, page.get_by_role("searchbox", name="Filter"))
    page.keyboard.type("count rounds")
    expect(operations(page)).to_have_count(1)
    page.keyboard.press("Tab")
    expect(operations(page).locator("> summary")).to_be_focused()
    page.keyboard.press("Enter")
    name = operations(page).locator("summary", has_text="RoundCount")
    expect(name).to_be_visible()
    tab_to(page, name)
    page.keyboard.press("Enter")

    expect(operations(page).get_by_role("rowheader", name="rounds", exact=True)).to_be_visible()
    assert visitor.complaints == []
