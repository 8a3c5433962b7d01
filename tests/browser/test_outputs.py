"""A long tool output: its beginning at once, the rest on request."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from sessionary import Sessionary
from tests.browser.conftest import LONGEST_PAUSE_MS, PauseWatch, Served, Visitor, served, settled

pytestmark = pytest.mark.timeout(300)
LINES = 3_000
LONG = "\n".join(f"line {number} of the log" for number in range(LINES))

CALL = {"type": "tool_call", "id": "1", "name": "bash", "arguments": {"command": "cat log"}}
RESULT = {"type": "tool_result", "call_id": "1", "name": "bash", "content": LONG}


@pytest.fixture
def wordy(tmp_path: Path) -> Iterator[tuple[Served, str]]:
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title="A wordy tool")
        chat.append("user", "show me the log")
        chat.append("assistant", [CALL])
        chat.append("tool", [RESULT])
        id = chat.append("assistant", "That is all of it.").session_id
    with served(tmp_path) as server:
        yield server, id


def test_all_lines_are_fetched_when_someone_wants_them(
    wordy: tuple[Served, str], visit: Visitor
) -> None:
    server, id = wordy
    seen = visit(server, f"/s/{id}")
    page = seen.page
    page.locator(".step-group .toggle").first.click()
    page.locator(".step .toggle").first.click()
    viewer = page.get_by_role("group", name="Output")
    expect(viewer).to_contain_text("line 39 of the log")
    expect(viewer).not_to_contain_text("line 40 of the log")
    assert not [each for each in seen.requests if "view=log" in each]

    page.get_by_role("button", name="Show all 3,000 lines").click()

    expect(viewer).to_contain_text(f"line {LINES - 1} of the log")
    page.get_by_role("button", name="Show less").click()
    expect(viewer).not_to_contain_text("line 40 of the log")
    page.locator(".viewer-bar").get_by_role("button", name="Copy").click()
    page.wait_for_function(
        "text => navigator.clipboard.readText().then(got => got === text)", arg=LONG
    )


def test_a_server_that_is_gone_is_reported_in_place_of_the_lines(
    wordy: tuple[Served, str], visit: Visitor
) -> None:
    server, id = wordy
    page = visit(server, f"/s/{id}").page
    page.locator(".step-group .toggle").first.click()
    page.locator(".step .toggle").first.click()
    server.stop(kill=True)

    page.get_by_role("button", name="Show all 3,000 lines").click()

    expect(page.locator(".step").get_by_role("alert")).to_have_text("The server does not answer.")
    expect(page.get_by_role("group", name="Output")).to_contain_text("line 39 of the log")


@pytest.mark.parametrize("tool", ["bash", "read_file"])
def test_an_output_of_two_megabytes_is_shown_whole_without_a_pause(
    tmp_path: Path, visit: Visitor, tool: str
) -> None:
    lines = [f"line {number} of a very long log with some words in it" for number in range(40_000)]
    call = CALL | {"name": tool, "arguments": {"path": "log", "command": "cat log"}}
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title="A very wordy tool")
        chat.append("user", "show me the log")
        chat.append("assistant", [call])
        chat.append("tool", [RESULT | {"content": "\n".join(lines)}])
        chat.append("assistant", "That is all of it.")
    with served(tmp_path) as server:
        page = visit(server, f"/s/{chat.id}").page
        page.locator(".step-group .toggle").first.click()
        page.locator(".step .toggle").first.click()
        pauses = PauseWatch(page)

        page.get_by_role("button", name="Show all 40,000 lines").click()

        viewer = page.get_by_role("group", name="Output")
        expect(page.get_by_role("button", name="Show less")).to_be_visible()
        settled(page)
        # Before the text is read, which is work of the page too.
        assert pauses.longest_ms() < LONGEST_PAUSE_MS
        expect(viewer.locator(".slice").last).to_contain_text(lines[-1])


@pytest.fixture
def searched(tmp_path: Path) -> Iterator[Served]:
    """A session whose tool outputs hold words that occur nowhere else, one far down in a long output."""
    call = {"type": "tool_call", "id": "2", "name": "lookup", "arguments": {"topic": "harbours"}}
    content = {"places": [{"name": "Zanzibar quay", "depth": 9}]}
    with Sessionary(home=str(tmp_path), create=True) as client:
        chat = client.new_session(title="Tools that said something")
        chat.append("user", "look it up")
        chat.append("assistant", [CALL])
        chat.append("tool", [RESULT | {"content": LONG.replace("line 700 ", "a porcupine ")}])
        chat.append("assistant", [call])
        chat.append("tool", [{"type": "tool_result", "call_id": "2", "content": content}])
        chat.append("assistant", "Nothing to see here.")
    with served(tmp_path) as server:
        yield server


@pytest.mark.parametrize("word", ["porcupine", "Zanzibar"])
def test_a_hit_in_a_tool_result_opens_its_step_and_marks_the_words(
    searched: Served, visit: Visitor, word: str
) -> None:
    page = visit(searched).page
    page.goto(f"{searched.address}/search?q={word}&steps=true")
    page.locator(".hit").first.click()

    step = page.locator(".step.target")
    expect(step.locator(".toggle")).to_have_attribute("aria-expanded", "true")
    expect(step.locator("mark").first).to_have_text(word)
    expect(step.locator("mark").first).to_be_in_viewport()


def test_a_hit_opens_a_step_that_was_folded_before(searched: Served, visit: Visitor) -> None:
    page = visit(searched).page
    page.locator(".session-row").first.click()
    work = page.locator(".step-group > .toggle")
    work.click()
    expect(work).to_have_attribute("aria-expanded", "true")
    work.click()
    expect(work).to_have_attribute("aria-expanded", "false")

    page.keyboard.press("Control+f")
    expect(page.get_by_role("searchbox", name="Find in this session")).to_be_focused()
    page.keyboard.type("zanzibar")

    expect(work).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".step.target mark").first).to_have_text("Zanzibar")
    expect(page.locator(".step.target mark").first).to_be_in_viewport()
