"""A conversation goes on in another tool: the dialog says how, and the file is right."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Served, Visitor
from tests.browser.test_day import open_session

pytestmark = pytest.mark.timeout(300)
TITLE = "Why the weekly report takes 40 minutes"


def export_dialog(page: Page) -> Locator:
    open_session(page, TITLE)
    page.get_by_role("main").get_by_role("button", name="More", exact=True).click()
    page.get_by_role("button", name="Export").click()
    return page.get_by_role("dialog", name="Export")


def test_the_dialog_says_how_to_go_on_and_the_file_is_for_that_tool(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    dialog = export_dialog(page)

    dialog.get_by_label("Claude Code").check()
    expect(dialog.locator(".command")).to_contain_text("claude --resume")
    dialog.get_by_label("Tool calls and their output").uncheck()
    with page.expect_download() as kept:
        dialog.get_by_role("link", name="Export").click()

    assert kept.value.suggested_filename == "sessionary-claude-code.jsonl"
    lines = [json.loads(line) for line in Path(kept.value.path()).read_text().splitlines()]
    assert {line["type"] for line in lines} >= {"user", "assistant"}
    assert "tool_use" not in json.dumps(lines)
    # What to do with the file stays to be read.
    expect(dialog.locator(".command")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_a_small_budget_says_what_is_left_out(shared_demo: Served, visit: Visitor) -> None:
    dialog = export_dialog(visit(shared_demo).page)

    dialog.get_by_label("Chat Completions").check()
    expect(dialog.get_by_text("left out")).to_have_count(0)
    dialog.get_by_label("Maximum tokens").fill("60")

    expect(dialog.get_by_text("left out")).to_be_visible()


def test_several_sessions_go_on_nowhere_else(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    page.locator(".session-row").nth(1).click(modifiers=["Control"])
    page.locator(".session-row").nth(2).click(modifiers=["Control"])
    page.get_by_role("toolbar", name="Selected").get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog", name="Export")

    expect(dialog.get_by_label("Markdown")).to_be_visible()
    expect(dialog.get_by_label("Claude Code")).to_have_count(0)
