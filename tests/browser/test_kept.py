"""What someone typed is neither lost nor offered twice, whatever they do next."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Response, expect

from tests.browser.conftest import (
    WRITE,
    Served,
    Visit,
    Visitor,
    eventually,
    hold,
    wait_for_reply,
)

pytestmark = pytest.mark.timeout(300)
# What a browser has only where a page came encrypted, or from the machine itself.
NOT_SECURE = """
    delete Crypto.prototype.randomUUID
    for (const name of ['clipboard', 'locks', 'serviceWorker']) delete Navigator.prototype[name]
"""


def box(page: Page) -> Locator:
    return page.get_by_role("textbox", name=WRITE)


def begun(seen: Visit, text: str = "hello") -> Page:
    seen.asks(text)
    wait_for_reply(seen.page, "no model was asked")
    return seen.page


def is_draft(answer: Response) -> bool:
    return answer.request.method == "PATCH" and "draft" in (answer.request.post_data or "")


def test_words_that_were_sent_are_not_offered_again(talking: Served, visit: Visitor) -> None:
    page = begun(visit(talking))
    with page.expect_response(is_draft):
        box(page).fill("list the files")

    page.keyboard.press("Enter")
    expect(box(page)).to_have_value("")
    page.reload()

    expect(page.locator(".message.user").nth(1)).to_contain_text("list the files")
    expect(box(page)).to_have_value("")


def test_a_message_whose_answer_was_lost_is_sent_once(talking: Served, visit: Visitor) -> None:
    page = begun(visit(talking))
    page.route("**/turns", lambda route: (route.fetch(), route.abort()))
    box(page).fill("list the files")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Your text is still here")
    page.unroute_all()
    page.reload()
    expect(page.locator(".message.user")).to_have_count(2)
    expect(box(page)).to_have_value("list the files")

    box(page).focus()
    page.keyboard.press("Enter")

    expect(box(page)).to_have_value("")
    expect(page.locator(".message.assistant").nth(1)).to_contain_text("two files")
    expect(page.locator(".message.user")).to_have_count(2)
    page.reload()
    expect(page.locator(".message.assistant").nth(1)).to_contain_text("two files")
    expect(page.locator(".message.user")).to_have_count(2)


def test_words_typed_while_others_are_on_their_way_stay(talking: Served, visit: Visitor) -> None:
    page = begun(visit(talking))
    waiting = hold(page, "**/turns")
    box(page).fill("list the files")
    page.keyboard.press("Enter")
    eventually(page, lambda: waiting)

    page.keyboard.type(" and then")
    waiting[0].continue_()

    expect(page.locator(".message.user").nth(1)).to_contain_text("list the files")
    expect(box(page)).to_have_value("and then")


def test_an_edit_leaves_alone_what_was_being_written(talking: Served, visit: Visitor) -> None:
    page = begun(visit(talking))
    box(page).fill("half a thought")
    page.locator(".message.user").hover()
    page.get_by_role("button", name="Edit and resend").click()
    expect(box(page)).to_have_value("hello")

    page.get_by_role("button", name="Cancel").click()
    expect(box(page)).to_have_value("half a thought")

    page.locator(".message.user").hover()
    page.get_by_role("button", name="Edit and resend").click()
    box(page).fill("list the files")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user")).to_have_text(re.compile("list the files"))
    expect(box(page)).to_have_value("half a thought")


def test_an_edited_message_keeps_its_files(talking: Served, visit: Visitor, tmp_path: Path) -> None:
    seen = visit(talking)
    page = seen.page
    (tmp_path / "notes.txt").write_text("three apples")
    page.locator("input[type=file]").set_input_files(tmp_path / "notes.txt")
    expect(page.locator(".upload")).to_contain_text("12 B")
    begun(seen, "hello with a file")

    page.locator(".message.user").hover()
    page.get_by_role("button", name="Edit and resend").click()
    expect(page.locator(".upload")).to_contain_text("notes.txt")
    seen.says("hello with the same file")

    asked = page.locator(".message.user", has_text="the same file")
    with page.expect_download() as kept:
        asked.get_by_role("link", name="notes.txt").click()
    assert Path(kept.value.path()).read_text() == "three apples"
    expect(page.locator(".upload")).to_have_count(0)


def test_a_filter_of_several_words_can_be_typed_slowly(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    words = page.get_by_role("searchbox", name="Filter titles")
    words.press_sequentially("kitchen ")
    expect(page).to_have_url(re.compile(r"text=kitchen$"))

    words.press_sequentially("tap")

    expect(page).to_have_url(re.compile(r"text=kitchen\+tap$"))
    expect(page.locator('.session-row[title="The kitchen tap"]')).to_be_visible()


def test_a_file_that_a_proxy_refuses_says_so(
    talking: Served, visit: Visitor, tmp_path: Path
) -> None:
    page = visit(talking).page
    (tmp_path / "large.txt").write_text("x")
    page.route("**/blobs?*", lambda route: route.fulfill(status=413, body="<html>Too Large</html>"))

    page.locator("input[type=file]").set_input_files(tmp_path / "large.txt")

    expect(page.locator(".upload").get_by_role("alert")).to_contain_text("413")


def test_a_page_that_came_unencrypted_over_the_network_can_do_the_same(
    talking: Served, visit: Visitor
) -> None:
    page = begun(visit(talking, script=NOT_SECURE))
    page.locator(".message.user").hover()
    page.get_by_role("button", name="Copy as Markdown").first.click()
    box(page).focus()
    page.keyboard.press("Control+v")

    expect(box(page)).to_have_value("hello")
