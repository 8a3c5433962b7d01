"""`sessionary proxy` as people run it, and the proxy beside `sessionary serve`."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionary.cli.main import main
from sessionary.config.proxy import parse_upstream
from sessionary.errors import BadInput
from tests.proxy.conftest import KEY, chat, said
from tests.proxy.test_refusals import written_in
from tests.support.external_server import port_of, reserved_port
from tests.support.raw_upstream import RawUpstream

BODY = json.dumps({"model": "gpt-5", "messages": [said("hello")]}).encode()


@asynccontextmanager
async def started(
    home: Path, *arguments: str
) -> AsyncIterator[tuple[Any, asyncio.subprocess.Process]]:
    """A command in a process of its own, and what it prints when it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sessionary", "--home", str(home), "--json", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SESSIONARY_HOME": str(home)},
    )
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline()), process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def asked(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n".encode()
        + BODY
    )
    answer = await reader.read()
    writer.close()
    return answer


async def listed(home: Path) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sessionary", "--home", str(home), "--json", "sessions", "list"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return json.loads(out)


async def test_the_command_passes_on_records_and_stops_when_asked(tmp_path: Path) -> None:
    async with RawUpstream() as upstream:
        upstream.will(chat("hi"), chat("hi"))
        given = ("--upstream", upstream.url, "--upstream", f"mine={upstream.url}/base/v1")
        async with started(tmp_path, "proxy", "--port", "0", *given) as (told, process):
            first = await asked(told["port"], "/v1/chat/completions")
            second = await asked(told["port"], "/mine/v1/chat/completions")
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()

        assert first.startswith(b"HTTP/1.1 200")
        assert second.startswith(b"HTTP/1.1 200")
        assert [each.target for each in upstream.requests] == [
            "/v1/chat/completions",
            "/base/v1/chat/completions",
        ]
    # What has no name may have paths that begin with /openai/, and its keys are not for OpenAI.
    assert sorted(told["bases"].values()) == [
        f"http://127.0.0.1:{told['port']}",
        f"http://127.0.0.1:{told['port']}/mine",
    ]
    assert told["upstreams"]["mine"].endswith("/base")
    assert (process.returncode, out, err) == (0, b"", b"Stopped.\n")
    sessions = (await listed(tmp_path))["items"]
    assert [each["source"]["platform"] for each in sessions] == ["proxy", "proxy"]
    assert KEY.encode() not in written_in(tmp_path)


async def test_the_server_runs_the_proxy_on_a_port_of_its_own(tmp_path: Path) -> None:
    reservation = reserved_port()
    port = port_of(reservation)
    async with RawUpstream() as upstream:
        upstream.will(chat("hi"))
        (tmp_path / "sessionary.toml").write_text(
            f'[proxy]\nport = {port}\n[proxy.upstreams.mine]\nurl = "{upstream.url}"\n'
        )
        async with started(tmp_path, "serve", "--port", "0", "--no-channels"):
            answer = await asked(port, "/mine/v1/chat/completions")

    reservation.close()
    assert answer.startswith(b"HTTP/1.1 200")
    [session] = (await listed(tmp_path))["items"]
    assert (session["title"], session["source"]["platform"]) == ("hello", "proxy")


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (["--host", "0.0.0.0"], "can be reached by others; nothing was begun"),
        (["--upstream", "ftp://example.org"], "An upstream is the address of an API"),
        (["--upstream", "https://user:secret-word@example.org"], "without a key in it"),
        (["--upstream", "https://example.org/?key=secret-word"], "without a key in it"),
        (["--upstream", "x=y"], "write URL or NAME=URL"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said_of_it: str
) -> None:
    code = main(["--home", str(tmp_path), "proxy", "--port", "0", *arguments])

    error = capsys.readouterr().err
    assert code != 0
    assert said_of_it in error
    assert "secret-word" not in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert main(["--home", str(tmp_path), "proxy", "--port", str(port)]) != 0

    assert f"Port {port} of 127.0.0.1 cannot be used" in capsys.readouterr().err


def test_an_upstream_is_written_with_or_without_a_name() -> None:
    assert parse_upstream("https://api.example.org/v1")[1].url == "https://api.example.org"
    name, table = parse_upstream("my-models=http://127.0.0.1:11434/")
    assert (name, table.url) == ("my-models", "http://127.0.0.1:11434")
    with pytest.raises(BadInput):
        parse_upstream("Große Modelle=https://example.org")
