"""What the model saw, how full its context is, and what is pinned for it, by mouse, by keyboard and on a phone."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Locator, Page, Route, expect

from sessionary import Sessionary
from sessionary.actions import turns
from tests.browser.conftest import Served, Visit, Visitor, eventually, served, settled
from tests.browser.test_axe import problems
from tests.support.model_server import Ask, ModelServer, Reply

pytestmark = pytest.mark.timeout(300)
SETTINGS = """
[agents.writer]
kind = "model"
model = "tiny"
base_url = "{url}"
prompt = "You know every plum."
window = 4000
"""
SEEN = "What the model saw"


def answer(ask: Ask) -> Reply:
    """An answer that names the last question."""
    words = str(ask.messages[-1].get("content"))[:40]
    return Reply(f"You said: {words}")


@dataclass
class Modelled:
    """A server whose agent is a model."""

    server: Served
    model: ModelServer


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Modelled]:
    home = tmp_path_factory.mktemp("modelled")
    model = ModelServer(window=4000)
    model.otherwise = answer
    # In a thread: Playwright has the event loop of this one.
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(model):
        (home / "sessionary.toml").write_text(SETTINGS.format(url=model.openai_url))
        with served(home) as server:
            yield Modelled(server, model)


def ring(page: Page) -> Locator:
    return page.get_by_role("button", name=re.compile("^Context: "))


def talk(visit: Visit, *texts: str) -> None:
    """Begin a session with these messages, and wait for each answer."""
    first, *rest = texts
    visit.asks(first)
    expect(visit.page.locator(".message.assistant[id]")).to_have_count(1)
    for number, text in enumerate(rest, 2):
        visit.says(text)
        expect(visit.page.locator(".message.assistant[id]")).to_have_count(number)
    expect(visit.page.locator(".live-reply")).to_have_count(0)
    settled(visit.page)


def open_dialog(page: Page, message: Locator) -> Locator:
    """Open what the model saw from a message's actions."""
    message.hover()
    message.get_by_role("button", name=SEEN).click()
    dialog = page.get_by_role("dialog", name=SEEN)
    expect(dialog.get_by_role("heading", name=re.compile("message"))).to_be_visible()
    return dialog


def test_the_ring_shows_how_full_the_context_is(modelled: Modelled, visit: Visitor) -> None:
    seen = visit(modelled.server)
    page = seen.page
    talk(seen, "What is a plum?")

    expect(ring(page)).to_have_attribute(
        "aria-label", re.compile(r"of 4\.0k tokens used \(\d+ %\), compacted at 2\.8k")
    )
    ring(page).click()
    details = page.locator(".menu:popover-open")
    expect(details).to_contain_text("It is compacted at 2.8k tokens.")
    expect(details).to_contain_text("The provider counted the total")
    expect(details.get_by_role("img")).to_have_count(1)
    assert problems(page) == []
    page.keyboard.press("Escape")
    expect(details).to_have_count(0)
    expect(ring(page)).to_be_focused()


def test_the_ring_says_what_the_model_reads_instead(modelled: Modelled, visit: Visitor) -> None:
    seen = visit(modelled.server)
    page = seen.page
    talk(seen, "Remember 4711.", *(f"{n}: {'plum ' * 300}" for n in range(9)))

    ring(page).click()
    details = page.locator(".menu:popover-open")
    expect(details).to_contain_text(
        re.compile(r"The model reads a summary of the messages up to #\d+")
    )
    details.get_by_role("button", name="What the model saw in the last turn").click()
    dialog = page.get_by_role("dialog", name=SEEN)
    expect(dialog.locator("ol li .chip", has_text="Summary")).to_be_visible()
    page.keyboard.press("Escape")
    expect(ring(page)).to_be_focused()
    expect(page.locator("summary.divider", has_text="Context compressed").first).to_be_visible()


