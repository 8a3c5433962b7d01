"""The programs of `examples/`: clean under strict type checkers, and run on both databases."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessionary import Sessionary
from tests.project.code import ROOT
from tests.support.external_server import port_of, reserved_port

EXAMPLES = ROOT / "examples"
# Both workers of a server have answered after this time, also on a busy machine.
WORKERS_SECONDS = 120.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, home: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{home / 'sessionary.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


def environ(home: Path, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(home),
        "SESSIONARY_HOME": str(home),
        "SESSIONARY_DATABASE": url,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(home: Path, url: str, program: str, *args: str) -> list[str]:
    """Run a program as a person would, and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / program, *args],
        env=environ(home, url),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_bot_answers_and_remembers(home: Path, url: str) -> None:
    first = run(home, url, "bot.py", "What is a plum?", "--database", url)
    second = run(home, url, "bot.py", "And a prune?", "--database", url)

    assert first[0].rstrip() == "You have asked 1 questions so far."
    assert second[0].rstrip() == "You have asked 2 questions so far."
    with Sessionary(url) as s:
        chat = s.session("alice")
        last = list(chat.messages())[-1]
        assert chat.read_file(last.message.parts[1].blob) == b"What is a plum?\nAnd a prune?"  # type: ignore[union-attr]
        assert chat.head().tool_call_count == 2
        assert [each.group for each in s.usage("model")] == ["clerk"]


def test_the_worker_goes_on_where_it_stopped(home: Path, url: str) -> None:
    with Sessionary(url) as s:
        chat = s.session("alice")
        chat.append("user", "one")
        chat.rename("Numbers")
        chat.append("assistant", "two")
    arguments = (str(home / "position.txt"), "--quiet-seconds", "0")

    first = run(home, url, "worker.py", *arguments)
    with Sessionary(url) as s:
        s.session("alice").append("user", "three")
    second = run(home, url, "worker.py", *arguments)

    assert first == ["Numbers: user: one", "Numbers: assistant: two"]
    assert second[-1] == "Numbers: user: three"
    assert "Numbers: user: one" not in second


@contextmanager
def served(home: Path, url: str, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a web server for the block."""
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *command], env=environ(home, url), stdout=log, stderr=log
        )
    try:
        yield server
    finally:
        server.terminate()
        assert server.wait(120) in (0, -15, 143), (home / "server.log").read_text()


def post(address: str, text: str) -> dict[str, object] | None:
    """Post a message; None while nobody listens yet. One that is posted again is stored once."""
    request = urllib.request.Request(
        f"{address}/chats/alice/messages",
        json.dumps({"text": text, "id": text}).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, object] = json.loads(answer.read())
            return found
    except (urllib.error.URLError, ConnectionError):
        return None


def get(address: str) -> list[str]:
    with urllib.request.urlopen(address, timeout=60) as answer:
        found: list[str] = json.loads(answer.read())
        return found


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else gets."""
    with reserved_port() as reservation:
        yield port_of(reservation)


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_the_web_application_runs_in_several_workers(
    home: Path, url: str, server: str, port: int
) -> None:
    with Sessionary(url):
        pass  # creates the schema
    address = f"http://127.0.0.1:{port}"
    command = {
        "uvicorn": ["uvicorn", "web_app:app", "--app-dir", str(EXAMPLES), "--port", str(port)],
        "gunicorn": ["gunicorn", "web_app:app", "--chdir", str(EXAMPLES), "--preload"],
    }[server]
    # On a busy machine a worker may be silent for longer than the servers let it by default.
    if server == "gunicorn":
        command += ["--worker-class", "asgi", "--bind", f"127.0.0.1:{port}", "--timeout", "120"]
    else:
        command += ["--timeout-worker-healthcheck", "120"]
    with served(home, url, *command, "--workers", "2") as process:
        while (first := post(address, "hello")) is None:
            assert process.poll() is None, (home / "server.log").read_text()
        workers = {first["worker"]}
        count = 1
        deadline = time.monotonic() + WORKERS_SECONDS
        while len(workers) < 2 and time.monotonic() < deadline:
            done = post(address, f"hello {count}")
            assert done is not None
            workers.add(done["worker"])
            count += 1

        assert len(workers) == 2
        assert len(get(f"{address}/chats/alice/messages")) == count
        assert get(f"{address}/search?q=hello") != []


def test_pyright_finds_nothing_in_strict_mode(tmp_path: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        "include": [str(EXAMPLES)],
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))

    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", tmp_path, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "0 errors" in done.stdout


def test_pyright_sees_a_typo_and_a_forgotten_await(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from sessionary import AsyncSessionary, Sessionary\n\n\n"
        "async def main() -> None:\n"
        "    async with AsyncSessionary() as s:\n"
        '        s.session("alice").append("user", "hello")\n'
        '        print((await s.session("alice").head()).titel)\n\n\n'
        "with Sessionary() as s:\n"
        '    s.session("alice").append("usr", "hello", idempotencykey="x")\n'
    )
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "-p", tmp_path),
            *("--pythonpath", sys.executable, "--outputjson"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    rules = {each["rule"] for each in json.loads(done.stdout)["generalDiagnostics"]}
    assert {"reportUnusedCoroutine", "reportAttributeAccessIssue"} <= rules
    assert rules & {"reportCallIssue", "reportArgumentType"}
