"""A store that cannot be written: everything is read as before, every write is refused."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.conftest import Program
from tests.cli.test_refusals import obey_permissions
from tests.cli.test_serve import get


@contextmanager
def locked(program: Program) -> Iterator[None]:
    """Take the right to write away from the directory and from all in it."""
    for file in program.home.iterdir():
        file.chmod(0o400)
    program.home.chmod(0o500)
    try:
        yield
    finally:
        program.home.chmod(0o700)


@pytest.fixture(params=["with an index", "without an index"])
def filled(sessionary: Program, request: pytest.FixtureRequest) -> Program:
    sessionary.append("new", "the harbour is closed", "--title", "Harbours")
    if request.param == "with an index":
        assert sessionary("search", "harbour").code == 0
    return sessionary


def test_what_is_there_can_be_listed_shown_searched_and_exported(filled: Program) -> None:
    commands: list[tuple[str, ...]] = [
        ("sessions", "list"),
        ("sessions", "show", "Harbours"),
        ("search", "harbour"),
        ("export", "--all"),
    ]

    with locked(filled):
        answers = [filled.run(*each, preexec_fn=obey_permissions) for each in commands]
        refused = filled.run("sessions", "append", "Harbours", "no", preexec_fn=obey_permissions)

    for command, answer in zip(commands, answers, strict=True):
        assert answer.code == 0, (command, answer.err)
        assert "arbour" in answer.out, command
    assert refused.code == 1
    assert str(filled.database) in refused.line


def test_a_server_serves_reads_and_refuses_writes(filled: Program) -> None:
    token = filled("tokens", "add", "--scope", "write", "--json").json["token"]

    with locked(filled):
        process = subprocess.Popen(
            [sys.executable, "-m", "sessionary", "serve", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "SESSIONARY_HOME": str(filled.home)},
            preexec_fn=obey_permissions,  # noqa: PLW1509  # nothing else runs in this process
        )
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            listed = get(ready["address"], "/api/v1/sessions", token)
            found = get(ready["address"], "/api/v1/search?q=harbour", token)
            refused = post(ready["address"], "/api/v1/sessions", token, {"text": "no"})
            process.terminate()
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()

    assert ready["login_link"] is None
    assert str(filled.database) in ready["cannot_write"]
    assert [item["title"] for item in listed[1]["items"]] == ["Harbours"]
    assert found[1]["total"] >= 1
    status, problem = refused
    assert (status, problem["committed"]) == (503, "no")
    assert problem["type"] == "urn:sessionary:problem:store-read-only"
    assert process.returncode == 0
    # Nothing was begun that would fail every second.
    assert log.decode().count("cannot be written to") == 1


def post(address: str, path: str, token: str, body: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{address}{path}", data=json.dumps(body).encode(), headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
