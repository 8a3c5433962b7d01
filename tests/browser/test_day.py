"""A person's day at the workbench: coming in, looking around, finding."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import WRITE, Served, Visitor, eventually, settled

pytestmark = pytest.mark.timeout(300)
MOST_REQUESTS = 12
MOST_NODES = 3000
LONGEST = """async () => {
    const list = await (await fetch('/api/v1/sessions?limit=200')).json()
    return list.items.sort((a, b) => b.message_count - a.message_count)[0]
}"""


def open_session(page: Page, title: str) -> None:
    page.get_by_role("searchbox", name="Filter titles").fill(title)
    # A row is clicked when the others have made room for it.
    expect(page).to_have_url(re.compile("text="))
    settled(page)
    page.locator(f'.session-row[title="{title}"]').click()
    expect(page.locator(".session-header h1")).to_have_text(title)
    expect(page.locator(".message").first).to_be_visible()
    settled(page)


def test_an_empty_store_says_what_to_do(empty: Served, visit: Visitor) -> None:
    page = visit(empty).page

    expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    expect(page.get_by_role("link", name="Import your history")).to_be_visible()
    expect(page.get_by_role("textbox", name=WRITE)).to_be_focused()


def test_the_first_load_is_light_and_asks_nobody_else(shared_demo: Served, visit: Visitor) -> None:
    seen = visit(shared_demo)
    expect(seen.page.locator(".session-row").first).to_be_visible()
    expect(seen.page.get_by_text("live", exact=True)).to_be_visible()

    asked = [url for url in seen.requests if "/login" not in url]

    assert len(asked) <= MOST_REQUESTS, asked
    assert [url for url in seen.requests if not url.startswith(shared_demo.address)] == []


def test_a_message_deep_in_an_old_session_is_found_and_landed_on(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    expect(page.locator(".session-row").first).to_be_visible()

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("Chana saag cumin")
    expect(page.locator(".option .snippet mark").first).to_be_visible()
    settled(page)
    page.locator(".option", has=page.locator(".snippet")).first.click()

    expect(page).to_have_url(re.compile(r"/s/\w+\?q=.*#m\d+$"))
    target = page.locator(".message.target")
    expect(target).to_be_in_viewport()
    expect(target.locator("mark").first).to_be_visible()
    expect(page.get_by_role("search").get_by_role("status")).to_have_text(
        re.compile(r"^\d+ of \d+$")
    )


def test_hits_in_a_long_session_are_stepped_through(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    found = page.evaluate(LONGEST)
    page.goto(f"{shared_demo.address}/s/{found['id']}")
    expect(page.locator(".exchange").last).to_be_in_viewport()
    settled(page)

    page.keyboard.press("Control+f")
    page.get_by_role("searchbox", name="Find in this session").fill("please")
    place = page.get_by_role("search").get_by_role("status")
    expect(place).to_have_text(re.compile(r"^(\d+) of \1$"))
    of = int(place.inner_text().split()[-1])
    page.keyboard.press("Shift+F3")
    expect(place).to_have_text(f"{of - 1} of {of}")
    page.keyboard.press("F3")
    expect(place).to_have_text(f"{of} of {of}")
    page.keyboard.press("F3")
    expect(place).to_have_text(f"1 of {of}")
    expect(page.locator(".message.target")).to_be_in_viewport()
    page.keyboard.press("Escape")

    expect(page.locator(".transcript")).to_be_focused()


def test_older_messages_come_without_a_jump(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    found = page.evaluate(LONGEST)
    assert found["message_count"] > 200
    page.goto(f"{shared_demo.address}/s/{found['id']}")
    expect(page.locator(".exchange").last).to_be_in_viewport()
    settled(page)
    before = page.locator(".exchange").count()
    assert page.evaluate("document.querySelectorAll('*').length") <= MOST_NODES

    page.locator(".transcript").evaluate("log => { log.scrollTop = 300 }")

    expect(page.locator(".exchange")).not_to_have_count(before)
    eventually(page, lambda: page.locator(".transcript").evaluate("log => log.scrollTop > 300"))


def test_what_is_new_is_where_reading_goes_on(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo).page
    expect(
        page.locator(".session-row", has_text="The kitchen tap").locator(".dot.blue")
    ).to_be_visible()

    open_session(page, "The kitchen tap")

    expect(page.get_by_text("New", exact=True)).to_be_in_viewport()
    expect(page.locator(".session-row", has_text="The kitchen tap").locator(".dot")).to_have_count(
        0
    )


def test_the_work_of_subagents_is_inside_the_step_that_sent_them(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    open_session(page, "Why the weekly report takes 40 minutes")
    row = page.locator(".row-slot", has=page.get_by_role("button", name="3 subagents"))
    row.get_by_role("button").click()
    expect(page.locator(".session-row", has_text="Measure the indexes")).to_be_visible()

    page.locator(".step-group .toggle").first.click()
    page.get_by_role("button", name="Delegated").click()
    expect(page.locator(".subagent-transcript")).to_contain_text("so the index is not used")
    page.get_by_role("button", name="Edited").click()
    expect(page.locator(".diff-line.added").nth(1)).to_contain_text("interval '7 days'")

    page.locator(".subagent-transcript a", has_text="Read the query plans").click()
    expect(page.locator(".session-header h1")).to_have_text("Read the query plans")


def test_details_say_what_is_in_the_context_and_where_it_came_from(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    open_session(page, "The weekly report with a summary table")
    page.locator(".transcript").focus()
    page.keyboard.press("i")
    details = page.get_by_role("complementary", name="Details")

    expect(details.get_by_role("img", name="Context")).to_be_visible()
    expect(details.locator(".lineage a")).to_have_text(["Why the weekly report takes 40 minutes"])
    expect(details.get_by_role("button", name="reports/weekly.sql")).to_be_visible()
    details.locator(".outline button", has_text="It used to take two minutes").click()
    expect(page.locator(".message.user", has_text="It used to take")).to_be_focused()


def test_an_export_leaves_out_what_was_not_wanted(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    open_session(page, "Why the weekly report takes 40 minutes")
    page.get_by_role("main").get_by_role("button", name="More", exact=True).click()
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog", name="Export")
    dialog.get_by_label("Tool calls and their output").uncheck()
    with page.expect_download() as kept:
        dialog.get_by_role("link", name="Export").click()

    text = Path(kept.value.path()).read_text()
    assert "PostgreSQL cannot use the index" in text
    assert "make report WEEK=46" not in text
    expect(dialog).to_have_count(0)


def test_a_read_only_session_goes_on_in_a_copy(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo).page
    open_session(page, "Port the parser to streaming")
    expect(page.get_by_text("Imported from Claude code: read-only.")).to_be_visible()
    expect(page.get_by_role("textbox", name=WRITE)).to_have_count(0)

    page.get_by_role("button", name="Continue in a copy").click()

    expect(page.get_by_role("textbox", name=WRITE)).to_be_visible()
    expect(page.locator(".message.user")).to_contain_text("Read the file in chunks")


def test_live_says_which_chat_is_where_and_resets_it(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo, "/live").page
    chat = page.get_by_role("listitem").filter(has_text="The kitchen tap")
    expect(chat).to_contain_text("last reset: idle")
    expect(chat).to_contain_text("Me•••")
    page.get_by_label("Hide names of people and chats").uncheck()
    expect(chat).to_contain_text("Mei")

    chat.get_by_role("button", name="Reset Mei").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()

    expect(chat).to_contain_text("last reset: on request")


def test_a_search_without_hits_says_what_was_searched(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo, "/search?q=xyzzyqwert").page

    expect(page.get_by_text("No results for")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ sessions were searched"))).to_be_visible()


def test_who_is_logged_out_comes_back_to_the_same_place(empty: Served, visit: Visitor) -> None:
    seen = visit(empty, "/settings")
    page = seen.page
    page.get_by_label("New password").fill("correct horse battery")
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password changed")).to_be_visible()
    seen.context.clear_cookies()

    page.goto(f"{empty.address}/usage?by=model")
    expect(page).to_have_url(re.compile(r"/login\?next="))
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Log in").click()

    expect(page).to_have_url(re.compile(r"/usage\?by=model$"))
    expect(page.get_by_role("heading", name="Usage")).to_be_visible()
