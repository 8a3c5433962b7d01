"""A layer imports only layers below it: the contract in pyproject.toml, checked by import-linter."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.project.code import PACKAGE, ROOT

LAYERS = [
    {"testing"},
    {"__main__"},
    {"cli"},
    {"client"},
    {"app"},
    {
        *("web", "mcp", "acp", "proxy"),
        *("channels", "agents", "importers", "integrations", "compat", "telemetry"),
    },
    {"formats"},
    {"engine"},
    {"actions"},
    {"store"},
    {"prices"},
    {"model"},
    {"config", "errors", "clock", "plugins", "processes", "version"},
]


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--config", ROOT / "pyproject.toml", "--no-cache"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


def package_with(tmp_path: Path, **files: str) -> Path:
    """A small package named like ours, with one module for each `layer="its text"`."""
    package = tmp_path / "sessionary"
    package.mkdir()
    (package / "__init__.py").touch()
    for layer, text in files.items():
        (package / f"{layer}.py").write_text(text)
    return tmp_path


def test_a_layer_imports_only_layers_below_it() -> None:
    checked = lint(PACKAGE.parent)

    assert checked.returncode == 0, checked.stdout


def test_an_import_upwards_is_seen(tmp_path: Path) -> None:
    source = package_with(tmp_path, model="import sessionary.store", store="")

    assert "sessionary.model is not allowed to import sessionary.store" in lint(source).stdout


def test_an_edge_that_imports_another_is_seen(tmp_path: Path) -> None:
    source = package_with(tmp_path, web="import sessionary.mcp", mcp="")

    assert "sessionary.web is not allowed to import sessionary.mcp" in lint(source).stdout


def test_a_leaf_that_imports_another_layer_is_seen(tmp_path: Path) -> None:
    source = package_with(tmp_path, errors="import sessionary.model", model="")

    assert "sessionary.errors is not allowed to import sessionary.model" in lint(source).stdout


def test_a_package_that_is_in_no_layer_is_seen(tmp_path: Path) -> None:
    source = package_with(tmp_path, attic="")

    assert lint(source).returncode != 0


def test_the_contract_has_the_layers_in_their_order() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]

    layers = [
        {name.strip(" ()") for name in layer.replace(":", "|").split("|")}
        for layer in contract["layers"]
    ]

    assert layers == LAYERS
