"""Wheel and sdist: they carry the built workbench, so that installing a release needs no Node."""

import importlib.util
import json
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.code import ROOT

DIST = "hansard/web/dist"
# Runs `hansard` where only what the package itself asks for can be imported.
ALONE = """
import re, sys
from importlib.metadata import distribution, packages_distributions
from packaging.requirements import Requirement

def needs(name, extras=frozenset(), seen=None):
    seen = {} if seen is None else seen
    if not extras - seen.get(name, frozenset()) and name in seen:
        return seen
    seen[name] = seen.get(name, frozenset()) | extras
    for line in distribution(name).requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or any(
            wanted.marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            needs(re.sub("[-_.]+", "-", wanted.name).lower(), frozenset(wanted.extras), seen)
    return seen

allowed = set(needs("hansard"))
foreign = {
    name for name, homes in packages_distributions().items()
    if not {re.sub("[-_.]+", "-", home).lower() for home in homes} & allowed
}
for name in [each for each in sys.modules if each.partition(".")[0] in foreign]:
    del sys.modules[name]

class Door:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in foreign:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Door())
from hansard.cli import main
sys.exit(main(sys.argv[1:]))
"""


def hook(root: Path) -> ModuleType:
    """The build hook of a source tree."""
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python -m build` makes of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_wheel_carries_the_workbench_and_nothing_that_builds_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")

    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()

    assert f"{DIST}/index.html" in names
    assert any(name.startswith(f"{DIST}/assets/") and name.endswith(".js.br") for name in names)
    assert [name for name in names if name.endswith((".svelte", ".ts"))] == []
    assert [name for name in names if not name.startswith(("hansard/", "hansard-"))] == []


def test_a_wheel_is_made_from_the_sdist_without_node(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()

    made = hook(root)

    assert made.is_fresh(root)
    for name in ("hansard.example.toml", "CONTRIBUTING.md", "dev", "requirements.lock"):
        assert (root / name).is_file(), name


def test_a_tree_whose_workbench_is_not_built_asks_for_node(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<html>")

    made = hook(ROOT)

    assert not made.is_fresh(tmp_path)
    assert made.NODE in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_an_installation_without_extras_serves_the_workbench(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ALONE, "--home", str(tmp_path), "--json"]
    with subprocess.Popen(
        [*command, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        try:
            with urllib.request.urlopen(f"{said['address']}/", timeout=10) as page:
                assert b'id="app"' in page.read()
            with urllib.request.urlopen(said["login_link"], timeout=10) as page:
                assert page.status == 200
        finally:
            process.terminate()
            assert process.wait(30) == 0
