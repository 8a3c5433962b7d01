"""Makes the pictures of docs/images again: `.venv/bin/python docs/images.py` (needs Chromium)."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from hansard.app import demo
from hansard.app.house import open_house
from tests.browser.conftest import FLAGS, PHONE, Served, served

IMAGES = Path(__file__).parent / "images"
WINDOW = {"width": 1280, "height": 800}
PAGES = {"search": "/search?q=disk", "live": "/live", "usage": "/usage", "settings": "/settings"}


def main() -> None:
    """Fill a store, serve it, and look at it in both themes and on a phone."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        with open_house(home=home, create=True) as house:
            demo.fill(house)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with served(Path(home)) as server:
            state = log_in(browser, server)
            for theme in ("light", "dark"):
                take(browser, server, state, theme=theme)
            take_phone(browser, server, state)
        browser.close()


def log_in(browser: Browser, server: Served) -> dict[str, object]:
    """Use the link up; its cookie serves every picture."""
    context = browser.new_context()
    context.new_page().goto(server.login_link)
    return dict(context.storage_state())


def take(browser: Browser, server: Served, state: dict[str, object], *, theme: str) -> None:
    """Every page in one theme."""
    context = browser.new_context(viewport=WINDOW, color_scheme=theme, storage_state=state)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(server.address)
    page.locator(".item", has_text="Why").first.click()
    page.locator(".message").first.wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / f"workbench-{theme}.png")
    page.keyboard.press("Control+k")
    page.keyboard.type("retention rule")
    page.locator(".option .snippet").first.wait_for()
    page.screenshot(path=IMAGES / f"palette-{theme}.png")
    for name, path in PAGES.items():
        page.goto(server.address + path)
        page.wait_for_timeout(700)
        page.screenshot(path=IMAGES / f"{name}-{theme}.png")
    context.close()


def take_phone(browser: Browser, server: Served, state: dict[str, object]) -> None:
    """The list and a session on a phone."""
    context = browser.new_context(viewport=PHONE, has_touch=True, storage_state=state)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(server.address)
    page.locator(".item").first.wait_for()
    page.screenshot(path=IMAGES / "phone-list.png")
    page.locator(".item", has_text="Why").first.tap()
    page.locator(".message").first.wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "phone-session.png")
    context.close()


if __name__ == "__main__":
    main()
