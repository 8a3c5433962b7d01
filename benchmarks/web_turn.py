"""A turn over HTTP, by the CPU of the server: a program sends a message and waits for its reply."""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from benchmarks import populate, web_server
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Sample
from benchmarks.web_server import Web

TURN = "sessionary, message and reply"
FLOOR = "a bare ASGI application, the same requests"
AT_ONCE = (1, 16)
WAIT_SECONDS = 30
# On the server that we use, with its limits; the answers are as long as ours.
_BARE = """
import asyncio, sys
import uvicorn
from sessionary.config.server import Limits
from sessionary.web.connections import OpenConnections, ServerConfig
from sessionary.web.server import address_of, listen

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"400")]
HEADERS += [(b"x-header-%d" % each, b"a value of usual length") for each in range(8)]

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": b"{" + b" " * 398 + b"}"})

taken = listen("127.0.0.1", 0)
print(address_of(taken), flush=True)
server = uvicorn.Server(ServerConfig(app, OpenConnections(Limits())))
asyncio.run(server.serve(sockets=[taken]))
"""


def cases(folder: Path) -> Iterator[Case]:
    """One program after the other, and many at once."""
    path = folder / "turns.db"
    store = populate.opened(path)
    token = web_server.add_token(store)
    store.close()
    with ExitStack() as stack:
        web = stack.enter_context(Web(web_server.make_home(folder, path), token, ""))
        bare = stack.enter_context(BareServer())
        for programs in AT_ONCE:
            yield Case(
                f"a turn over HTTP, CPU in the server, {programs} at once",
                (
                    Contestant(TURN, "product", _turns(web.address, token, web.pid, programs)),
                    Contestant(FLOOR, "floor", _turns(bare.address, token, bare.pid, programs)),
                ),
                (at_most(2.5, "ms of CPU", lambda got: got.p50(TURN) * 1000),),
                by="p50",
            )


class BareServer:
    """An application that does nothing but answer, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _turns(address: str, token: str, pid: int, programs: int) -> Callable[[float], Sample]:
    """Turns of programs at once; what is measured is not the time but the CPU of the process, for each turn."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def one(number: int, until: float, done: list[int]) -> None:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        source = {"platform": "api", "chat_id": f"program {number}"}
        body = json.dumps({"source": source, "text": "hello"})
        while not done[number] or time.perf_counter() < until:
            connection.request("POST", "/api/v1/arrivals", body=body, headers=headers)
            told = json.loads(connection.getresponse().read())
            where = f"/api/v1/arrivals/{told.get('arrival_id')}?wait={WAIT_SECONDS}"
            connection.request("GET", where, headers=headers)
            found = json.loads(connection.getresponse().read())
            assert found.get("turn_state", "done") == "done", found
            done[number] += 1
        connection.close()

    def run(seconds: float) -> Sample:
        done = [0] * programs
        until = time.perf_counter() + seconds
        before = web_server.cpu_of(pid)
        threads = [
            threading.Thread(target=one, args=(each, until, done)) for each in range(programs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = web_server.cpu_of(pid) - before
        return Sample(sum(done), spent, [spent / sum(done)])

    return run
