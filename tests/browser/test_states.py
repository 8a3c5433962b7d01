"""An error is shown where it happened, with a way to go on; the rest of the page stays."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from sessionary import Sessionary
from tests.browser.conftest import WRITE, Served, Visitor, eventually, served, settled

pytestmark = pytest.mark.timeout(300)
ARABIC = "مرحبا، هذا هو الرمز:\n\n```python\nprint('hello')\n```\n\nو `server.py` أيضا"
LONGEST = "Donaudampfschifffahrtsgesellschaftskapitän" * 2 + "smützenabzeichen"


PROBLEM = {"type": "urn:sessionary:problem:failed", "detail": "Something went wrong here."}


class Fault:
    """The server answers requests that match with an error: the first one, or all `until_ended`."""

    def __init__(
        self, page: Page, pattern: str, *, method: str = "GET", until_ended: bool = False
    ) -> None:
        self.is_over = False
        self._method = method
        self._until_ended = until_ended
        page.route(pattern, self._answer)

    def _answer(self, route: Route) -> None:
        if self.is_over or route.request.method != self._method:
            route.fallback()
            return
        self.is_over = not self._until_ended
        body = json.dumps(PROBLEM)
        route.fulfill(status=500, content_type="application/problem+json", body=body)


@pytest.mark.parametrize(
    ("path", "asked", "there"),
    [
        ("/?folder=chats", "**/api/v1/session-rows?*folder*", ".session-row"),
        ("/search?q=disk", "**/api/v1/search?*", ".hit"),
        ("/usage", "**/api/v1/usage?*", ".chart"),
        ("/live", "**/api/v1/bindings?*", ".item-list li"),
        ("/settings", "**/api/v1/upkeep", "button:text('Back up now')"),
    ],
)
def test_a_fault_is_shown_and_a_retry_helps(
    shared_demo: Served, visit: Visitor, path: str, asked: str, there: str
) -> None:
    page = visit(shared_demo, "/login").page
    # All requests until the retry: a page may load again by itself, and the error would be gone.
    fault = Fault(page, asked, until_ended=True)
    page.goto(shared_demo.address + path)

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Something went wrong here.")
    fault.is_over = True

    def retry_helped() -> bool:
        # A page that loads again by itself may replace the button, and show the last error once more.
        alert.get_by_role("button", name="Retry").evaluate_all(
            "all => all.forEach(each => each.click())"
        )
        return page.locator(there).count() > 0 and alert.count() == 0

    eventually(page, retry_helped)
    expect(page.locator(there).first).to_be_visible()


def test_a_dead_link_says_so_and_leaves_the_stream_alive(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo, "/s/nowhere").page

    expect(page.get_by_text("This session does not exist.")).to_be_visible()
    expect(page.locator(".session-header h1")).to_have_text("Not found")
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_an_address_that_nobody_could_write_says_so_too(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo, "/s/%E0%A4%A").page

    expect(page.get_by_text("This session does not exist.")).to_be_visible()


def test_a_search_that_fails_does_not_look_like_one_without_hits(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    Fault(page, "**/api/v1/search?*")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    # All at once: a slow machine would search for the first letters, and that would fail instead.
    page.keyboard.insert_text("disk")

    status = page.get_by_role("dialog").get_by_role("status")
    expect(status).to_have_text("Something went wrong here.")
    page.keyboard.type("s")
    expect(status).to_have_text("")


def test_an_undo_that_fails_says_so(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo).page
    page.locator(".session-row").nth(2).focus()
    page.keyboard.press("m")
    page.get_by_role("combobox").select_option("Website")
    page.get_by_role("button", name="Move").click()
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    # Not a GET: the list may ask for the moved session again at any moment.
    Fault(page, "**/api/v1/sessions/*", method="PATCH")

    undo.click()

    expect(page.locator(".toasts")).to_contain_text("Something went wrong here.")


def test_ages_go_on_while_nothing_happens(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo, "/login").page
    page.clock.install()
    page.goto(shared_demo.address)
    age = page.locator(".session-row", has_text="The kitchen tap").locator(".age")
    expect(age).to_have_text(re.compile(r"^\d+m$"))

    page.clock.fast_forward("05:00:00")

    expect(age).to_have_text("5h")


def test_a_login_that_is_over_leads_back_to_the_same_place(
    shared_demo: Served, visit: Visitor
) -> None:
    seen = visit(shared_demo, "/usage")
    expect(seen.page.locator(".chart")).to_be_visible()
    seen.context.clear_cookies()

    seen.page.reload()

    expect(seen.page).to_have_url(re.compile(r"/login\?next=%2Fusage$"))
    expect(seen.page.get_by_label("Password")).to_be_visible()


def test_a_server_that_is_gone_covers_nothing_and_keeps_what_was_typed(
    empty: Served, visit: Visitor
) -> None:
    seen = visit(empty)
    page = seen.page
    seen.asks("hello")
    expect(page.get_by_text("I am the demo agent").first).to_be_visible()
    empty.stop(kill=True)

    banner = page.locator(".banner")
    expect(banner).to_contain_text("The server does not answer.")

    def stands_below_banner() -> bool:
        bar, box = banner.bounding_box(), page.get_by_label("Filter titles").bounding_box()
        return bar is not None and box is not None and box["y"] >= bar["y"] + bar["height"]

    eventually(page, stands_below_banner)
    page.get_by_role("textbox", name=WRITE).fill("are you there?")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Not sent yet.")).to_be_visible()
    expect(page.get_by_role("textbox", name=WRITE)).to_have_value("are you there?")


def test_focus_that_came_by_itself_shows_with_the_first_key(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    href = page.locator(".session-row").nth(3).get_attribute("href")
    page.goto(f"{shared_demo.address}{href}")
    log = page.locator(".transcript")
    expect(log).to_be_focused()

    expect(log).to_have_css("box-shadow", "none")
    page.keyboard.press("Shift")
    # A bar at the edge, no ring around the pane.
    expect(log).to_have_css("box-shadow", re.compile(r"3px 0px 0px 0px inset$"))
    expect(log).to_have_css("outline-style", "none")


@pytest.mark.parametrize("phone", [False, True])
def test_any_script_and_any_length_has_its_place(
    tmp_path: Path, visit: Visitor, phone: bool
) -> None:
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title=LONGEST)
        chat.append("user", "x" * 500)
        id = chat.append("assistant", ARABIC).session_id
    with served(tmp_path) as server:
        page = visit(server, f"/s/{id}", phone=phone).page
        code = page.locator(".code pre")
        expect(code).to_be_visible()
        settled(page)

        expect(code).to_have_css("direction", "ltr")
        prose = page.locator(".message", has_text="مرحبا").locator("[dir=auto]").first
        eventually(page, lambda: prose.evaluate("node => node.matches(':dir(rtl)')"))
        eventually(page, "document.documentElement.scrollWidth <= innerWidth")
        log = page.locator(".transcript")
        eventually(page, lambda: log.evaluate("node => node.scrollWidth <= node.clientWidth"))
