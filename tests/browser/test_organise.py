"""Putting sessions in order, with a way back from everything."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from sessionary import Sessionary
from sessionary.actions.sessions import append, projects
from sessionary.model.message import message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.model.usage import Usage
from tests.browser.conftest import Served, Visitor, eventually, settled

pytestmark = pytest.mark.timeout(300)


def row(page: Page, title: str) -> Locator:
    return page.locator(f'.session-row[title="{title}"]')


def titles(page: Page, count: int) -> list[str]:
    rows = page.locator(".session-row")
    expect(rows.nth(count)).to_be_visible()
    settled(page)
    return [rows.nth(place).get_attribute("title") or "" for place in range(count)]


def test_what_is_organised_can_be_undone(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo).page
    name = titles(page, 6)[4]
    row(page, name).click()
    title = page.locator(".session-header h1")
    expect(title).to_have_text(name)
    expect(page.locator(".message").first).to_be_visible()

    page.locator(".transcript").focus()
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Rename").fill("Mine")
    page.keyboard.press("Enter")
    expect(title).to_have_text("Mine")

    page.locator(".transcript").focus()
    page.keyboard.press("e")
    expect(row(page, "Mine")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(row(page, "Mine")).to_have_count(1)
    expect(page.locator(".transcript")).to_be_focused()

    page.keyboard.press("End")
    page.keyboard.press("p")
    pin = page.get_by_role("button", name="Pin", exact=True)
    expect(pin).to_have_attribute("aria-pressed", "true")
    pinned = page.locator(".row-slot").filter(has=row(page, "Mine"))
    today = page.get_by_text("Today")

    def stands_above() -> bool:
        upper, lower = pinned.bounding_box(), today.bounding_box()
        return upper is not None and lower is not None and upper["y"] < lower["y"]

    eventually(page, stands_above)


def test_a_title_that_is_taken_is_asked_for_again(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo).page
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
    own_demo: Served, visit: Visitor
) -> None:
    page = visit(own_demo, "/?source=slack").page
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
    page.goto(f"{own_demo.address}/?label=urgent&project=Website")
    expect(page.locator(".session-row")).to_have_count(3)


def test_a_session_is_dropped_on_a_project(own_demo: Served, visit: Visitor) -> None:
    page = visit(own_demo).page
    name = titles(page, 4)[3]
    project = page.get_by_role("group", name="Household")
    expect(project).to_be_visible()

    row(page, name).drag_to(project)

    expect(page.get_by_text("Moved to Household")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(row(page, name)).to_have_count(1)


def test_a_project_is_made_renamed_and_deleted_and_its_sessions_stay(
    own_demo: Served, visit: Visitor
) -> None:
    page = visit(own_demo).page
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
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    page.get_by_role("button", name="Source").click()
    choice = page.get_by_label("Telegram")
    expect(page.locator(".choice", has=choice)).to_contain_text("Telegram")
    choice.check()
    page.get_by_label("Slack").check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Remove filter: Slack")).to_be_visible()

    page.get_by_role("searchbox", name="Filter titles").fill("no such title")
    expect(page.get_by_text("No session matches: telegram,slack, no such title.")).to_be_visible()
    page.get_by_role("link", name="Clear filters").click()

    expect(page.locator(".session-row").first).to_be_visible()
    expect(page).to_have_url(f"{shared_demo.address}/")


def test_what_a_list_leaves_out_is_counted_and_shown(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page

    page.get_by_role("link", name=re.compile(r"Show: \d+ automation sessions hidden")).click()

    expect(page.locator(".session-row", has_text="Morning summary").first).to_be_visible()
    expect(page.get_by_role("button", name="Folder: Automation")).to_be_visible()


def test_archived_sessions_are_counted_among_the_hidden_within_the_filter(
    empty: Served, visit: Visitor
) -> None:
    with Sessionary(home=str(empty.home)) as client:
        for title in ("Roses", "Tulips"):
            client.new_session(title=title).append("user", "hello")
    page = visit(empty).page
    row(page, "Roses").focus()
    page.keyboard.press("e")
    hidden = page.locator(".hidden-sessions")
    expect(hidden).to_contain_text("1 archived session hidden")

    page.get_by_role("searchbox", name="Filter titles").fill("tulip")
    expect(row(page, "Tulips")).to_be_visible()
    expect(hidden).to_have_count(0)
    page.get_by_role("searchbox", name="Filter titles").fill("rose")
    expect(hidden).to_contain_text("1 archived session hidden")
    page.get_by_role("link", name="Show: 1 archived session hidden").click()

    expect(row(page, "Roses")).to_be_visible()
    expect(page.get_by_role("searchbox", name="Filter titles")).to_have_value("rose")


def test_a_purged_session_is_shown_as_gone_without_an_undo(empty: Served, visit: Visitor) -> None:
    with Sessionary(home=str(empty.home)) as client:
        id = client.new_session(title="Secret").append("user", "hello").session_id
    page = visit(empty, f"/s/{id}").page
    expect(page.locator(".message")).to_have_count(1)
    row(page, "Secret").focus()
    page.keyboard.press("#")
    expect(page.get_by_role("button", name="Restore")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()

    with Sessionary(home=str(empty.home)) as client:
        client.find(id).purge()

    expect(page.get_by_text("This session was permanently deleted.")).to_be_visible()
    expect(page.get_by_role("button", name="Restore")).to_have_count(0)
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    expect(page.get_by_role("button", name="Continue in a copy")).to_have_count(0)
    expect(page.get_by_text("hello")).to_have_count(0)


def test_a_chat_begun_in_a_projects_view_is_in_that_project(empty: Served, visit: Visitor) -> None:
    with Sessionary(home=str(empty.home)) as client:
        client.new_session(title="Elsewhere").append("user", "hello")
        client.store.write(projects.add, "Garden", profile="main", moment=client.moment()).result()
    seen = visit(empty)
    page = seen.page
    page.get_by_role("button", name="Garden 0").click()
    page.get_by_role("link", name="New chat").click()
    expect(page.get_by_text("The chat will be in the project Garden.")).to_be_visible()

    seen.asks("What about the roses?")

    expect(row(page, "What about the roses?")).to_be_visible()
    expect(row(page, "Elsewhere")).to_have_count(0)
    expect(page.get_by_role("button", name="Garden 1")).to_be_visible()
    id = page.url.partition("/s/")[2].partition("?")[0]
    with Sessionary(home=str(empty.home)) as client:
        assert client.head(id).project == "Garden"


def test_a_new_chat_by_its_key_stays_in_the_project_of_the_open_session(
    empty: Served, visit: Visitor
) -> None:
    with Sessionary(home=str(empty.home)) as client:
        client.store.write(projects.add, "Garden", profile="main", moment=client.moment()).result()
        id = client.new_session(title="Roses").append("user", "hello").session_id
        client.store.write(projects.move_session, id, "Garden", profile="main").result()
    page = visit(empty, f"/s/{id}?project=Garden&folder=all").page
    row(page, "Roses").focus()

    page.keyboard.press("n")

    expect(page).to_have_url(f"{empty.address}/?project=Garden")
    expect(page.get_by_text("The chat will be in the project Garden.")).to_be_visible()


def test_a_subagent_leaves_its_parents_row_for_the_trash_and_comes_back(
    own_demo: Served, visit: Visitor
) -> None:
    page = visit(own_demo).page
    title = "Read the query plans"
    page.get_by_role("button", name="3 subagents").click()
    row(page, title).focus()

    page.keyboard.press("#")
    expect(row(page, title)).to_have_count(0)
    expect(page.get_by_role("button", name="2 subagents")).to_be_visible()
    page.get_by_role("button", name="Undo").click()

    expect(row(page, title)).to_have_count(1)
    expect(page.get_by_role("button", name="3 subagents")).to_be_visible()


def test_an_empty_trash_is_called_empty(empty: Served, visit: Visitor) -> None:
    page = visit(empty, "/?folder=trash").page

    expect(page.get_by_text("The trash is empty.")).to_be_visible()


def test_the_filter_offers_a_model_that_no_listed_session_has(
    empty: Served, visit: Visitor
) -> None:
    with Sessionary(home=str(empty.home)) as client:
        for number in range(71):
            model = "usual" if number else "rare-model"
            opening = Opening("main", Source("api"), title=f"Talk {number}", model=model)
            saying = append.NewMessage(message("user", "hello"))
            client.store.write(
                append.append_to_new_session, opening, saying, moment=client.moment()
            ).result()
    page = visit(empty).page
    expect(page.locator(".session-row").first).to_be_visible()

    page.get_by_role("button", name="More filters").click()
    page.get_by_role("button", name="rare-model").click()

    expect(row(page, "Talk 0")).to_be_visible()
    expect(page.locator(".session-row")).to_have_count(1)


def test_the_tokens_of_a_session_include_the_cache(empty: Served, visit: Visitor) -> None:
    used = Usage(
        model="m",
        input_tokens=1_000,
        output_tokens=2_000,
        cache_read_tokens=30_000,
        cache_write_tokens=400_000,
    )
    with Sessionary(home=str(empty.home)) as client:
        chat = client.new_session(title="Long")
        id = chat.append("assistant", "hello", usage=used).session_id
    page = visit(empty, f"/s/{id}").page

    expect(page.locator(".session-header .facts")).to_contain_text("433k tokens")
    page.goto(f"{empty.address}/usage?by=session")
    expect(page.locator(".tiles")).to_contain_text("433kAll tokens")
    expect(page.locator("table.data tbody tr")).to_contain_text("433k1.0k2.0k30k400k")


# Titles in the order of their letters below their heading; what is pinned stands above it.
IS_SORTED = """() => {
  const heading = [...document.querySelectorAll('.group-heading')].find((each) =>
    each.innerText.includes('By title'));
  const below = (name) =>
    heading.compareDocumentPosition(name) & Node.DOCUMENT_POSITION_FOLLOWING;
  const names = [...document.querySelectorAll('.session-row .name')].filter(below);
  const plain = names.map((name) => name.innerText).filter((name) => /^[ -~]/.test(name));
  const folded = plain.map((name) => name.replace(/[A-Z]/g, (up) => up.toLowerCase()));
  return folded.length > 3 && folded.every((name, at) => at === 0 || folded[at - 1] <= name);
}"""


def test_the_list_is_sorted_otherwise_and_the_address_says_so(
    shared_demo: Served, visit: Visitor
) -> None:
    page = visit(shared_demo).page
    expect(page.locator(".session-row").first).to_be_visible()

    page.get_by_role("button", name="More filters").click()
    page.get_by_role("button", name="Title", exact=True).click()

    expect(page).to_have_url(re.compile(r"sort=title"))
    expect(page.locator(".group-heading", has_text="By title")).to_be_visible()
    eventually(page, IS_SORTED)

    page.get_by_role("button", name="Sorted by Title").click()
    expect(page).not_to_have_url(re.compile(r"sort="))
    expect(page.get_by_role("button", name="Today")).to_be_visible()
