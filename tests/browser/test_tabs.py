"""Several tabs of one browser share one stream, and are in step."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    GatedAgent,
    Served,
    Visit,
    Visitor,
    eventually,
    install_gated_agent,
    served,
    wait_for_reply,
)

pytestmark = pytest.mark.timeout(300)
NO_SHARED_WORKER = "delete window.SharedWorker"
PASSWORD = "correct horse battery"
SET_PASSWORD = """async (fresh) => {
    const { csrf } = await (await fetch('/api/v1/me')).json()
    const headers = { 'X-CSRF-Token': csrf, 'Content-Type': 'application/json' }
    await fetch('/api/v1/password', { method: 'PUT', headers, body: JSON.stringify({ new: fresh }) })
}"""


def streams_open(page: Page) -> int:
    """How many streams the server holds, by its own count."""
    text = page.evaluate("async () => (await fetch('/api/v1/metrics')).text()")
    (line,) = [each for each in text.splitlines() if each.startswith("sessionary_streams_open ")]
    return int(float(line.split()[1]))


def begun(seen: Visit) -> str:
    seen.asks("hello")
    wait_for_reply(seen.page, "demo agent")
    return seen.page.url


@pytest.mark.parametrize("script", [None, NO_SHARED_WORKER], ids=["worker", "lock"])
def test_two_tabs_see_the_same_through_one_stream(
    empty: Served, visit: Visitor, script: str | None
) -> None:
    seen = visit(empty, script=script)
    one = seen.page
    two = seen.another_tab(begun(seen))
    expect(two.locator(".message.assistant")).to_have_count(1)

    seen.says("list the files")

    expect(two.locator(".message.user")).to_have_count(2)
    expect(two.locator(".message.assistant").nth(1)).to_contain_text("two files and a folder")
    eventually(one, lambda: streams_open(one) == 1)


def test_the_last_tab_takes_the_stream_over(empty: Served, visit: Visitor) -> None:
    seen = visit(empty, script=NO_SHARED_WORKER)
    address = begun(seen)
    two = seen.another_tab(address)
    expect(two.locator(".message.assistant")).to_have_count(1)

    seen.page.close()
    two.get_by_role("textbox", name="Write a message").fill("list the files")
    two.keyboard.press("Enter")

    expect(two.locator(".message.assistant").nth(1)).to_contain_text("two files and a folder")


def test_two_browsers_see_the_same(talking: Served, visit: Visitor) -> None:
    seen = visit(talking)
    address = begun(seen)
    two = visit(talking, address.removeprefix(talking.address)).page
    expect(two.locator(".message.assistant")).to_have_count(1)

    seen.says("list the files")

    expect(two.locator(".message.user")).to_have_count(2)
    expect(two.locator(".message.assistant").nth(1)).to_contain_text("two files and a folder")
    assert httpx2.get(f"{talking.address}/api/v1/sessions").status_code == 401


def test_a_tab_goes_on_when_another_has_logged_in_again(empty: Served, visit: Visitor) -> None:
    seen = visit(empty)
    address = begun(seen)
    seen.page.evaluate(SET_PASSWORD, PASSWORD)
    two = seen.another_tab(f"{empty.address}/login")
    two.get_by_label("Password").fill(PASSWORD)
    two.get_by_role("button", name="Log in").click()
    expect(two.locator(".session-row").first).to_be_visible()

    seen.says("list the files")

    expect(seen.page.locator(".message.assistant").nth(1)).to_contain_text("two files")
    expect(seen.page).to_have_url(address)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[GatedAgent]:
    gate = install_gated_agent(tmp_path, "The beginning,", " the rest.")
    with served(tmp_path) as server:
        yield GatedAgent(server, gate)


@pytest.mark.parametrize("script", [None, NO_SHARED_WORKER], ids=["worker", "lock"])
def test_a_tab_that_comes_late_shows_a_reply_from_its_beginning(
    patient: GatedAgent, visit: Visitor, script: str | None
) -> None:
    seen = visit(patient.server, script=script)
    seen.asks("tell me")
    expect(seen.page.locator(".live-reply .markdown")).to_have_text("The beginning,")

    two = seen.another_tab(seen.page.url)
    expect(two.locator(".live-reply .markdown")).to_have_text("The beginning,")
    patient.go_on()

    for page in (seen.page, two):
        expect(page.locator(".live-reply .markdown")).to_have_text("The beginning, the rest.")
    patient.finish()
    expect(two.locator(".live-reply")).to_have_count(0)
    expect(two.locator(".message.assistant")).to_have_count(1)
    expect(two.locator(".message.assistant")).to_contain_text("The beginning, the rest.")


def test_a_tab_that_changes_to_a_session_shows_its_reply_from_the_beginning(
    patient: GatedAgent, visit: Visitor
) -> None:
    seen = visit(patient.server)
    two = seen.another_tab(patient.server.address)
    seen.asks("tell me")
    expect(seen.page.locator(".live-reply .markdown")).to_have_text("The beginning,")

    two.locator(".session-row", has_text="tell me").click()
    expect(two.locator(".live-reply .markdown")).to_have_text("The beginning,")
    patient.go_on()

    expect(two.locator(".live-reply .markdown")).to_have_text("The beginning, the rest.")
    patient.finish()
    expect(two.locator(".live-reply")).to_have_count(0)