def test_what_the_model_saw_is_shown_and_copied(modelled: Modelled, visit: Visitor) -> None:
    seen = visit(modelled.server)
    page = seen.page
    talk(seen, "What is a plum?", "And a pear?")

    dialog = open_dialog(page, page.locator(".message.assistant[id]").last)
    expect(dialog).to_contain_text("tiny")
    expect(dialog).to_contain_text("window 4.0k")
    expect(dialog.locator("ol li")).to_have_count(3)
    expect(dialog.locator("ol li").nth(2)).to_contain_text("And a pear?")
    dialog.locator("summary", has_text="System").click()
    expect(dialog).to_contain_text("You know every plum.")
    assert problems(page) == []
    dialog.get_by_role("button", name="Copy as JSON").click()
    copied = json.loads(eventually(page, "() => navigator.clipboard.readText()"))
    assert [each["content"] for each in copied["messages"]][::2] == [
        "What is a plum?",
        "And a pear?",
    ]
    asked = [ask for ask in modelled.model.requests if "And a pear?" in ask.raw.decode()]
    sent = asked[0].messages
    assert sent[-3:] == [
        {"role": each["role"], "content": each["content"]} for each in copied["messages"]
    ]
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_the_dialog_is_opened_and_left_by_keyboard(modelled: Modelled, visit: Visitor) -> None:
    seen = visit(modelled.server)
    page = seen.page
    talk(seen, "What is a plum?")

    message = page.locator(".message.user").first
    message.focus()
    button = message.get_by_role("button", name=SEEN)
    expect(button).to_have_count(1)
    for _ in range(12):
        page.keyboard.press("Tab")
        if button.evaluate("(each) => each === document.activeElement"):
            break
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=SEEN)
    expect(dialog.locator("ol li").first).to_contain_text("What is a plum?")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_a_message_is_pinned_listed_and_unpinned(modelled: Modelled, visit: Visitor) -> None:
    seen = visit(modelled.server)
    page = seen.page
    talk(seen, "The door code is 4711.")

    message = page.locator(".message.user").first
    message.hover()
    pin = message.get_by_role("button", name="Pin for the model")
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    expect(message.locator(".pinned")).to_have_text("Pinned")
    expect(page.locator(".record")).to_contain_text("Message 1 was pinned for the model")
    page.get_by_role("button", name="Details").first.click()
    pins = page.get_by_role("list", name="Pinned for the model")
    expect(pins.get_by_role("listitem")).to_have_count(1)
    assert problems(page) == []
    pins.get_by_role("button", name="Unpin: The door code is 4711.").click()
    expect(pins).to_have_count(0)
    expect(message.locator(".pinned")).to_have_count(0)
    expect(page.locator(".record").last).to_contain_text("Message 1 was unpinned")


def test_a_turn_that_went_on_says_so_in_one_line(modelled: Modelled, visit: Visitor) -> None:
    with Sessionary(home=str(modelled.server.home)) as client:
        chat = client.new_session()
        chat.append("user", "hello")
        claim = turns.Claim("another:1", -60, "writer", resumable=True)
        client.store.write(
            turns.begin_in_session,
            str(chat.id),
            None,
            profile=client.profile,
            claim=claim,
            moment=client.moment(),
        ).result()
    seen = visit(modelled.server, f"/s/{chat.id}")
    page = seen.page

    expect(page.locator(".message.assistant[id]")).to_contain_text("You said: hello")
    record = page.locator(".record")
    expect(record).to_contain_text("The turn went on after an interruption: its process died")
    expect(record.locator("time")).to_be_visible()
    expect(page.locator(".message.system")).to_have_count(0)
    dialog = open_dialog(page, page.locator(".message.assistant[id]"))
    expect(dialog).to_contain_text("The turn was continued 1 time: its process died")


def test_a_turn_without_its_process_waits_to_go_on(modelled: Modelled, visit: Visitor) -> None:
    with Sessionary(home=str(modelled.server.home)) as client:
        chat = client.new_session()
        chat.append("user", "hello")
        begun = client.store.write(
            turns.begin_in_session,
            str(chat.id),
            None,
            profile=client.profile,
            claim=turns.Claim("another:1", 600, "writer", resumable=True),
            moment=client.moment(),
        ).result()
        seen = visit(modelled.server)
        page = seen.page

        def answer_as_waiting(route: Route) -> None:
            response = route.fetch()
            found = response.json()
            found["turn"] |= {"waiting": True, "resume_reason": "the server stopped"}
            route.fulfill(response=response, json=found)

        page.route(f"**/api/v1/sessions/{chat.id}", answer_as_waiting)
        page.goto(f"{modelled.server.address}/s/{chat.id}")
        expect(page.locator(".live-reply")).to_contain_text("Waiting to go on: the server stopped")
        expect(page.locator(".live-reply .spin")).to_have_count(0)
        page.unroute(f"**/api/v1/sessions/{chat.id}")
        client.store.write(turns.release, begun.lease, reason="the server stopped").result()
        expect(page.locator(".message.assistant[id]")).to_contain_text("You said: hello")
        expect(page.locator(".live-reply")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_fits_on_a_phone(modelled: Modelled, visit: Visitor, theme: str) -> None:
    desk = visit(modelled.server)
    talk(desk, "What is a plum?")
    path = desk.page.url.removeprefix(modelled.server.address)
    page = visit(modelled.server, path, phone=True).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]

    message = page.locator(".message.assistant[id]")
    message.get_by_role("button", name="Actions for this message").tap()
    message.get_by_role("button", name=SEEN).tap()
    dialog = page.get_by_role("dialog", name=SEEN)
    expect(dialog.locator("ol li").first).to_be_visible()
    assert problems(page) == []
    box = dialog.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    dialog.get_by_role("button", name="Close").tap()
    ring(page).tap()
    details = page.locator(".menu:popover-open")
    expect(details).to_contain_text("It is compacted at")
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
