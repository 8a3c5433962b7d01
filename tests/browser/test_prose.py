"""How messages are laid out: lists, tables, directions of writing, long texts, and their actions by finger."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from sessionary import Sessionary
from tests.browser.conftest import (
    LONGEST_PAUSE_MS,
    PauseWatch,
    Served,
    Visitor,
    eventually,
    served,
    settled,
)

pytestmark = pytest.mark.timeout(300)
COLUMNS = ["Region", "January", "February", "March", "April", "May", "Remarks"]
TABLE = "\n".join(
    [
        "| " + " | ".join(COLUMNS) + " |",
        "|:--|" + "--:|" * 5 + ":-:|",
        *(
            f"| Province {number} | 1,204.50 | 998.10 | 1,377.20 | 1,002.00 | 871.35 | provisional |"
            for number in range(4)
        ),
    ]
)
FORMATTED = f"Steps, continued:\n\n4. the fourth\n5. the fifth\n\n{TABLE}\n"
MIXED = "An English sentence.\n\nمرحبا، هذا سطر بالعربية.\n\n- أول\n- ثان\n"
PARAGRAPH = "Some **bold** text with `code` and a [link](https://example.org/a) about things.\n\n"
LONG = PARAGRAPH * (2_000_000 // len(PARAGRAPH)) + "The needle is at the end.\n"


@dataclass
class Texts:
    """A server with sessions of one exchange each, by name."""

    server: Served
    paths: dict[str, str]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Texts]:
    home = tmp_path_factory.mktemp("texts")
    paths = {}
    with Sessionary(home=str(home), create=True) as client:
        for name, text in (("formatted", FORMATTED), ("mixed", MIXED), ("long", LONG)):
            chat = client.new_session(title=name)
            chat.append("user", "show me")
            chat.append("assistant", text)
            paths[name] = f"/s/{chat.id}"
    with served(home) as server:
        yield Texts(server, paths)


def opened(visit: Visitor, texts: Texts, name: str, *, phone: bool = False) -> Page:
    page = visit(texts.server, texts.paths[name], phone=phone).page
    expect(page.locator(".message.assistant")).to_be_visible()
    return settled(page)


def test_a_numbered_list_goes_on_and_columns_are_aligned(texts: Texts, visit: Visitor) -> None:
    page = opened(visit, texts, "formatted")

    expect(page.locator(".markdown ol")).to_have_js_property("start", 4)
    cells = page.locator(".markdown tbody tr").first.locator("td")
    expect(cells.nth(0)).to_have_css("text-align", re.compile("left"))
    expect(cells.nth(1)).to_have_css("text-align", re.compile("right"))
    expect(cells.nth(6)).to_have_css("text-align", re.compile("center"))


def test_every_paragraph_and_list_has_the_direction_of_its_words(
    texts: Texts, visit: Visitor
) -> None:
    page = opened(visit, texts, "mixed")
    # Where the words of a paragraph stand, from the middle of its box.
    side = """node => {
        const range = document.createRange()
        range.selectNodeContents(node)
        const words = range.getBoundingClientRect(), box = node.getBoundingClientRect()
        return words.left + words.right > box.left + box.right ? 'right' : 'left'
    }"""

    words = page.locator(".message.assistant .markdown p")
    eventually(page, lambda: words.nth(0).evaluate(side) == "left")
    eventually(page, lambda: words.nth(1).evaluate(side) == "right")
    expect(page.locator(".message.assistant .markdown ul:dir(rtl)")).to_have_count(1)


def test_a_wide_table_scrolls_in_its_own_frame_on_a_phone(texts: Texts, visit: Visitor) -> None:
    page = opened(visit, texts, "formatted", phone=True)
    frame = page.get_by_role("group", name="Table")

    eventually(page, lambda: frame.evaluate("node => node.scrollWidth > node.clientWidth"))
    log = page.locator(".transcript")
    eventually(page, lambda: log.evaluate("node => node.scrollWidth <= node.clientWidth"))
    expect(page.locator(".markdown th")).to_have_text(COLUMNS)
    lines = """cells => cells.map((cell) =>
        Math.round(cell.clientHeight / parseFloat(getComputedStyle(cell).lineHeight)))"""
    heads = page.locator(".markdown th")
    eventually(page, lambda: heads.evaluate_all(lines) == [1] * len(COLUMNS))
    frame.focus()
    page.keyboard.press("ArrowRight")
    eventually(page, lambda: frame.evaluate("node => node.scrollLeft > 0"))


def test_a_tap_opens_the_actions_of_a_message(texts: Texts, visit: Visitor) -> None:
    page = opened(visit, texts, "formatted", phone=True)
    message = page.locator(".message.user")
    more = message.get_by_role("button", name="Actions for this message")
    expect(message.get_by_role("button")).to_have_count(1)

    more.tap()

    expect(more).to_have_attribute("aria-expanded", "true")
    message.get_by_role("button", name="Copy link").tap()
    page.wait_for_function(
        "path => navigator.clipboard.readText().then(got => got.includes(path))",
        arg=texts.paths["formatted"],
    )
    message.get_by_role("button", name="Quote").tap()
    expect(page.get_by_role("textbox", name="Write a message")).to_have_value("> show me\n\n")
    more.tap()
    expect(message.get_by_role("button")).to_have_count(1)


def test_a_very_long_message_is_folded_and_shown_whole_without_a_pause(
    texts: Texts, visit: Visitor
) -> None:
    page = opened(visit, texts, "long")
    answer = page.locator(".message.assistant .bubble")
    expect(answer).to_contain_text("Some **bold** text")
    assert len(answer.inner_text()) < 10_000
    pauses = PauseWatch(page)

    page.get_by_role("button", name="Show all (2.0 MB)").click()

    expect(page.get_by_role("button", name="Show less")).to_be_visible()
    page.locator(".transcript").focus()
    page.keyboard.press("End")
    expect(answer.locator(".slice").last).to_be_in_viewport()
    settled(page)
    # Before the text is read, which is work of the page too.
    assert pauses.longest_ms() < LONGEST_PAUSE_MS
    expect(answer.locator(".slice").last).to_contain_text("The needle is at the end.")


def test_a_hit_far_down_in_a_long_message_is_shown(texts: Texts, visit: Visitor) -> None:
    page = visit(texts.server, "/search?q=needle").page
    page.locator(".hit").first.click()

    expect(page.locator(".message mark").first).to_have_text("needle")
    expect(page.locator(".message mark").first).to_be_in_viewport()
