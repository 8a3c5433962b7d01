"""The page «Write an importer»: its package is built, installed into a fresh environment and used."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import TOOLS
from tests.packaging.conftest import build
from tests.packaging.test_plugins import FILE, PluginEnvironment
from tests.project.code import ROOT
from tests.support.environment import installed


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    folder = tmp_path_factory.mktemp("importer")
    page = (ROOT / "docs" / "plugins" / "importer.md").read_text(encoding="utf-8")
    (folder / "package").mkdir()
    for name, content in FILE.findall(page):
        (folder / "package" / name).write_text(content, encoding="utf-8")
    build(folder / "package", folder / "wheels", "--wheel")
    if (TOOLS / "bin").exists():
        (folder / "bin").symlink_to((TOOLS / "bin").resolve())
    [wheel] = (folder / "wheels").glob("*.whl")
    python = installed(folder, "fresh", ("--no-deps", str(wheel)))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = python.parents[1] / "lib" / version / "site-packages"
    ours = (ROOT / "src", sysconfig.get_paths()["purelib"])
    (packages / "test_environment.pth").write_text("".join(f"{path}\n" for path in ours))
    (folder / "home").mkdir()
    return PluginEnvironment(python, folder, folder / "home")


def done(finished: "subprocess.CompletedProcess[str]") -> str:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_the_importer_of_the_page_brings_words_calls_usage_and_title_once(
    plugin: PluginEnvironment,
) -> None:
    record = str(plugin.sources / "package" / "tea.jsonl")

    first = done(plugin.sessionary("import", record))
    second = done(plugin.sessionary("import", record))
    later = Path(record).stat().st_mtime_ns + 1_000_000_000
    os.utime(record, ns=(later, later))
    third = json.loads(done(plugin.sessionary("import", "jotter", record, "--json")))
    shown = done(plugin.sessionary("show", "Tea"))
    [day] = json.loads(done(plugin.sessionary("usage", "--json")))["items"]

    assert first == "Jotter: 1 session added, 0 extended: 4 new messages.\n"
    assert "1 of 1 file had not changed" in second
    assert (third["added"], third["messages"]) == (0, 0)
    assert "How long does green tea need?" in shown
    assert '-> lookup {"tea": "green"}' in shown
    assert "<- two minutes" in shown
    assert (day["calls"], day["input_tokens"], day["output_tokens"]) == (2, 60, 10)
    assert "importer jotter (sessionary-jotter 1.0)" in done(plugin.sessionary("config", "check"))
