"""Putting sessions in order, with a way back from everything."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Served, Visitor

pytestmark = pytest.mark.timeout(300)


def row(page: Page, title: str) -> Locator:
    return page.locator(f'.item[title="{title}"]')


def titles(page: Page, count: int) -> list[str]:
    rows = page.locator(".item")
    expect(rows.nth(count)).to_be_visible()
    return [rows.nth(place).get_attribute("title") or "" for place in range(count)]


def test_what_is_organised_can_be_undone(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page
    name = titles(page, 6)[4]
    row(page, name).click()
    title = page.locator(".head h1")
    expect(title).to_have_text(name)
    expect(page.locator(".message").first).to_be_visible()

    page.locator(".log").focus()
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Rename").fill("Mine")
    page.keyboard.press("Enter")
    expect(title).to_have_text("Mine")

    page.locator(".log").focus()
    page.keyboard.press("e")
    expect(row(page, "Mine")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(row(page, "Mine")).to_have_count(1)

    page.keyboard.press("End")
    page.keyboard.press("p")
    pin = page.get_by_role("button", name="Pin", exact=True)
    expect(pin).to_have_attribute("aria-pressed", "true")
    above = page.locator(".slot").filter(has=row(page, "Mine"))
    assert above.bounding_box()["y"] < page.get_by_text("Today").bounding_box()["y"]  # type: ignore[index]


def test_a_title_that_is_taken_is_asked_for_again(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page
    one, two = titles(page, 5)[3:5]
    row(page, one).focus()
    page.keyboard.press("F2")
    page.get_by_role("textbox", name="Rename").fill(two)
    page.keyboard.press("Enter")

    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("textbox", name="Rename")).to_have_value(two)
    page.get_by_role("button", name="Cancel").click()
    expect(row(page, one)).to_have_count(1)


def test_many_are_chosen_labelled_moved_trashed_and_come_back(
    lived_in: Served, visit: Visitor
) -> None:
    page = visit(lived_in, "/?source=slack").page
    names = titles(page, 3)
    row(page, names[0]).click(modifiers=["Control"])
    row(page, names[2]).click(modifiers=["Shift"])
    expect(page.get_by_text("3 selected")).to_be_visible()
    bar = page.get_by_role("toolbar", name="Selected sessions")

    bar.get_by_role("button", name="Label").click()
    page.get_by_role("textbox", name="Label").fill("urgent, review")
    page.get_by_role("button", name="Set labels").click()
    expect(page.get_by_text("Labels of 3 sessions changed")).to_be_visible()
    bar.get_by_role("button", name="Move to project").click()
    page.get_by_role("combobox", name="Move to project").select_option("Website")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_text("3 sessions moved to Website")).to_be_visible()
    bar.get_by_role("button", name="Move to trash").click()
    expect(page.get_by_text("3 sessions moved to trash")).to_be_visible()
    expect(row(page, names[0])).to_have_count(0)

    page.keyboard.press("z")
    for name in names:
        expect(row(page, name)).to_have_count(1)
    page.goto(f"{lived_in.address}/?label=urgent&project=Website")
    expect(page.locator(".item")).to_have_count(3)


def test_a_session_is_dropped_on_a_project(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page
    name = titles(page, 4)[3]
    project = page.get_by_role("group", name="Household")
    expect(project).to_be_visible()

    row(page, name).drag_to(project)

    expect(page.get_by_text("Moved to Household")).to_be_visible()
    page.get_by_role("button", name="Undo").click()


def test_a_project_is_made_renamed_and_deleted_and_its_sessions_stay(
    lived_in: Served, visit: Visitor
) -> None:
    page = visit(lived_in).page
    name = titles(page, 6)[5]
    row(page, name).focus()
    page.keyboard.press("m")
    page.get_by_role("combobox", name="Move to project").select_option("New project …")
    page.get_by_role("button", name="Move", exact=True).click()
    page.get_by_role("textbox", name="New project").fill("Garden")
    page.get_by_role("button", name="Create").click()
    project = page.get_by_role("group", name="Garden")
    expect(project).to_contain_text("1")

    project.get_by_role("button", name="More for Garden").click()
    page.get_by_role("button", name="Delete the project").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the project").click()

    expect(project).to_have_count(0)
    expect(row(page, name)).to_have_count(1)


def test_filters_are_counted_and_an_empty_one_says_the_way_out(
    lived_in: Served, visit: Visitor
) -> None:
    page = visit(lived_in).page
    page.get_by_role("button", name="Source").click()
    choice = page.get_by_label("Telegram")
    expect(page.locator(".choice", has=choice)).to_contain_text("Telegram")
    choice.check()
    page.get_by_label("Slack").check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Remove the filter Slack")).to_be_visible()

    page.get_by_role("searchbox", name="Filter titles").fill("no such title")
    expect(page.get_by_text("No session fits: telegram,slack, no such title.")).to_be_visible()
    page.get_by_role("link", name="Clear filters").click()

    expect(page.locator(".item").first).to_be_visible()
    expect(page).to_have_url(f"{lived_in.address}/")


def test_what_a_list_leaves_out_is_counted_and_shown(lived_in: Served, visit: Visitor) -> None:
    page = visit(lived_in).page

    page.get_by_role("link", name="Show", exact=True).click()

    expect(page.locator(".item", has_text="Morning summary").first).to_be_visible()
    expect(page.get_by_role("button", name="Shelf: Automation")).to_be_visible()


# Titles in the order of their letters below their heading; what is pinned stands above it.
IS_SORTED = """() => {
  const heading = [...document.querySelectorAll('.heading')].find((each) =>
    each.innerText.includes('By title'));
  const below = (name) =>
    heading.compareDocumentPosition(name) & Node.DOCUMENT_POSITION_FOLLOWING;
  const names = [...document.querySelectorAll('.item .name')].filter(below);
  const plain = names.map((name) => name.innerText).filter((name) => /^[ -~]/.test(name));
  const folded = plain.map((name) => name.replace(/[A-Z]/g, (up) => up.toLowerCase()));
  return folded.length > 3 && folded.every((name, at) => at === 0 || folded[at - 1] <= name);
}"""


def test_the_list_is_sorted_otherwise_and_the_address_says_so(
    lived_in: Served, visit: Visitor
) -> None:
    page = visit(lived_in).page
    expect(page.locator(".item").first).to_be_visible()

    page.get_by_role("button", name="More filters").click()
    page.get_by_role("button", name="Title", exact=True).click()

    expect(page).to_have_url(re.compile(r"sort=title"))
    expect(page.locator(".heading", has_text="By title")).to_be_visible()
    page.wait_for_function(IS_SORTED)

    page.get_by_role("button", name="Sorted by Title").click()
    expect(page).not_to_have_url(re.compile(r"sort="))
    expect(page.get_by_role("button", name="Today")).to_be_visible()
