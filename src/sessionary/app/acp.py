"""The server for editors on an open store: `sessionary acp`."""

import asyncio
import os
import signal

from sessionary.acp.server import EditorServer
from sessionary.acp.stdio import StdioTransport, take_streams
from sessionary.app.context import AppContext, user_name
from sessionary.app.engine import Agents, build_engine
from sessionary.config.engine import read_engine
from sessionary.version import __version__


async def serve_editor(app: AppContext, *, agent: str | None) -> None:
    """Serve the editor that has started this process, until it goes or asks it to stop.

    Turns that run then are left to other processes: a server on this store continues them, or the process that opens
    the session next. `agent` answers in the sessions that the editor begins.
    """
    agents = Agents(read_engine(app.config), folder=app.config.home)
    if agent is not None:
        agents.get(agent)  # an unknown one is refused before the editor asks anything
    engine = build_engine(app, agents=agents)
    server = EditorServer(
        engine,
        agents,
        person=user_name(),
        directory=_directory(),
        version=__version__,
        agent=agent,
    )
    transport = StdioTransport(*take_streams())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, transport.end)
    try:
        await server.serve(transport)
    finally:
        await engine.stop()
        await agents.close()


def _directory() -> str:
    """Return the directory in which the editor has started this process; it may be gone."""
    try:
        return os.getcwd()
    except OSError:
        return "/"
