"""What a session chooses for itself, in the picker at the message box: by mouse, by keyboard and on a phone."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Served, Visit, Visitor, served, settled
from tests.browser.test_axe import problems
from tests.support import lines_server
from tests.support.model_server import ModelServer, Reply

pytestmark = pytest.mark.timeout(300)
SETTINGS = """
[agents.writer]
kind = "model"
model = "tiny"
models = ["small"]
base_url = "{url}"

[[agents.writer.mcp]]
command = {command}
name = "lines"

[personas.teacher]
title = "Teacher"
prompt = "Explain step by step."
"""
PICKER = re.compile("^Agent, model, persona and tools")
TOOLS = ["lines_read_lines", "lines_echo", "lines_draw", "lines_wait"]


@dataclass
class Equipped:
    """A server whose agent is a model with tools."""

    server: Served
    model: ModelServer

    def offered_tools(self) -> list[str]:
        """The server's tools that the model was offered for the last answer."""
        offered = [ask.body["tools"] for ask in self.model.requests if ask.body.get("tools")]
        names = sorted(each["function"]["name"] for each in offered[-1])
        return [name for name in names if name.startswith("lines_")]


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Equipped]:
    home = tmp_path_factory.mktemp("equipped")
    model = ModelServer()
    model.otherwise = Reply("Yes.")
    command = [sys.executable, str(Path(lines_server.__file__))]
    # In a thread: Playwright has the event loop of this one.
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(model):
        (home / "sessionary.toml").write_text(
            SETTINGS.format(url=model.openai_url, command=json.dumps(command))
        )
        with served(home) as server:
            yield Equipped(server, model)


def picker(page: Page) -> Locator:
    return page.get_by_role("button", name=PICKER)


def tools(page: Page) -> Locator:
    """The group of tools in the open menu."""
    return page.get_by_role("group", name="Tools")


def talk(seen: Visit, text: str) -> None:
    """Begin a session and wait for the answer."""
    seen.asks(text)
    expect(seen.page.locator(".message.assistant[id]")).to_have_count(1)
    expect(seen.page.locator(".live-reply")).to_have_count(0)
    settled(seen.page)


def test_tools_are_listed_after_the_first_answer_and_switched_together(
    equipped: Equipped, visit: Visitor
) -> None:
    seen = visit(equipped.server)
    page = seen.page
    picker(page).click()
    expect(tools(page)).to_contain_text("after the agent has answered for the first time")
    assert problems(page) == []
    page.keyboard.press("Escape")

    talk(seen, "What is a plum?")
    assert equipped.offered_tools() == sorted(TOOLS)
    picker(page).click()
    for name in ("All", *TOOLS):
        expect(tools(page).get_by_label(name, exact=True)).to_be_checked()
    assert problems(page) == []
    tools(page).get_by_label("lines_wait").uncheck()
    tools(page).get_by_label("lines_draw").uncheck()
    expect(page.locator(".record")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(picker(page)).to_be_focused()

    expect(page.locator(".record")).to_have_count(1)
    expect(picker(page)).to_contain_text("tools: 2 of 4")
    seen.says("And a pear?")
    expect(page.locator(".message.assistant[id]")).to_have_count(2)
    assert equipped.offered_tools() == ["lines_echo", "lines_read_lines"]


def test_tools_are_switched_by_keyboard(equipped: Equipped, visit: Visitor) -> None:
    seen = visit(equipped.server)
    page = seen.page
    talk(seen, "What is a plum?")
    picker(page).focus()
    page.keyboard.press("Enter")
    everything = tools(page).get_by_label("All", exact=True)
    expect(page.get_by_role("radio", name="tiny", exact=True)).to_be_focused()
    # Two models, two personas; then the tools.
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    expect(everything).to_be_focused()
    page.keyboard.press("Space")
    expect(tools(page).locator("input:checked")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(tools(page).locator("input:checked")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(picker(page)).to_contain_text("tools: 1 of 4")

    page.keyboard.press("Enter")
    everything.focus()
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    expect(picker(page)).to_have_text("tiny")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tools_of_a_new_chat_are_chosen_on_a_phone(
    equipped: Equipped, visit: Visitor, theme: str
) -> None:
    # The tools are known after a first answer.
    talk(visit(equipped.server), "What is a plum?")
    seen = visit(equipped.server, phone=True)
    page = seen.page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]

    page.get_by_role("button", name="Close the list").dispatch_event("click")
    picker(page).tap()
    label = tools(page).locator("label", has_text="lines_wait")
    label.scroll_into_view_if_needed()
    box = label.bounding_box()
    assert box is not None
    assert box["height"] >= 44
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    label.tap()
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(picker(page)).to_contain_text("tools: 3 of 4")
    # Beside the menu, which is then closed.
    page.touchscreen.tap(195, 120)
    expect(tools(page)).to_be_hidden()
    talk(seen, "And a pear?")
    assert "lines_wait" not in equipped.offered_tools()
