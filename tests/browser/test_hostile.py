"""What strangers and models write is shown, and does nothing."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from sessionary import Sessionary
from sessionary.actions.sessions import append
from sessionary.model.message import message
from sessionary.model.source import Source
from tests.browser.conftest import Visitor, served, settled

pytestmark = pytest.mark.timeout(300)
HOSTILE = [
    "<script>window.hit = 1</script>",
    "<img src=https://tracker.example/a.gif onerror='window.hit = 1'>",
    "![pixel](https://tracker.example/b.gif)",
    "[click me](javascript:window.hit=1)",
    "<svg onload='window.hit = 1'><use href='https://tracker.example/c.svg#x'/></svg>",
    "<iframe src='https://tracker.example'></iframe><object data='https://tracker.example'></object>",
    "<style>@import url(https://tracker.example/d.css)</style><link rel=stylesheet href=//tracker.example>",
    "<form action='https://tracker.example'><button autofocus onfocus='window.hit=1'>x</button></form>",
    "```html\n<img src=x onerror='window.hit = 1'>\n```",
    "<a href='data:text/html,<script>window.hit=1</script>'>x</a> <meta http-equiv=refresh content='0;url=//t.ex'>",
    "\u202e reversed \u202c \x1b]0;title\x07 \x1b[31mred\x1b[0m",
    "[ref]: javascript:window.hit=1\n\n[a][ref]",
]
TITLE = "<img src=x onerror='window.hit = 1'> \u202etitle"


def test_hostile_text_is_harmless_and_asks_nobody(tmp_path: Path, visit: Visitor) -> None:
    with Sessionary(home=str(tmp_path), create=True) as client:
        session = client.new_session(
            Source("web", user_id="x", user_name="<b onclick=1>Eve</b>"), title="hostile"
        )
        id = session.append("user", HOSTILE[0]).session_id
        for text in HOSTILE:
            session.append("user", text)
            call = {"type": "tool_call", "id": text[:20], "name": text, "arguments": {"path": text}}
            result = {"type": "tool_result", "call_id": text[:20], "content": text}
            session.append("assistant", [call, {"type": "reasoning", "text": text}])
            session.append("tool", [result])
            # Nobody may write a part of an unknown type today; a store may have one all the same.
            odd = message("assistant", [{"type": "text", "text": text}, {"type": "odd", "x": text}])
            new_message = append.NewMessage(odd)
            moment = client.moment()
            client.store.write(
                append.append_to_session, id, new_message, profile="main", moment=moment
            ).result()
        session.rename(TITLE)
    with served(tmp_path) as server:
        seen = visit(server, f"/s/{id}")
        page = seen.page
        expect(page.locator(".message").last).to_be_visible()
        page.locator(".transcript").focus()
        page.keyboard.press("End")
        page.keyboard.press("t")
        expect(page.locator(".step .toggle").first).to_be_visible()
        settled(page)
        for fold in page.locator(".step .toggle").all():
            fold.click()
        page.keyboard.press("i")
        expect(page.get_by_role("complementary", name="Details")).to_be_visible()
        settled(page)
        hrefs = "links => links.map((link) => link.getAttribute('href') ?? 'https://')"
        for href in page.locator(".markdown a").evaluate_all(hrefs):
            assert href.startswith(("https://", "http://", "mailto:"))
        page.goto(f"{server.address}/search?q=window")
        expect(page.locator(".hit").first).to_be_visible()
        settled(page)

        assert page.evaluate("window.hit") is None
        assert [url for url in seen.requests if not url.startswith(server.address)] == []
        expect(page.locator("script[src]:not([src^='/assets/'])")).to_have_count(0)
