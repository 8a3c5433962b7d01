"""`sessionary serve`, as a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.cli.conftest import Program


@contextmanager
def serving(
    program: Program, *args: str, files: int | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", dict[str, Any]]]:
    """A server on a free port, and what it says of itself."""
    limited = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    process = subprocess.Popen(
        [*limited, sys.executable, "-m", "sessionary", "serve", "--port", "0", "--json", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SESSIONARY_HOME": str(program.home)},
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def get(address: str, path: str, token: str | None = None) -> tuple[int, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def test_it_answers_who_has_a_token_and_nobody_else(sessionary: Program) -> None:
    token = sessionary("tokens", "add", "--json").json["token"]
    sessionary.append("new", "hello", "--title", "Capitals")

    with serving(sessionary) as (_, ready):
        refused = get(ready["address"], "/api/v1/sessions")
        listed = get(ready["address"], "/api/v1/sessions", token)

    assert refused[0] == 401
    assert [item["title"] for item in listed[1]["items"]] == ["Capitals"]


def test_it_ends_when_it_is_asked_to(sessionary: Program) -> None:
    with serving(sessionary) as (process, _):
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)

    assert code == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_it_refuses_an_address_that_others_reach_without_a_password(
    sessionary: Program, host: str
) -> None:
    answer = sessionary("serve", "--host", host, "--port", "0")

    assert answer.code == 1
    assert "sessionary password set" in answer.line


def test_it_names_a_channel_that_it_does_not_know(sessionary: Program) -> None:
    sessionary.home.mkdir()
    (sessionary.home / "sessionary.toml").write_text("[channels.telegraph]\n")

    answer = sessionary("serve", "--port", "0")

    assert answer.code == 1
    assert "telegraph" in answer.line


def test_a_link_from_the_command_line_lets_a_browser_in_once(sessionary: Program) -> None:
    sessionary.append("new", "hello")
    with serving(sessionary) as (_, ready):
        answer = sessionary("password", "link", "--address", ready["address"], "--json")
        link = answer.json["login_link"]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

        with browser.open(link, timeout=60):
            pass
        with browser.open(f"{ready['address']}/api/v1/me", timeout=60) as me:
            scope = json.loads(me.read())["scope"]
        with pytest.raises(urllib.error.HTTPError) as again:
            urllib.request.urlopen(link, timeout=60)
        again.value.close()

    assert scope == "admin"
    assert again.value.code == 403


def test_a_flood_of_connections_does_not_use_up_the_files(sessionary: Program) -> None:
    sessionary.append("new", "hello")
    with ExitStack() as ending:
        process, ready = ending.enter_context(serving(sessionary, files=400))
        for _ in range(600):
            flooding = ending.enter_context(socket.socket())
            flooding.setblocking(False)
            flooding.connect_ex(("127.0.0.1", ready["port"]))

        with urllib.request.urlopen(f"{ready['address']}/healthz", timeout=60) as answer:
            health = answer.status
        process.terminate()
        _, errors = process.communicate(timeout=60)

    assert health == 200
    assert b"Too many open files" not in errors
    assert b"Connections: " in errors
