"""Wheel and sdist: they carry the built workbench, so that installing a release needs no Node."""

import importlib.metadata
import importlib.util
import shutil
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.conftest import TIMEOUT_SECONDS
from tests.project.code import ROOT

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)
DIST = "sessionary/web/dist"


def hook(root: Path) -> ModuleType:
    """The build hook of a source tree."""
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheel_carries_the_workbench_and_nothing_that_builds_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")

    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()

    assert f"{DIST}/index.html" in names
    assert any(name.startswith(f"{DIST}/assets/") and name.endswith(".js.br") for name in names)
    assert [name for name in names if name.endswith((".svelte", ".ts"))] == []
    assert [name for name in names if not name.startswith(("sessionary/", "sessionary-"))] == []


def test_a_wheel_is_made_from_the_sdist_without_node(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    (root,) = tmp_path.iterdir()

    made = hook(root)

    assert made.is_fresh(root)
    assert made.has_prices(root)
    for name in ("sessionary.example.toml", "CONTRIBUTING.md", "dev", "requirements.lock"):
        assert (root / name).is_file(), name


def test_a_table_of_prices_that_other_sources_made_is_made_again(tmp_path: Path) -> None:
    made = hook(ROOT)
    made.build_prices(ROOT)
    folder = tmp_path / Path(made.PRICES).parent
    shutil.copytree((ROOT / made.PRICES).parent, folder)
    version = importlib.metadata.version("genai-prices")

    assert made.has_prices(tmp_path, version)
    assert not made.has_prices(tmp_path, "0.0.1")
    with (folder / "table.py").open("a") as table:
        table.write("# changed")
    assert not made.has_prices(tmp_path)


def test_a_tree_whose_workbench_is_not_built_asks_for_node(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<html>")

    made = hook(ROOT)

    assert not made.is_fresh(tmp_path)
    assert made.NODE in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
