"""A proxy that runs until it is killed: a fork server, so that one is there within milliseconds.

Each child listens on a port of its own and reports it in a line.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import sessionary.store.postgres.store  # noqa: F401  # imported before the fork, like everything else
from sessionary import prices
from sessionary.clock import RandomIds, SystemClock
from sessionary.processes import process_name
from sessionary.proxy.server import ServerOptions
from sessionary.proxy.service import Proxy, ProxyOptions
from sessionary.proxy.upstream import Upstream
from sessionary.store.open import open_store


async def serve(order: dict[str, Any]) -> None:
    """Run a proxy in front of the upstream of the order."""
    clock, ids = SystemClock(), RandomIds()
    store = open_store(order["url"], create=True, clock=clock, ids=ids)
    proxy = Proxy(
        store,
        {None: Upstream(None, order["upstream"])},
        ServerOptions(),
        ProxyOptions(profile="main", hold_seconds=30.0),
        clock=clock,
        ids=ids,
        holder=process_name(),
    )
    await proxy.start()
    line = json.dumps({"port": proxy.port}) + "\n"
    await asyncio.to_thread(Path(order["report"]).write_text, line, encoding="utf-8")
    await asyncio.Event().wait()


def main() -> None:
    """Fork a child for each order on standard input, and print its number."""
    prices.load()
    # A child that was killed is gone at once, and not a zombie.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert threading.active_count() == 1
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(serve(json.loads(line)))
            finally:
                os._exit(1)
        print(child, flush=True)


if __name__ == "__main__":
    main()
