"""Bringing in what another tool recorded, and finding a word deep in it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Served, Visitor, served, settled

pytestmark = pytest.mark.timeout(300)
ROUNDS = 90
NATIVE_ID = "5f0c1b1e-7a52-4be6-8f0e-2f3c6d9a1b01"
DEEP = "the heron stood in the third pond"


@pytest.fixture
def with_records(tmp_path: Path) -> Iterator[Served]:
    """A machine whose user has a long session of another tool, and a line that cannot be read."""
    record(tmp_path / "person")
    with served(tmp_path / "home", user_home=tmp_path / "person") as server:
        yield server


def record(user_home: Path) -> None:
    """Leave the records of another tool in someone's home directory."""
    folder = user_home / ".claude/projects/-src-garden"
    folder.mkdir(parents=True)
    lines = [json.dumps(each) for each in conversation()]
    lines.insert(40, '{"type": "user", "message": [broken')
    (folder / f"{NATIVE_ID}.jsonl").write_text("\n".join(lines) + "\n")


def conversation() -> Iterator[dict[str, object]]:
    """A conversation of another tool, with one message worth finding near its beginning."""
    before: str | None = None
    for number in range(ROUNDS):
        for role, text in (
            ("user", DEEP if number == 7 else f"question {number}"),
            ("assistant", f"answer {number}"),
        ):
            id = f"{role}-{number}"
            message: dict[str, object] = {"role": role, "content": [{"type": "text", "text": text}]}
            if role == "assistant":
                message |= {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "type": "message"}
            yield {
                "type": role,
                "uuid": id,
                "parentUuid": before,
                "sessionId": NATIVE_ID,
                "timestamp": f"2026-03-02T{number // 60:02}:{number % 60:02}:{'00' if role == 'user' else '30'}.000Z",
                "cwd": "/home/someone/src/garden",
                "version": "2.0.0",
                "message": message,
            }
            before = id


def test_records_are_imported_and_a_word_deep_in_them_is_landed_on(
    with_records: Served, visit: Visitor
) -> None:
    page = visit(with_records).page
    expect(page.get_by_text("1 file from another tool was found")).to_be_visible()
    page.get_by_role("link", name="Import your history").click()
    expect(page.get_by_label("Claude Code")).to_be_checked()

    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="An import would add")).to_be_visible()
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("heading", name="Imported")).to_be_visible()
    expect(page.get_by_text("1 record could not be read")).to_be_visible()
    expect(page.get_by_text("Everything is imported")).to_be_visible()

    page.get_by_role("link", name="Show sessions").click()
    expect(page.locator(".session-row")).to_have_count(1)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("heron pond")
    expect(page.locator(".option .snippet mark").first).to_be_visible()
    settled(page)
    page.locator(".option", has=page.locator(".snippet")).first.click()
    expect(page).to_have_url(re.compile(r"#m\d+$"))
    expect(page.locator(".message.target")).to_contain_text(DEEP)
    expect(page.locator(".message.target")).to_be_in_viewport()


def test_a_file_without_a_conversation_is_left_out_with_its_reason(
    tmp_path: Path, visit: Visitor
) -> None:
    record(tmp_path / "person")
    bare = {"type": "summary", "summary": "A talk that never began", "leafUuid": "nowhere"}
    folder = tmp_path / "person/.claude/projects/-src-garden"
    (folder / "6f0c1b1e-7a52-4be6-8f0e-2f3c6d9a1b02.jsonl").write_text(json.dumps(bare) + "\n")
    with served(tmp_path / "home", user_home=tmp_path / "person") as server:
        page = visit(server, "/import").page
        expect(page.get_by_text("2 new files")).to_be_visible()

        page.get_by_role("button", name="Preview").click()
        expect(page.locator("summary")).to_contain_text(
            "2 files: 1 to import, 0 unchanged, 1 skipped"
        )
        page.get_by_role("button", name="Import", exact=True).click()

        expect(page.get_by_role("heading", name="Imported")).to_be_visible()
        expect(page.locator("summary")).to_contain_text(
            "2 files: 1 imported, 0 unchanged, 1 skipped"
        )
        left_out = page.locator(".problems li", has_text="6f0c1b1e")
        expect(left_out).to_be_visible()
        expect(left_out).to_contain_text(re.compile(r"question|conversation"))
        expect(page.get_by_text("Everything is imported")).to_be_visible()
