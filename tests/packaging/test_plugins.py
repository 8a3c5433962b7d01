"""The pages of docs/plugins: their packages are built, installed into a fresh environment, tested and used."""

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from sessionary.testing.channel_world import until
from tests.conftest import TOOLS
from tests.packaging.conftest import TIMEOUT_SECONDS, build, shared_folder
from tests.project.code import ROOT
from tests.support.environment import installed

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)
PAGES = ("channel", "agent", "importer", "command")
# A file of the package: its name in bold, then its content.
FILE = re.compile(r"^\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONFIGURATION = """
agent = "loud"

[agents.loud]
kind = "shout"

[channels.acme]
url = "{url}"
token_env = "ACME_TOKEN"
poll_seconds = 0.05

[access.acme]
allow = ["ada"]
"""


class PluginEnvironment:
    """A fresh environment with the packages of all pages, beside the libraries of the test environment."""

    def __init__(self, python: Path, sources: Path, home: Path) -> None:
        self.python = python
        self.sources = sources
        self.home = home
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "SESSIONARY_HOME": str(home),
            "ACME_TOKEN": "token",
            "LC_ALL": "C.UTF-8",
        }

    def sessionary(self, *args: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.python), "-m", "sessionary", *args]
        return subprocess.run(
            command, env=self.environ, capture_output=True, text=True, check=False
        )

    def serve(self) -> "subprocess.Popen[bytes]":
        command = [str(self.python), "-m", "sessionary", "serve", "--port", "0", "--json"]
        return subprocess.Popen(
            command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def configure(self, text: str) -> None:
        (self.home / "sessionary.toml").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    folder = tmp_path_factory.mktemp("plugins")
    for page in PAGES:
        text = (ROOT / "docs" / "plugins" / f"{page}.md").read_text(encoding="utf-8")
        for kind in ("package", "tests"):
            (folder / page / kind).mkdir(parents=True)
        for name, content in FILE.findall(text):
            # The tests run beside pytest's settings and without the module, which must be the installed one.
            kinds = ("package", "tests") if name == "pyproject.toml" else ("tests",)
            for kind in ("package",) if name.startswith("sessionary_") else kinds:
                (folder / page / kind / name).write_text(content, encoding="utf-8")

    def install(shared: Path) -> None:
        for page in PAGES:
            build(folder / page / "package", shared / "wheels", "--wheel")
        if (TOOLS / "bin").exists():
            (shared / "bin").symlink_to((TOOLS / "bin").resolve())
        wheels = sorted(map(str, (shared / "wheels").glob("*.whl")))
        python = installed(shared, "fresh", ("--no-deps", *wheels))
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = python.parents[1] / "lib" / version / "site-packages"
        ours = (ROOT / "src", sysconfig.get_paths()["purelib"])
        (packages / "test_environment.pth").write_text("".join(f"{path}\n" for path in ours))

    shared = shared_folder(tmp_path_factory, "plugin-environment", install)
    home = folder / "home"
    home.mkdir()
    return PluginEnvironment(shared / "fresh" / "bin" / "python", folder, home)


@pytest.mark.parametrize("page", PAGES)
def test_the_package_of_the_page_passes_the_suite(plugins: PluginEnvironment, page: str) -> None:
    folder = plugins.sources / page / "tests"

    done = subprocess.run(
        [plugins.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=folder, env=plugins.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(r"\d+ passed", done.stdout)


async def test_the_channel_delivers_the_reply_of_the_agent(
    plugins: PluginEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(plugins.sources / "channel" / "package")
    spec = importlib.util.spec_from_file_location(
        "page_of_the_channel", plugins.sources / "channel" / "tests" / "test_acme.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fake = module.FakeAcme()
    await fake.go_online()
    plugins.configure(CONFIGURATION.format(url=f"http://127.0.0.1:{fake.port}"))
    checked = plugins.sessionary("channels", "check", "acme")

    with plugins.serve() as server:
        assert server.stdout is not None
        try:
            await asyncio.to_thread(server.stdout.readline)  # printed when it is ready
            await fake.says("hello", number=1)
            await until(lambda: bool(fake.seen()) or server.poll() is not None, "no reply came")
        finally:
            server.terminate()
            _, err = server.communicate(timeout=60)
    await fake.go_offline()

    assert fake.seen() == ["HELLO!"], err.decode()
    assert fake.acknowledged(1)
    assert checked.stdout.startswith("The bot is logged in at http://127.0.0.1:")


def test_commands_name_the_plug_ins_and_their_versions(plugins: PluginEnvironment) -> None:
    plugins.configure(CONFIGURATION.format(url="http://127.0.0.1:1"))

    checked = plugins.sessionary("config", "check")
    listed = json.loads(plugins.sessionary("channels", "list", "--json").stdout)
    plugins.sessionary("demo", "--sessions", "1")
    doctor = plugins.sessionary("doctor")

    assert checked.returncode == 0, checked.stderr
    assert "channel acme (sessionary-acme 1.0)" in checked.stdout
    assert "agent kind shout (sessionary-shout 1.0)" in checked.stdout
    assert "importer jotter (sessionary-jotter 1.0)" in checked.stdout
    assert "command digest (sessionary-digest 1.0)" in checked.stdout
    assert {"acme", "telegram"} <= {each["name"] for each in listed["items"]}
    assert "ok    plug-in: channel acme (sessionary-acme 1.0)" in doctor.stdout, doctor.stderr


def test_the_importer_brings_words_calls_usage_and_title_once(plugins: PluginEnvironment) -> None:
    record = str(plugins.sources / "importer" / "tests" / "tea.jsonl")
    store = ("--database", str(plugins.home / "imported.db"))

    first = done(plugins.sessionary("import", record, *store))
    second = done(plugins.sessionary("import", record, *store))
    later = Path(record).stat().st_mtime_ns + 1_000_000_000
    os.utime(record, ns=(later, later))
    third = json.loads(done(plugins.sessionary("import", "jotter", record, "--json", *store)))
    shown = done(plugins.sessionary("show", "Tea", *store))
    [day] = json.loads(done(plugins.sessionary("usage", "--json", *store)))["items"]

    assert first == "Jotter: 1 session added, 0 extended: 4 new messages.\n"
    assert "1 of 1 file had not changed" in second
    assert (third["added"], third["messages"]) == (0, 0)
    assert "How long does green tea need?" in shown
    assert '-> lookup {"tea": "green"}' in shown
    assert "<- two minutes" in shown
    assert (day["calls"], day["input_tokens"], day["output_tokens"]) == (2, 60, 10)


def done(finished: "subprocess.CompletedProcess[str]") -> str:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_the_command_is_listed_and_called(plugins: PluginEnvironment) -> None:
    store = ("--database", str(plugins.home / "digest.db"))
    done(plugins.sessionary("sessions", "append", "new", "hello", "--title", "Tea", *store))

    shown = done(plugins.sessionary("digest", *store))
    empty = plugins.sessionary("digest", "--profile", "other", *store)

    assert shown == "SESSION  MESSAGES\nTea             1\n"
    assert (empty.returncode, empty.stderr) == (0, "Nobody wrote to an agent in this time.\n")
    assert "\nCommands of sessionary-digest 1.0:\n  digest\n" in done(plugins.sessionary("--help"))


def test_a_misspelt_name_or_setting_is_one_line_with_a_suggestion(
    plugins: PluginEnvironment,
) -> None:
    plugins.configure('[channels.acne]\nurl = "http://127.0.0.1:1"\n')
    kind = plugins.sessionary("config", "check")
    plugins.configure('[channels.acme]\nulr = "http://127.0.0.1:1"\ntoken_env = "ACME_TOKEN"\n')
    setting = plugins.sessionary("config", "check")

    assert kind.returncode == setting.returncode == 1
    assert kind.stderr.count("\n") == setting.stderr.count("\n") == 1
    assert "There is no channel 'acne'. Did you mean 'acme'? Installed:" in kind.stderr
    assert "[channels.acme]: there is no setting 'ulr'. Did you mean 'url'?" in setting.stderr
