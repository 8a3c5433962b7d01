"""Budgets at the message box, and what the log records of a session, in the language of the page."""

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Served, Visit, Visitor, eventually, served, settled
from tests.browser.test_axe import problems
from tests.support.model_script import Tokens
from tests.support.model_server import Ask, ModelServer, Reply

pytestmark = pytest.mark.timeout(300)
SETTINGS = """
[agents.writer]
kind = "model"
model = "tiny"
models = ["small"]
base_url = "{url}"
resume = false

[personas.teacher]
title = "Teacher"
prompt = "Explain step by step."

[budget.session]
tokens = 1000

[budget."agent:writer"]
per = "month"
tokens = 1000000
"""
GERMAN = """localStorage.setItem('sessionary.view', JSON.stringify({ language: 'de' }))"""
GERMAN_BOX = "Nachricht schreiben"
AT_END = """() => {
    const log = document.querySelector('.transcript')
    return log.scrollHeight - log.scrollTop - log.clientHeight < 2
}"""


@dataclass
class Budgeted:
    """A server with budgets, whose model uses as many tokens as the test says, when the test lets it answer."""

    server: Served
    model: ModelServer
    uses: int = 0
    may_answer: threading.Event = field(default_factory=threading.Event)

    def answer(self, ask: Ask) -> Reply:
        words = str(ask.messages[-1].get("content"))[:40]
        return Reply(f"You said: {words}", tokens=Tokens(fresh=self.uses, output=0))

    async def wait(self, _: Ask, moment: str) -> None:
        if moment == "asked":
            await asyncio.to_thread(self.may_answer.wait)


@pytest.fixture
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Budgeted]:
    home = tmp_path_factory.mktemp("budgeted")
    model = ModelServer()
    # In a thread: Playwright has the event loop of this one.
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(model):
        (home / "sessionary.toml").write_text(SETTINGS.format(url=model.openai_url))
        with served(home) as server:
            made = Budgeted(server, model)
            made.may_answer.set()
            model.otherwise, model.at_moment = made.answer, made.wait
            yield made
            made.may_answer.set()


def box(page: Page, name: str = "Write a message") -> Locator:
    return page.get_by_role("textbox", name=name)


def says(page: Page, text: str, name: str = "Write a message") -> None:
    """Send a message, and wait for its answer."""
    answers = page.locator(".message.assistant[id]")
    before = answers.count()
    box(page, name).fill(text)
    page.keyboard.press("Enter")
    expect(answers).to_have_count(before + 1)
    expect(page.locator(".live-reply")).to_have_count(0)
    settled(page)


def notice(page: Page) -> Locator:
    return page.locator(".pane-footer .budget")


def asked_for_budgets(seen: Visit) -> int:
    return len([url for url in seen.requests if "/api/v1/budgets" in url])


def test_a_budget_is_mentioned_at_50_80_and_100_percent_where_one_writes(
    budgeted: Budgeted, visit: Visitor
) -> None:
    seen = visit(budgeted.server)
    page = seen.page
    assert asked_for_budgets(seen) == 0, "a new chat asks for no budgets"
    budgeted.uses = 100
    says(page, "one")
    expect(notice(page)).to_have_text("")
    place = box(page).bounding_box()
    # The title of the session is a model call too: what it used is asked for once more.
    eventually(page, lambda: len(budgeted.model.requests) == 2)
    settled(page)
    before = asked_for_budgets(seen)

    box(page).press_sequentially("a message that takes a while")
    settled(page)
    assert asked_for_budgets(seen) == before, "no key asks for anything"
    budgeted.uses = 450
    says(page, "two")
    expect(notice(page).get_by_role("status")).to_have_text(
        "Budget of this session (per day): 50 % is used."
    )
    expect(notice(page)).to_contain_text(re.compile(r"550 of 1\.0k tokens · Begins again: .*\d"))
    assert box(page).bounding_box() == place, "the box one types in stays where it is"
    eventually(page, AT_END)
    assert problems(page) == []

    budgeted.uses = 300
    says(page, "three")
    expect(notice(page).get_by_role("status")).to_contain_text("80 % is used.")
    budgeted.uses = 200
    says(page, "four")
    expect(notice(page).get_by_role("status")).to_contain_text(
        re.compile(r"this session \(per day\) is used up\. Messages are refused until .*\d")
    )
    expect(notice(page)).to_contain_text("1.1k of 1.0k tokens")
    assert problems(page) == []

    box(page).fill("five")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("is used up; your message was not answered")
    expect(box(page)).to_have_value("five")
    page.reload()
    expect(notice(page)).to_contain_text("Messages are refused until")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_used_up_budget_is_told_in_german_on_a_phone(
    budgeted: Budgeted, visit: Visitor, theme: str
) -> None:
    seen = visit(budgeted.server, "/search", phone=True, script=GERMAN)
    page = seen.page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(budgeted.server.address)
    page.get_by_role("button", name="Liste schließen").dispatch_event("click")
    budgeted.uses = 1_000

    says(page, "eins", GERMAN_BOX)

    expect(notice(page)).to_contain_text(
        re.compile(
            r"Budget dieser Sitzung \(pro Tag\) ist aufgebraucht\. Nachrichten werden bis .*\d abgelehnt\. "
            r"1\.0k von 1\.0k Token"
        )
    )
    shown = notice(page).bounding_box()
    assert shown is not None
    assert shown["x"] >= 0
    assert shown["x"] + shown["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert problems(page) == []


def test_records_are_told_in_german(budgeted: Budgeted, visit: Visitor) -> None:
    seen = visit(budgeted.server, "/search", script=GERMAN)
    page = seen.page
    page.goto(budgeted.server.address)
    records = page.locator(".record")
    budgeted.uses = 10
    says(page, "eins", GERMAN_BOX)

    page.get_by_role("button", name=re.compile("^Agent, Modell, Persona und Werkzeuge")).click()
    for name in ("small", "Teacher"):
        # Not `check`: a choice is shown when the server has answered.
        page.get_by_role("radio", name=name).click()
        expect(page.get_by_role("radio", name=name)).to_be_checked()
    page.keyboard.press("Escape")
    expect(records).to_have_count(2)
    expect(records.nth(0)).to_contain_text("Der Besitzer hat gewählt: Modell small")
    expect(records.nth(1)).to_contain_text("Der Besitzer hat gewählt: Persona teacher")

    budgeted.uses = 2_000
    budgeted.may_answer.clear()
    box(page, GERMAN_BOX).fill("zwei")
    page.keyboard.press("Enter")
    expect(page.locator(".live-reply")).to_have_count(1)
    box(page, GERMAN_BOX).fill("drei\nund vier")
    page.keyboard.press("Enter")
    expect(page.get_by_text("drei")).to_be_visible()
    budgeted.may_answer.set()
    expect(records).to_have_count(3)
    expect(records.nth(2)).to_contain_text(
        re.compile(
            r"Nicht beantwortet: Budget dieser Sitzung \(pro Tag\) ist aufgebraucht\. Beginnt neu: .*\d"
        )
    )
    expect(records.nth(2).locator("blockquote")).to_have_text("drei\nund vier")
    expect(page.locator(".record", has_text="The ")).to_have_count(0)
    assert problems(page) == []
