"""JSON-RPC messages over standard input and output, one per line."""

import asyncio
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from sessionary.formats.coerce import replace_lone_surrogates

log = logging.getLogger(__name__)

CHUNK = 1024 * 1024
# A prompt may carry pictures; what is longer is refused without being held in memory.
LONGEST_LINE = 64 * 1024 * 1024
# How many messages are read ahead of the one that is handled.
READ_AHEAD = 64
# Stands for a line that is too long.
_TOO_LONG = b"\0"
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
# Where a caller of `send` wants to know the id of the request that it sends.
sent_ids: ContextVar[list[Any] | None] = ContextVar("sent_ids", default=None)


def take_streams() -> tuple[int, int]:
    """Return descriptors of standard input and output for the protocol alone.

    Whatever else in this process, or in a program that it starts, reads standard input finds it empty, and what is
    printed goes to standard error.
    """
    sys.stdout.flush()
    given, output = os.dup(0), os.dup(1)
    for each in (given, output):
        os.set_blocking(
            each, True
        )  # an editor may have set its own end, which may be the same, to the opposite
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return given, output


class StdioTransport:
    """Reads and writes messages in threads, so that neither a slow editor nor a large message holds up turns.

    It implements the transport of the protocol's library. What is no message is answered here: the library would end
    the connection.
    """

    def __init__(self, given: int, output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._given, self._output = given, output
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(READ_AHEAD)
        self._to_write: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._is_closed = False
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"acp{work.__name__}", daemon=True).start()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None when the editor has gone."""
        while not self._is_closed:
            line = await self._lines.get()
            if line is None:
                return None
            if not line.strip():
                continue
            message, problem = _parse(line)
            if problem is None:
                return message
            code, text = problem
            log.warning("a line of the editor is no message: %s", text)
            id = message.get("id") if _is_id(message.get("id")) else None
            error = {"code": code, "message": text}
            await self.send({"jsonrpc": "2.0", "id": id, "error": error})
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; return when it is written, or when the editor has gone, which `receive` tells."""
        ids = sent_ids.get()
        if ids is not None and "method" in message and "id" in message:
            ids.append(message["id"])
        # Half a character, which some programs write, would make the whole message unreadable for others.
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)
        line = text.encode("utf-8", "replace") + b"\n"
        done: asyncio.Future[None] = self._loop.create_future()
        if self._is_closed:
            return
        self._to_write.put((line, done))
        await done

    async def close(self) -> None:
        """Write nothing more."""
        self.end()
        self._to_write.put(None)

    def end(self) -> None:
        """Let `receive` return that the editor has gone."""
        self._is_closed = True
        while not self._lines.empty():
            self._lines.get_nowait()
        self._lines.put_nowait(None)

    def _read(self) -> None:
        """Pass on lines until the input ends; runs in a thread."""
        begun: list[bytes] = []
        length = 0
        try:
            while data := os.read(self._given, CHUNK):
                *whole, rest = data.split(b"\n")
                for line in whole:
                    begun.append(line)
                    length += len(line)
                    self._pass_on(b"".join(begun) if length <= LONGEST_LINE else _TOO_LONG)
                    begun, length = [], 0
                length += len(rest)
                # Of a line that is too long only its length is kept.
                begun = [*begun, rest] if length <= LONGEST_LINE else []
        except OSError as error:
            log.warning("the editor's messages cannot be read: %s", error)
        if begun and length <= LONGEST_LINE:
            self._pass_on(b"".join(begun))
        self._pass_on(None)

    def _pass_on(self, line: bytes | None) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop).result()
        except RuntimeError:  # the event loop is closed: nobody reads any more
            return

    def _write(self) -> None:
        """Write messages until there are no more, or nobody reads them; runs in a thread."""
        is_read = True
        while (item := self._to_write.get()) is not None:
            text, done = memoryview(item[0]), item[1]
            try:
                while is_read and text:
                    text = text[os.write(self._output, text) :]
            except OSError as error:
                is_read = False
                log.info("the editor reads no more: %s", error)
            try:
                if not is_read:
                    self._loop.call_soon_threadsafe(self.end)
                self._loop.call_soon_threadsafe(_settle, done)
            except RuntimeError:  # as above
                return


def _settle(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def _parse(line: bytes) -> tuple[dict[str, Any], tuple[int, str] | None]:
    """Return the message of a line, and the error to answer instead if it is none."""
    if line == _TOO_LONG:
        return {}, (INVALID_REQUEST, f"A message has at most {LONGEST_LINE:,} bytes.")
    try:
        found = json.loads(replace_lone_surrogates(line))
    except (ValueError, RecursionError) as error:
        return {}, (PARSE_ERROR, f"This is not JSON: {str(error)[:200]}")
    if not isinstance(found, Mapping):
        return {}, (INVALID_REQUEST, "A message is a JSON object.")
    message = dict(found)
    if "id" in message and not _is_id(message["id"]):
        return message, (INVALID_REQUEST, "The id of a message is a number or a text.")
    if "method" in message:
        if not isinstance(message["method"], str):
            return message, (INVALID_REQUEST, "The method of a request is a text.")
        return message, None
    if "id" not in message or not ("result" in message or "error" in message):
        return message, (INVALID_REQUEST, "A message is a request, a notification or a response.")
    if "error" in message and not isinstance(message["error"], Mapping):
        message["error"] = {"message": str(message["error"])}
    return message, None


def _is_id(id: Any) -> bool:
    return id is None or (isinstance(id, int | str) and not isinstance(id, bool))
