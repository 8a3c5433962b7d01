"""An SDK is loaded when its integration is used; without it the error says how to install it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integrations.sdk_programs import ROOT

PACKAGE = ROOT / "src" / "sessionary" / "integrations"
# Each integration, the package that it needs, and the extra that brings it.
INTEGRATIONS = {
    "openai_agents": ("agents", "openai-agents"),
    "claude_agent_sdk": ("claude_agent_sdk", "claude-agent-sdk"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "google_adk": ("google.adk", "google-adk"),
    "agent_framework": ("agent_framework", "agent-framework"),
    "langchain": ("langchain_core", "langchain"),
    "langgraph": ("langchain_core", "langgraph"),
}
WITHOUT = """
import importlib.abc, sys
class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {package!r} or name.startswith({package!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
import sessionary.integrations.{module}
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_importing_sessionary_loads_no_sdk() -> None:
    program = """
import sys, sessionary, sessionary.integrations
from sessionary import Session, Sessionary, Source, Usage, open
open("sqlite::memory:").close()
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    loaded = set(run(program).stdout.split())

    sdks = {package.partition(".")[0] for package, _ in INTEGRATIONS.values()}
    assert "sessionary" in loaded
    assert loaded & (sdks | {"google", "langgraph", "openai", "anthropic", "pydantic"}) == set()


@pytest.mark.parametrize("module", INTEGRATIONS)
def test_without_its_extra_an_integration_says_one_clear_line(module: str) -> None:
    package, extra = INTEGRATIONS[module]

    done = run(WITHOUT.format(package=package, module=module))

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    wanted = {extra, "langchain"} if module == "langgraph" else {extra}
    assert re.match(r"ImportError: .+ needs an extra: install sessionary\[([\w-]+)\]", last)
    assert re.findall(r"sessionary\[([\w-]+)\]", last)[0] in wanted
    assert "During handling" not in done.stderr


def test_every_integration_is_here_and_has_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    loading = [file for file in PACKAGE.rglob("*.py") if _needs_an_extra(file)]

    # An integration is a module or a package.
    names = {file.relative_to(PACKAGE).with_suffix("").parts[0] for file in loading}
    assert names == set(INTEGRATIONS)
    assert {extra for _, extra in INTEGRATIONS.values()} <= set(project["optional-dependencies"])


def _needs_an_extra(file: Path) -> bool:
    return "\nwith require_extra(" in file.read_text(encoding="utf-8")
