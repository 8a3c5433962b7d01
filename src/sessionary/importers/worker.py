"""What a worker process of an import runs: it reads the units that it is given, and sends their events.

It imports neither the store nor the merger: that would double the time that it takes to start.
"""

import logging
import os
import pickle
import queue
import signal
import struct
import sys
import threading
from collections.abc import Callable, Generator
from typing import IO, Any, BinaryIO

import msgspec

from sessionary.importers.base.prepared import PreparedEvent, PreparedMessage, prepared_events

logger = logging.getLogger(__name__)
FRAME = struct.Struct("<cI")
# The kinds of frames: a job for the worker; events of a unit, the end of a unit, an error that ended it.
JOB, EVENTS, END, FAILED = b"J", b"E", b".", b"!"
_BATCH_CHARACTERS = 256 * 1024
# Nearly all events are messages, which msgspec encodes and decodes fastest. The others are pickled.
_encode = msgspec.msgpack.Encoder().encode


def read_frame(source: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return kind and content of the next frame; None if the other side has ended."""
    head = source.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    kind, size = FRAME.unpack(head)
    data = source.read(size)
    return None if len(data) < size else (kind, data)


def main() -> None:
    """Read units until the input ends: what a worker process runs."""
    # Ctrl-C goes to all processes of a terminal; the one that started us ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What an importer prints must not get between the frames.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(jobs.put,), daemon=True).start()
    # After the thread has started: this process may be orphaned while it imports.
    from sessionary.importers import registry

    tool, now = jobs.get()
    importer = registry.importer(tool)
    while True:
        unit, resume = jobs.get()
        _send_events(output, prepared_events(importer, unit, resume, now=now))


def _receive(put: Callable[[Any], None]) -> None:
    """Pass on what comes in. At the end of the input this process is not needed any more."""
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        put(pickle.loads(frame[1]))
    os._exit(0)


def _send_events(output: BinaryIO, events: Generator[PreparedEvent]) -> None:
    batch: list[PreparedMessage | bytes] = []
    size = 0
    try:
        for event in events:
            if type(event) is PreparedMessage:
                batch.append(event)
                size += len(event.text) + 100
                if event.blobs:
                    size += sum(map(len, event.blobs))
            else:
                data = pickle.dumps(event)
                batch.append(data)
                size += len(data)
            if size > _BATCH_CHARACTERS:
                _send_batch(output, batch)
                batch, size = [], 0
    except Exception as error:
        import traceback  # only an error needs it

        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        _send_batch(output, batch)
        _write_frame(output, FAILED, _pickled(error))
        return
    _send_batch(output, batch)
    _write_frame(output, END, b"")


def _send_batch(output: BinaryIO, batch: list[PreparedMessage | bytes]) -> None:
    if not batch:
        return
    try:
        data = _encode(batch)
    except UnicodeEncodeError:
        # Half of a surrogate pair, in an id.
        data = _encode([each if isinstance(each, bytes) else pickle.dumps(each) for each in batch])
    _write_frame(output, EVENTS, data)


def _write_frame(output: BinaryIO, kind: bytes, data: bytes) -> None:
    rest = memoryview(FRAME.pack(kind, len(data)) + data)
    try:
        while rest:
            rest = rest[output.write(rest) :]
    except BrokenPipeError:
        # Nobody reads any more.
        os._exit(0)


def _pickled(error: Exception) -> bytes:
    """Return an error that the other side can raise; one that cannot be sent becomes its text."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        logger.exception("An error cannot be sent: %r", error)
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data
