"""Nobody is kept out: axe finds nothing on any page, in both themes."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Served, Visitor, settled

pytestmark = pytest.mark.timeout(300)
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
PAGES = ["/", "/search?q=disk", "/live", "/questions", "/usage", "/import", "/settings"]
# What has come when each of these pages is whole.
CONTENT = [".session-row", ".hit", ".item-list li", "h2", "table.data", "pre", "h2"]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

ANIMATIONS_END = """() => Promise.allSettled(document.getAnimations()
    .filter((each) => each.effect?.getComputedTiming().endTime !== Infinity)
    .map((each) => each.finished))"""


def problems(page: Page) -> list[str]:
    settled(page)
    # What is still fading in has too little contrast for now.
    page.evaluate(ANIMATIONS_END)
    # Evaluated, not added as a script: the page's own policy lets no script in.
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        "tags => axe.run(document, { runOnly: { type: 'tag', values: tags } })", TAGS
    )
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found["violations"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_where_nothing_is_yet(empty: Served, visit: Visitor, theme: str) -> None:
    seen = visit(empty)
    page = seen.page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    found = {}
    for path in ("/", "/?source=telegram", "/search?q=nothing", "/live", "/usage"):
        page.goto(empty.address + path)
        expect(page.get_by_role("heading").first).to_be_visible()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        found[path] = problems(page)
    seen.context.clear_cookies()
    page.goto(empty.address + "/login")
    expect(page.get_by_label("Password")).to_be_visible()
    found["/login"] = problems(page)

    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_a_phone(shared_demo: Served, visit: Visitor, theme: str) -> None:
    page = visit(shared_demo, "/search", phone=True).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(shared_demo.address)
    expect(page.locator(".session-row").first).to_be_visible()
    found = {"list": problems(page)}
    page.locator(".session-row").nth(2).tap()
    expect(page.locator(".message").first).to_be_visible()
    found["session"] = problems(page)

    assert {path: each for path, each in found.items() if each} == {}


def test_axe_finds_nothing_on_the_narrowest_screen(shared_demo: Served, visit: Visitor) -> None:
    page = visit(shared_demo).page
    page.set_viewport_size({"width": 320, "height": 568})
    found = {}
    for path, there in zip(PAGES, CONTENT, strict=True):
        page.goto(shared_demo.address + path)
        expect(page.locator(there).first).to_be_visible()
        found[path] = problems(page)
    page.goto(shared_demo.address)
    expect(page.locator(".session-row").first).to_be_visible()
    settled(page)
    page.locator(".session-row", has_text="Why").first.click()
    expect(page.locator(".message").first).to_be_visible()
    page.locator(".transcript").focus()
    page.keyboard.press("End")
    page.keyboard.press("t")
    expect(page.locator(".step .toggle").first).to_be_visible()
    settled(page)
    for fold in page.locator(".step .toggle").all()[:8]:
        fold.click()
    found["session"] = problems(page)

    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(shared_demo: Served, visit: Visitor, theme: str) -> None:
    page = visit(shared_demo).page
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    found = {}
    for path in PAGES:
        page.goto(shared_demo.address + path)
        expect(page.get_by_role("heading").first).to_be_visible()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        found[path] = problems(page)
    page.goto(shared_demo.address + "/")
    page.locator(".session-row", has_text="Why").first.click()
    expect(page.locator(".message").first).to_be_visible()
    page.locator(".transcript").focus()
    page.keyboard.press("t")
    page.locator(".step .toggle").nth(1).click()
    page.keyboard.press("i")
    expect(page.get_by_role("complementary", name="Details")).to_be_visible()
    found["session"] = problems(page)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("disk")
    expect(page.locator(".option .snippet").first).to_be_visible()
    found["palette"] = problems(page)
    page.keyboard.press("Escape")
    page.goto(shared_demo.address + "/?source=telegram")
    settled(page)
    page.locator(".session-row").first.click(modifiers=["Control"])
    expect(page.get_by_role("toolbar", name="Selected")).to_be_visible()
    page.get_by_role("button", name="More filters").click()
    found["selection and filters"] = problems(page)
    page.keyboard.press("Escape")
    page.get_by_role("toolbar", name="Selected").get_by_role("button", name="Export").click()
    expect(page.get_by_role("dialog", name="Export")).to_be_visible()
    found["export"] = problems(page)

    assert {path: each for path, each in found.items() if each} == {}
