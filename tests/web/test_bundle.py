"""What a browser loads first is small, and asks nobody but us. Needs the workbench to be built."""

import re
from pathlib import Path

import pytest

from sessionary.web.routes import static

MOST_BYTES = 110_000
FIRST = re.compile(r'<(?:script|link)[^>]+(?:src|href)="(/assets/[^"]+\.(?:js|css))"')
IMPORTED = re.compile(r'(?:^|[;}\n])import\s*(?:[^"\'`;()]*?from\s*)?["\'`]\./([\w.-]+\.js)["\'`]')


@pytest.fixture(scope="module")
def page() -> str:
    shell = static.DIST / "index.html"
    assert shell.is_file(), "the workbench is not built: ./dev setup"
    return shell.read_text(encoding="utf-8")


def first_files(page: str) -> set[Path]:
    """What the page names, and what that imports before it can run."""
    found: set[Path] = set()
    wanted = [static.DIST / path.removeprefix("/") for path in FIRST.findall(page)]
    while wanted:
        file = wanted.pop()
        if file not in found:
            found.add(file)
            text = file.read_text(encoding="utf-8") if file.suffix == ".js" else ""
            wanted += [file.parent / name for name in IMPORTED.findall(text)]
    return found


def transferred(file: Path) -> int:
    """Bytes a browser loads: the compressed file, or the file itself where it is too small for one."""
    compressed = file.with_name(f"{file.name}.gz")
    return (compressed if compressed.exists() else file).stat().st_size


def test_scripts_and_styles_of_the_first_load_are_small(page: str) -> None:
    files = first_files(page)

    size = sum(transferred(file) for file in files)

    assert {file.suffix for file in files} == {".js", ".css"}
    assert size <= MOST_BYTES, {file.name: file.stat().st_size for file in files}


def test_the_page_names_nothing_of_anyone_else(page: str) -> None:
    assert re.findall(r'(?:src|href)="(?!/)[^"]*"', page) == []
    assert "<script>" not in page
    assert " style=" not in page
    assert "<style" not in page


def test_every_file_that_is_built_comes_compressed_too() -> None:
    plain = [
        file
        for file in static.DIST.rglob("*")
        if file.suffix in (".js", ".css", ".html") and file.stat().st_size > 1000
    ]

    assert plain
    for file in plain:
        for ending in (".br", ".gz"):
            packed = file.with_name(file.name + ending)
            assert packed.stat().st_size < file.stat().st_size, packed
