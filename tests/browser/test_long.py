"""A session longer than any window of it, and more sessions at once than anyone reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sessionary import Sessionary
from sessionary.actions.sessions import append
from sessionary.clock import Moment
from sessionary.model.message import message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store.database import Tx
from tests.browser.conftest import Served, Visitor, served, settled, wait_for_reply

pytestmark = pytest.mark.timeout(300)
MESSAGES = 410
SESSIONS = 400
# The page collects what arrives for this long before it is drawn again.
RENDER_MS = 50
# How often the page is drawn again, not how much of it, and when for the first and for the last time.
WATCH = """(where) => {
    window.drawn = { times: 0, first: 0, last: 0 }
    const note = () => {
        drawn.last = performance.now()
        drawn.first ||= drawn.last
        drawn.times++
    }
    const wish = { subtree: true, childList: true, attributes: true, attributeFilter: ['style'] }
    new MutationObserver(note).observe(document.querySelector(where), wish)
}"""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """A server with one session whose messages all have one word in common."""
    home = tmp_path_factory.mktemp("long")
    path = write_long(home)
    with served(home) as server:
        yield server, path


def write_long(home: Path) -> str:
    """Write the long session into a new store; return its address."""
    with Sessionary(home=str(home), create=True) as client:
        chat = client.new_session(title="Apples")
        for number in range(MESSAGES):
            chat.append("user", f"apple {number}")
    return f"/s/{chat.id}"


def opened(visit: Visitor, long: tuple[Served, str]) -> Page:
    server, path = long
    page = visit(server, path).page
    expect(page.locator(".message").last).to_contain_text(f"apple {MESSAGES - 1}")
    return settled(page)


def test_hits_beyond_the_first_answer_are_neither_denied_nor_out_of_reach(
    long: tuple[Served, str], visit: Visitor
) -> None:
    page = opened(visit, long)
    page.keyboard.press("Control+f")
    box = page.get_by_role("searchbox", name="Find in this session")
    expect(box).to_be_focused()
    # At once: while a word is typed, the hits of its beginning are shown too.
    box.fill("apple")
    place = page.get_by_role("search").get_by_role("status")
    expect(place).to_have_text("200 of 200+")

    page.keyboard.press("Enter")
    expect(place).to_have_text("1 of 200+")
    page.keyboard.press("Shift+Enter")

    expect(place).to_have_text("200 of 400+")
    target = page.locator(".message.target")
    expect(target).to_contain_text(f"apple {MESSAGES - 201}")
    expect(target).to_be_in_viewport()


def test_no_line_says_that_only_the_end_is_new_where_nothing_was_read(
    tmp_path: Path, visit: Visitor
) -> None:
    # A store of its own: opening the session marks it as read.
    path = write_long(tmp_path)
    with served(tmp_path) as server:
        page = opened(visit, (server, path))

        expect(page.locator(".message").last).to_be_in_viewport()
        expect(page.get_by_text("New", exact=True)).to_have_count(0)


def test_the_outline_of_a_long_session_begins_short(
    long: tuple[Served, str], visit: Visitor
) -> None:
    page = opened(visit, long)
    page.keyboard.press("End")
    page.keyboard.press("i")
    prompts = page.locator(".outline button")
    expect(prompts).to_have_count(300)

    page.get_by_role("button", name=f"Show all {MESSAGES}").click()

    expect(prompts).to_have_count(MESSAGES)


def assert_drawn_together(page: Page) -> None:
    """Check that the page was not drawn again for each of many things that came at once."""
    drawn = page.evaluate("window.drawn")
    # On a slow machine they arrive over several seconds, and the page is drawn again in between.
    pauses = (drawn["last"] - drawn["first"]) / RENDER_MS
    assert drawn["times"] < max(SESSIONS / 4, 2 * pauses)


def many(tx: Tx, *, moment: Moment) -> None:
    """As many sessions as an import brings, in one transaction."""
    for number in range(SESSIONS):
        opening = Opening("main", Source("api"), title=f"pear {number}")
        append.append_to_new_session(
            tx, opening, append.NewMessage(message("user", "hello")), moment=moment
        )


def test_many_sessions_that_come_at_once_are_listed_at_once(empty: Served, visit: Visitor) -> None:
    seen = visit(empty)
    seen.asks("hello")
    wait_for_reply(seen.page, "no model was asked")
    expect(seen.page.locator(".session-row")).to_have_count(1)
    settled(seen.page).evaluate(WATCH, ".rows")

    with Sessionary(home=str(empty.home)) as client:
        client.store.write(many, moment=client.moment()).result()

    expect(seen.page.locator(".group-heading", has_text="Today")).to_contain_text(str(SESSIONS + 1))
    assert_drawn_together(seen.page)


def much(tx: Tx, id: str, *, moment: Moment) -> None:
    """As much as another program says at once."""
    for number in range(SESSIONS):
        new_message = append.NewMessage(message("user", f"plum {number}"))
        append.append_to_session(tx, id, new_message, profile="main", moment=moment)


def test_many_messages_at_once_are_shown_at_once(empty: Served, visit: Visitor) -> None:
    seen = visit(empty)
    seen.asks("hello")
    wait_for_reply(seen.page, "no model was asked")
    settled(seen.page).evaluate(WATCH, ".column")

    with Sessionary(home=str(empty.home)) as client:
        id = seen.page.url.rpartition("/")[2]
        client.store.write(much, id, moment=client.moment()).result()

    expect(seen.page.locator(".message").last).to_contain_text(f"plum {SESSIONS - 1}")
    expect(seen.page.locator(".message").last).to_be_in_viewport()
    assert_drawn_together(seen.page)
