"""The workbench as files."""

from pathlib import Path

import pytest

from sessionary.web.pages import login_page, own_path
from sessionary.web.routes.static import WebBundle
from tests.web.conftest import Served


@pytest.fixture
def bundle(tmp_path: Path) -> WebBundle:
    (tmp_path / "assets").mkdir()
    for name, data in {
        "index.html": b"<html>",
        "assets/app-1a2b.js": b"plain",
        "assets/app-1a2b.js.br": b"br",
        "assets/app-1a2b.js.gz": b"gz",
        "secret.txt": b"not for browsers",
    }.items():
        (tmp_path / name).write_bytes(data)
    return WebBundle.read(tmp_path)


@pytest.mark.parametrize(
    ("accepts", "body"), [("gzip, deflate, br", b"br"), ("gzip;q=1", b"gz"), ("", b"plain")]
)
def test_a_file_comes_in_the_form_that_the_browser_takes(
    bundle: WebBundle, accepts: str, body: bytes
) -> None:
    found = bundle.answer("assets/app-1a2b.js", accepts)

    assert found is not None
    assert found.body == body
    assert found.headers["vary"] == "Accept-Encoding"


def test_a_hashed_file_is_kept_for_ever_and_the_page_is_asked_for_again(bundle: WebBundle) -> None:
    script, page = bundle.answer("assets/app-1a2b.js", ""), bundle.answer("index.html", "")

    assert script is not None
    assert page is not None
    assert "immutable" in script.headers["cache-control"]
    assert page.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["secret.txt", "../pages.py", "assets/../index.html", "", "assets"]
)
def test_what_was_not_built_is_not_served(bundle: WebBundle, name: str) -> None:
    assert bundle.answer(name, "") is None


@pytest.mark.parametrize(
    "text",
    ["https://elsewhere.example", "//elsewhere.example", "/\\elsewhere", "javascript:1", "/a\nb"],
)
def test_a_login_leads_only_to_places_of_ours(text: str) -> None:
    assert own_path(text) == "/"
    assert 'value="/"' in login_page(next_path=text)


def test_a_login_leads_back_to_where_it_was_asked_for() -> None:
    assert own_path("/s/abc?q=x#m12") == "/s/abc?q=x#m12"
    assert "<script>" not in login_page("<script>", '/"><script>')


async def test_an_address_that_leads_nowhere_is_a_page_for_people(server: Served) -> None:
    browser = await server.fresh()

    page = await browser.get("/nowhere", headers={"Accept": "text/html,*/*"})
    program = await browser.get("/nowhere", headers={"Accept": "application/json"})

    assert (page.status_code, program.status_code) == (404, 404)
    assert "There is no such page." in page.text
    assert program.headers["content-type"] == "application/problem+json"
