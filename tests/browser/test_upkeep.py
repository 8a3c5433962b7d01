"""The owner looks after the store in the settings: sees how far it is, and what came of it."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from sessionary.store import backup
from tests.browser.conftest import Served, Visitor

pytestmark = pytest.mark.timeout(300)


def test_a_backup_a_check_and_a_smaller_file_are_a_button_away(
    own_demo: Served, visit: Visitor
) -> None:
    page = visit(own_demo, "/settings").page

    page.get_by_role("button", name="Back up now").click()
    expect(page.get_by_text("sessions,").filter(has_text="verified.")).to_be_visible()
    expect(page.get_by_role("heading", name="1 backup")).to_be_visible()
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_text("No problems found:")).to_be_visible()
    page.get_by_role("button", name="Shrink now").click()
    page.get_by_role("dialog").get_by_role("button", name="Shrink now").click()
    expect(page.get_by_text("before,")).to_be_visible()

    [file] = (own_demo.home / "backups").glob("sessionary-*.db")
    assert backup.inspect(file).sessions > 100


def test_a_backup_that_cannot_be_written_says_why(empty: Served, visit: Visitor) -> None:
    Path(empty.home / "backups").write_text("a file stands in the way")
    page = visit(empty, "/settings").page

    expect(page.get_by_role("alert")).to_contain_text("backups")
    Path(empty.home / "backups").unlink()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("button", name="Back up now")).to_be_enabled()
