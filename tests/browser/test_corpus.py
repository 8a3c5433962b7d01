"""All that others may write, in all the places where it is shown: it does nothing, asks nobody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from sessionary import Sessionary
from sessionary.actions.files import upload
from sessionary.actions.sessions import append, edit, projects
from sessionary.actions.transfer import export
from sessionary.model.message import message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store.database import Tx
from tests.browser.conftest import Served, Visit, Visitor, eventually, served, settled
from tests.model.hostile import CORPUS

pytestmark = pytest.mark.timeout(300)
PER_SESSION = 17
MARKUP = [
    b"<!doctype html><script>alert(1)</script><img src=//evil.example/x.png>",
    b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    b"%PDF-1.7 /JavaScript (app.alert(1))",
]
ECHO = '[agents.echo]\nkind = "echo"\n'
# Whatever could run, load or lead away, and that we never make. Pages load their styles from the server at ADDRESS.
FORBIDDEN = (
    "iframe, frame, object, embed, base, applet, audio, video, source, "
    "link[rel=stylesheet]:not([href^='/assets/'], [href^='ADDRESS/assets/']), script:not([src^='/assets/']), "
    "meta[http-equiv], form[action]:not([action^='/']), img:not([src^='/']):not([src^='data:'])"
)
HANDLERS = """() => [...document.querySelectorAll('*')].flatMap((node) =>
    node.getAttributeNames().filter((name) => name.startsWith('on')).map((name) => node.outerHTML))"""
LINKS = """() => [...document.querySelectorAll('a[href], area[href], use')]
    .map((node) => node.getAttribute('href') ?? '')
    .filter((href) => !/^(https?:|mailto:|[/#])/i.test(href) || /^[/]{2}/.test(href))"""


class Trap:
    """Notices what must not happen: a dialog, a window, a request to anyone else."""

    def __init__(self, seen: Visit, address: str) -> None:
        self._seen = seen
        self._address = address
        self.sprung: list[str] = []
        seen.page.on("dialog", self._dialog)
        seen.context.on("page", lambda page: self.sprung.append(f"window {page.url}"))

    def _dialog(self, dialog: Any) -> None:
        self.sprung.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def check(self, page: Page) -> None:
        """Nothing has happened, and nothing that could is on the page."""
        foreign = [url for url in self._seen.requests if not url.startswith(self._address)]
        assert self.sprung + foreign == []
        forbidden = page.locator(FORBIDDEN.replace("ADDRESS", self._address))
        assert forbidden.evaluate_all("nodes => nodes.map((node) => node.outerHTML)") == []
        assert page.evaluate(HANDLERS) == []
        assert page.evaluate(LINKS) == []


def parts_of(text: str, place: int, blobs: list[str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """One text in every part that a message can have."""
    id = f"call-{place}"
    file = {"type": "attachment", "blob": blobs[place % len(blobs)], "name": text[:200], "size": 1}
    return [
        ("user", [{"type": "text", "text": text}, file | {"media_type": "text/html"}]),
        (
            "assistant",
            [
                {"type": "reasoning", "text": text},
                {"type": "tool_call", "id": id, "name": text[:500], "arguments": {"path": text}},
                {"type": "tool_call", "id": f"{id}b", "name": "bash", "arguments": {"command": text}},
                {"type": "tool_call", "id": f"{id}c", "name": "edit_file",
                 "arguments": {"path": text, "old": text, "new": f"{text} {text}"}},
            ],
        ),
        (
            "tool",
            [
                {"type": "tool_result", "call_id": id, "content": text, "is_error": True},
                {"type": "tool_result", "call_id": f"{id}b", "content": f"\x1b[31m{text}\x1b]8;;{text}\x07"},
                {"type": "tool_result", "call_id": f"{id}c", "content": [{text: text}]},
            ],
        ),
        ("assistant", [{"type": "text", "text": text}, {"type": text[:100] or "x", "x": text}]),
    ]  # fmt: skip


def write(tx: Tx, client: Sessionary, texts: list[tuple[int, str]], blobs: list[str]) -> str:
    """A session in which everyone is called like that and says so."""
    name = texts[0][1][:60]
    source = Source("web", user_id=name or "x", user_name=name, chat_name=name, chat_topic=name)
    moment = client.moment()
    opening = Opening(client.profile, source, model=name, labels=(name.strip()[:60] or "x",))
    id = edit.open_session(tx, opening, moment=moment)
    for place, text in texts:
        for role, parts in parts_of(text, place, blobs):
            new_message = append.NewMessage(message(role, parts, person=source.person, model=name))
            append.append_to_session(tx, id, new_message, profile=client.profile, moment=moment)
    edit.rename(tx, id, f"{name} {texts[0][0]}", profile=client.profile)
    return id


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[str]]]:
    """A server whose every word was written by someone who means harm."""
    home = tmp_path_factory.mktemp("hostile")
    (home / "sessionary.toml").write_text(ECHO)
    numbered = list(enumerate(text for text in CORPUS if len(text) < 2000))
    with Sessionary(home=str(home), create=True) as client:
        blobs = [
            client.store.write(upload, data, profile="main", moment=client.moment()).result()
            for data in MARKUP
        ]
        ids = [
            client.store.write(write, client, numbered[first : first + PER_SESSION], blobs).result()
            for first in range(0, len(numbered), PER_SESSION)
        ]
        client.store.write(
            projects.add, "<img src=x onerror=alert(1)>", profile="main", moment=client.moment()
        ).result()
    with served(home) as server:
        yield server, ids


def test_every_session_of_the_corpus_is_shown_and_harmless(
    hostile: tuple[Served, list[str]], visit: Visitor
) -> None:
    server, ids = hostile
    seen = visit(server)
    page = seen.page
    trap = Trap(seen, server.address)
    for id in ids:
        page.goto(f"{server.address}/s/{id}")
        expect(page.locator(".message").last).to_be_visible()
        page.locator(".transcript").focus()
        page.keyboard.press("End")
        page.keyboard.press("t")
        expect(page.locator(".step .toggle").first).to_be_visible()
        settled(page)
        for fold in page.locator(".step .toggle").all():
            fold.click()
        # The browser remembers that the details are open.
        details = page.get_by_role("complementary", name="Details")
        if not details.is_visible():
            page.keyboard.press("i")
        expect(details).to_be_visible()
        settled(page)
        trap.check(page)

    eventually(page, lambda: page.locator(".message").count() > PER_SESSION)


@pytest.mark.parametrize(
    "path",
    ["/", "/search?q=alert", "/search?q=%3Cscript%3E", "/live", "/usage?by=model", "/settings"],
)
def test_every_page_is_harmless(
    hostile: tuple[Served, list[str]], visit: Visitor, path: str
) -> None:
    server, _ = hostile
    seen = visit(server, path)
    trap = Trap(seen, server.address)

    expect(seen.page.get_by_text("live", exact=True)).to_be_visible()
    settled(seen.page)
    trap.check(seen.page)


def test_messages_during_the_export_are_harmless(
    hostile: tuple[Served, list[str]], visit: Visitor
) -> None:
    server, _ = hostile
    seen = visit(server)
    trap = Trap(seen, server.address)
    page = seen.page
    text = "\n\n".join(each for each in CORPUS[:30] if "\x01" not in each)

    page.get_by_role("textbox", name="Write a message").fill(text)
    page.keyboard.press("Enter")

    expect(page.locator(".message.assistant")).to_contain_text("'onclick='x'")
    settled(page)
    trap.check(page)


@pytest.mark.parametrize("place", range(len(MARKUP)))
def test_a_file_of_markup_is_kept_and_never_shown(
    hostile: tuple[Served, list[str]], visit: Visitor, place: int
) -> None:
    server, ids = hostile
    seen = visit(server)
    trap = Trap(seen, server.address)
    path = f"/api/v1/sessions/{ids[0]}/blobs/{blob_of(server, ids[0], place)}?name=../x.html"

    with seen.page.expect_download() as kept, pytest.raises(Error, match="Download is starting"):
        seen.page.goto(server.address + path)

    assert kept.value.suggested_filename.endswith("x.html")
    assert Path(kept.value.path()).read_bytes() == MARKUP[place]
    trap.check(seen.page)


def blob_of(server: Served, id: str, place: int) -> str:
    with Sessionary(home=str(server.home)) as client:
        entries = client.find(id).entries(limit=200).entries
    parts = [part for entry in entries for part in entry.body.parts]  # type: ignore[union-attr]
    return str([part.blob for part in parts if hasattr(part, "blob")][place])


def test_an_exported_page_does_nothing_and_asks_nobody(
    hostile: tuple[Served, list[str]], browser: Browser, tmp_path: Path
) -> None:
    server, ids = hostile
    file = tmp_path / "export.html"
    with Sessionary(home=str(server.home)) as client:
        pieces = export.export_html(client.store, ids, profile="main")
        file.write_text("".join(pieces), encoding="utf-8", errors="replace")
    context = browser.new_context()
    page = context.new_page()
    seen = Visit(context, page, [], [])
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda line: seen.complaints.append(line.text))
    trap = Trap(seen, file.as_uri())

    page.goto(file.as_uri())
    for fold in page.locator("details").all():
        fold.evaluate("node => { node.open = true }")

    expect(page.locator("article")).to_have_count(len(ids))
    expect(page.locator("script, [style], style ~ style")).to_have_count(0)
    policy = page.locator("meta[http-equiv]")
    expect(policy).to_have_count(1)
    policy.evaluate("node => node.remove()")  # the one that we wrote ourselves
    trap.check(page)
    assert seen.complaints == []
    context.close()
