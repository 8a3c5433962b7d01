"""A release in a fresh environment: it runs with no Node, and asks nobody on the network."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import sessionary
from tests.conftest import TOOLS
from tests.packaging.conftest import TIMEOUT_SECONDS, shared_folder
from tests.project.code import ROOT
from tests.support.environment import installed

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)
# Python runs this at its start. Whoever is asked for that is not this machine is written down.
WATCH = """
import os, sys

def refuse_network(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    if str(host) not in ("127.0.0.1", "::1", "localhost", "None", "b'127.0.0.1'"):
        with open(os.environ["ASKED_FILE"], "a") as file:
            file.write(f"{event} {host}\\n")
        raise OSError(f"there is no network: {host}")

sys.addaudithook(refuse_network)
"""


class Installation:
    """`sessionary` as someone has it who typed `pip install sessionary`."""

    def __init__(self, python: Path, home: Path) -> None:
        self._program = python.with_name("sessionary")
        self.asked = home.with_name("asked.txt")
        self.asked.touch()
        self.environ = {
            "PATH": str(python.parent),
            "HOME": str(home),
            "SESSIONARY_HOME": str(home / "sessionary"),
            "ASKED_FILE": str(self.asked),
            "LC_ALL": "C.UTF-8",
        }

    def run(self, *args: str) -> str:
        done = subprocess.run(
            [self._program, *args], env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *args: str) -> "subprocess.Popen[bytes]":
        command = [str(self._program), *args]
        return subprocess.Popen(command, env=self.environ, stdout=subprocess.PIPE)


@pytest.fixture(scope="session")
def installation(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel and what it asks for, in the versions of the lock, and nothing else."""

    def install(folder: Path) -> None:
        if (TOOLS / "bin").exists():
            (folder / "bin").symlink_to((TOOLS / "bin").resolve())
        (wheel,) = built.glob("*.whl")
        python = installed(folder, "fresh", (str(wheel), "-c", str(ROOT / "requirements.lock")))
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = python.parents[1] / "lib" / version / "site-packages"
        # Not as sitecustomize: a distribution's Python may have its own, which comes first.
        (packages / "watch_over_the_network.py").write_text(WATCH)
        (packages / "watch_over_the_network.pth").write_text("import watch_over_the_network\n")

    folder = shared_folder(tmp_path_factory, "installed", install)
    home = tmp_path_factory.mktemp("installation") / "home"
    home.mkdir()
    return Installation(folder / "fresh" / "bin" / "python", home)


def get(address: str) -> tuple[int, str]:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.status, answer.read().decode()


def test_it_says_its_version(installation: Installation) -> None:
    assert installation.run("--version").split()[-1] == sessionary.__version__


def test_it_is_tried_and_served_without_node_and_without_a_network(
    installation: Installation,
) -> None:
    filled = json.loads(installation.run("demo", "--sessions", "20", "--json"))
    assert filled["sessions"] >= 20

    with installation.start("serve", "--port", "0", "--json") as process:
        assert process.stdout is not None
        ready: Any = json.loads(process.stdout.readline())
        try:
            assert get(f"{ready['address']}/healthz")[0] == 200
            status, page = get(f"{ready['address']}/")
            logged_in, _ = get(ready["login_link"])
        finally:
            process.terminate()
            assert process.wait(120) == 0

    assert (status, logged_in) == (200, 200)
    assert 'id="app"' in page
    assert installation.asked.read_text() == ""


def test_the_watch_over_the_network_would_have_seen_it(installation: Installation) -> None:
    python = Path(installation.environ["PATH"]) / "python"
    asked = installation.environ | {"ASKED_FILE": f"{installation.asked}-proof"}
    program = "import socket; socket.create_connection(('192.0.2.1', 9))"

    done = subprocess.run([python, "-c", program], env=asked, capture_output=True, check=False)

    assert done.returncode != 0
    assert "192.0.2.1" in Path(asked["ASKED_FILE"]).read_text()
