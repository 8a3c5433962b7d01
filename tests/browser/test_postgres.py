"""A person's day once more, on PostgreSQL."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Served, Visitor, served, settled

pytestmark = pytest.mark.timeout(300)
WRITE = "Write a message"


@pytest.fixture
def on_postgres(tmp_path: Path, postgres_url: str) -> Iterator[Served]:
    (tmp_path / "sessionary.toml").write_text(f'database = "{postgres_url}"\n')
    with served(tmp_path) as server:
        yield server
    assert not list(tmp_path.glob("*.db*"))


def test_a_day_on_postgresql(on_postgres: Served, visit: Visitor) -> None:
    page = visit(on_postgres).page
    page.get_by_role("textbox", name=WRITE).fill("list the files of the walrus")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/s/\w+"))
    expect(page.locator(".message.assistant").last).to_contain_text("two files and a folder")
    first = page.url.removeprefix(on_postgres.address)

    page.reload()
    expect(page.locator(".message.user")).to_have_count(1)
    other = visit(on_postgres, first).page
    page.get_by_role("textbox", name=WRITE).fill("hello again")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user")).to_have_count(2)
    expect(other.locator(".message.user")).to_have_count(2)
    expect(other.locator(".message.assistant").last).to_contain_text("demo agent")

    page.locator(".transcript").focus()
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Rename").fill("Files by the sea")
    page.keyboard.press("Enter")
    expect(page.locator(".session-header h1")).to_have_text("Files by the sea")
    expect(other.locator(".session-row", has_text="Files by the sea")).to_have_count(1)

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("walrus")
    expect(page.locator(".option .snippet mark").first).to_be_visible()
    settled(page)
    page.locator(".option", has=page.locator(".snippet")).first.click()
    expect(page.locator(".message.target")).to_be_in_viewport()

    page.locator(".transcript").focus()
    page.keyboard.press("#")
    expect(page.locator(".session-row", has_text="Files by the sea")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".session-row", has_text="Files by the sea")).to_have_count(1)
