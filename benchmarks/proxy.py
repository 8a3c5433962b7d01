"""What the recording proxy adds to a request: beside the upstream itself, and a bare reverse proxy of the same code."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks import web_server
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Sample, Scale

DIRECT = "the upstream, without a proxy"
BARE = "a bare reverse proxy, the same code without recording"
RECORDING = "sessionary, recording proxy"
AT_ONCE = (1, 16)
_LEAST_SECONDS = 2.0
# An upstream that answers at once, or like a model: the first word after 50 to 150 ms, then 20 pieces within 200 ms.
# Each answer says when its request came and when its end left, so that only the way is measured, not the model.
_UPSTREAM = """
import asyncio, random, time

WHOLE = b'{"id":"chatcmpl-1","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":"%b"},' \\
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":200},"at":"%020d/%020d"}'
PIECE = b'data: {"id":"chatcmpl-1","model":"gpt-5","choices":[{"index":0,' \\
    b'"delta":{"content":"ten words of an answer"}}]}\\n\\n'
END = b'data: {"id":"chatcmpl-1","model":"gpt-5","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],' \\
    b'"at":"%020d/%020d"}\\n\\ndata: [DONE]\\n\\n'
STREAM = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
JSON = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"

def chunk(data):
    return b"%x\\r\\n%b\\r\\n" % (len(data), data)

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            body = await reader.readexactly(length)
            came = time.monotonic_ns()
            if b'"stream"' not in body:
                whole = WHOLE % (b"word " * 200, came, time.monotonic_ns())
                writer.write(JSON % len(whole) + whole)
                continue
            await asyncio.sleep(random.uniform(0.05, 0.15))
            writer.write(STREAM)
            for _ in range(20):
                writer.write(chunk(PIECE))
                await asyncio.sleep(0.01)
            writer.write(chunk(END % (came, time.monotonic_ns())) + chunk(b""))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
_BARE = """
import asyncio, sys
from sessionary.proxy.server import ProxyServer, Recording, ServerOptions
from sessionary.proxy.upstream import Upstream

async def main():
    server = ProxyServer({None: Upstream(None, sys.argv[1])}, Recording(), ServerOptions())
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
_TIMES = re.compile(rb'"at":"(\d+)/(\d+)"')
_BODIES = {
    "an answer at once": b"",
    "a streamed answer of 250 to 350 ms": b',"stream":true',
}


class _Process:
    """A program that prints the port on which it listens."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.port: int = told if isinstance(told, int) else told["port"]
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


def cases(folder: Path, _: Scale) -> Iterator[Case]:
    """An upstream that answers at once, where the proxies only wait for the processor, and one like a model."""
    home = folder / "home"
    home.mkdir()
    with ExitStack() as stack:
        upstream = stack.enter_context(_Process(sys.executable, "-c", _UPSTREAM))
        address = f"http://127.0.0.1:{upstream.port}"
        bare = stack.enter_context(_Process(sys.executable, "-c", _BARE, address))
        command = (sys.executable, "-m", "sessionary", "--home", str(home), "--json", "proxy")
        own = stack.enter_context(_Process(*command, "--port", "0", "--upstream", address))
        ports = {DIRECT: upstream, BARE: bare, RECORDING: own}
        for what, more in _BODIES.items():
            for at_once in AT_ONCE:
                contestants = [
                    Contestant(
                        name,
                        "product" if name == RECORDING else "floor",
                        _requests(each.port, each.pid, at_once, more),
                    )
                    for name, each in ports.items()
                ]
                goals = (
                    at_most(
                        3,
                        "ms more than the bare reverse proxy",
                        lambda got: (got.p50(RECORDING) - got.p50(BARE)) * 1000,
                        of="p50",
                    ),
                    at_most(
                        10,
                        "ms more than the bare reverse proxy",
                        lambda got: (got.p99(RECORDING) - got.p99(BARE)) * 1000,
                        of="p99",
                    ),
                )
                yield Case(f"{what}, {at_once} at once", tuple(contestants), goals, by="p50")


def _requests(port: int, pid: int, at_once: int, more: bytes) -> Callable[[float], Sample]:
    """Requests of programs at once, each on its own connection; each asks something that nobody has asked."""

    async def one(number: int, until: float, found: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked = 0
        while not asked or time.perf_counter() < until:
            asked += 1
            text = b"question %d of program %d at %d" % (asked, number, time.time_ns())
            body = b'{"model":"gpt-5"%b,"messages":[{"role":"user","content":"%b"}]}' % (more, text)
            began = time.monotonic_ns()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-benchmark\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            if b"chunked" in head:
                answer = await reader.readuntil(b"0\r\n\r\n")
            else:
                length = int(head.partition(b"content-length:")[2].split()[0])
                answer = await reader.readexactly(length)
            came, left = map(int, _TIMES.findall(answer)[-1])
            found.append((came - began + time.monotonic_ns() - left) / 1e9)
        writer.close()

    async def all_of(seconds: float, found: list[float]) -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(one(each, until, found) for each in range(at_once)))

    def run(seconds: float) -> Sample:
        found: list[float] = []
        before, began = web_server.cpu_of(pid), time.perf_counter()
        asyncio.run(all_of(max(seconds, _LEAST_SECONDS if more else seconds), found))
        took = time.perf_counter() - began
        return Sample(len(found), took, found, web_server.cpu_of(pid) - before)

    return run
