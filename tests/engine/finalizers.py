"""Finalizers as someone else would write them, by the names that a configuration gives them."""

import asyncio
import threading

calls: list[tuple[str, str]] = []
is_daemon: list[bool] = []


async def note(session_id: str, reason: str) -> None:
    """Remember the call."""
    calls.append((session_id, reason))


def note_in_thread(session_id: str, reason: str) -> None:
    """Remember the call and its thread."""
    calls.append((session_id, reason))
    # Last: a test that sees this may end, and the next one must not get a call of this thread.
    is_daemon.append(threading.current_thread().daemon)


def fail(session_id: str, reason: str) -> None:
    """Remember the call and fail."""
    calls.append((session_id, reason))
    raise OSError("the archive is full")


async def hang(session_id: str, reason: str) -> None:
    """Never come to an end."""
    calls.append((session_id, reason))
    await asyncio.Event().wait()
