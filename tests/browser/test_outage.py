"""The server goes away and comes back: one notice says so, and nothing is sent twice."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import CONTROLLED, WRITE, Served, Visitor, settled
from tests.browser.wire import Wire

pytestmark = pytest.mark.timeout(300)
BANNER = re.compile(r"The server does not answer\. Retrying")
NOT_YET = "Not sent yet."


def test_a_message_that_failed_goes_out_when_the_server_is_back_and_loses_its_mark(
    wired: tuple[Served, Wire], visit: Visitor
) -> None:
    server, wire = wired
    seen = visit(server)
    page = seen.page
    seen.asks("hello")
    expect(page.locator(".message.assistant")).to_have_count(1)

    wire.cut()
    seen.says("are you there?")
    expect(page.get_by_text(NOT_YET)).to_be_visible()
    wire.mend()

    expect(page.locator(".message.user", has_text="are you there?")).to_be_visible()
    expect(page.locator(".message.assistant")).to_have_count(2)
    expect(page.get_by_text(NOT_YET)).to_have_count(0)
    expect(page.get_by_text("Not sent")).to_have_count(0)
    expect(page.get_by_role("textbox", name=WRITE)).to_have_value("")
    settled(page)
    expect(page.locator(".message.user", has_text="are you there?")).to_have_count(1)


def test_a_message_that_arrived_although_its_answer_was_lost_is_there_once(
    wired: tuple[Served, Wire], visit: Visitor
) -> None:
    server, wire = wired
    seen = visit(server)
    page = seen.page
    seen.asks("hello")
    expect(page.locator(".message.assistant")).to_have_count(1)

    def deliver_and_lose_the_answer(route: Route) -> None:
        route.fetch()
        wire.cut()
        route.abort()

    page.route("**/turns", deliver_and_lose_the_answer, times=1)
    seen.says("only once")
    expect(page.get_by_text(NOT_YET)).to_be_visible()
    wire.mend()

    expect(page.get_by_text(NOT_YET)).to_have_count(0)
    expect(page.get_by_role("textbox", name=WRITE)).to_have_value("")
    expect(page.locator(".message.assistant")).to_have_count(2)
    settled(page)
    expect(page.locator(".message.user", has_text="only once")).to_have_count(1)


def test_words_that_were_changed_after_the_failure_wait_for_their_author(
    wired: tuple[Served, Wire], visit: Visitor
) -> None:
    server, wire = wired
    seen = visit(server)
    page = seen.page
    seen.asks("hello")
    expect(page.locator(".message.assistant")).to_have_count(1)
    wire.cut()
    seen.says("draft")
    expect(page.get_by_text(NOT_YET)).to_be_visible()

    page.get_by_role("textbox", name=WRITE).fill("draft, but better")
    wire.mend()

    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_role("textbox", name=WRITE)).to_have_value("draft, but better")
    expect(page.get_by_text("Not sent")).to_have_count(0)
    settled(page)
    expect(page.locator(".message.user", has_text="draft")).to_have_count(0)


def test_one_outage_has_one_notice_and_everything_comes_back(
    wired: tuple[Served, Wire], visit: Visitor
) -> None:
    server, wire = wired
    seen = visit(server)
    page = seen.page
    seen.asks("hello, you")
    expect(page.locator(".message.assistant")).to_have_count(1)
    page.evaluate(CONTROLLED)

    wire.cut()
    page.reload()

    expect(page.get_by_text(BANNER)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    wire.mend()
    expect(page.locator(".message.user")).to_have_text(re.compile("hello, you"))
    expect(page.locator(".session-row")).to_have_count(1)
    expect(page.get_by_text(BANNER)).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_an_action_that_fails_for_several_sessions_is_reported_once(
    wired: tuple[Served, Wire], visit: Visitor
) -> None:
    server, wire = wired
    seen = visit(server)
    page = seen.page
    for text in ("one", "two"):
        page.goto(server.address)
        seen.asks(text)
        expect(page.locator(".message.assistant")).to_have_count(1)
    items = page.locator(".session-row")
    expect(items).to_have_count(2)
    settled(page)
    items.nth(0).click(modifiers=["Control"])
    items.nth(1).click(modifiers=["Control"])
    expect(page.locator(".session-row.selected")).to_have_count(2)

    wire.cut()
    page.get_by_role("toolbar").get_by_role("button", name="Archive").click()

    expect(page.locator(".toast")).to_have_text(re.compile("2 sessions: The server does not"))
    expect(items).to_have_count(2)
