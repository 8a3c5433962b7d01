"""Installed, and without a network: the shell, and no text of a conversation."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import CONTROLLED, Served, Visitor, wait_for_reply
from tests.browser.wire import Wire

pytestmark = pytest.mark.timeout(300)
KEPT = """async () => {
    const found = []
    for (const name of await caches.keys())
        for (const request of await (await caches.open(name)).keys()) found.push(new URL(request.url).pathname)
    return found
}"""


def test_without_a_network_the_shell_is_there_and_no_word_was_kept(
    wired: tuple[Served, Wire], visit: Visitor
) -> None:
    server, wire = wired
    seen = visit(server)
    page = seen.page
    seen.asks("hello, this is private")
    wait_for_reply(page, "no model was asked")
    page.evaluate(CONTROLLED)

    wire.cut()
    page.reload()

    expect(page.get_by_role("link", name="Sessionary", exact=True)).to_be_visible()
    expect(page.get_by_text("The server does not answer").first).to_be_visible()
    kept = page.evaluate(KEPT)
    assert "/" in kept
    assert [path for path in kept if path.startswith(("/api", "/login", "/s/"))] == []
    wire.mend()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_the_workbench_can_be_installed(talking: Served, visit: Visitor) -> None:
    page = visit(talking).page

    manifest = page.evaluate("async () => (await fetch('/manifest.webmanifest')).json()")

    assert (manifest["display"], manifest["start_url"], manifest["scope"]) == (
        "standalone",
        "/",
        "/",
    )
    icon = page.evaluate("async (src) => (await fetch(src)).status", manifest["icons"][0]["src"])
    assert icon == 200
