"""macOS and Windows, as far as they can be tested here: their names and constants are put in."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sessionary
from sessionary.store import filesystem
from sessionary.store.database import Tx
from tests.store.conftest import opened

# What macOS calls it, and no other system.
F_FULLFSYNC = 51
Calls = list[tuple[str, int]]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """How each file was brought to the disk."""
    calls: Calls = []

    def fsync(descriptor: int) -> None:
        calls.append(("fsync", descriptor))

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


def on_macos(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], None], calls: Calls) -> None:
    def control(descriptor: int, command: int) -> int:
        calls.append((f"fcntl {command}", descriptor))
        answer(descriptor)
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)


def test_a_file_is_brought_to_the_disk_itself_on_macos(
    monkeypatch: pytest.MonkeyPatch, synced: Calls
) -> None:
    on_macos(monkeypatch, lambda _: None, synced)

    filesystem.sync(7)

    assert synced == [("fcntl 51", 7)]


def test_a_file_system_that_knows_only_fsync_gets_that_on_macos(
    monkeypatch: pytest.MonkeyPatch, synced: Calls
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    on_macos(monkeypatch, refuse, synced)

    filesystem.sync(7)

    assert synced == [("fcntl 51", 7), ("fsync", 7)]


def test_a_disk_that_fails_is_not_taken_for_one_that_knows_only_fsync(
    monkeypatch: pytest.MonkeyPatch, synced: Calls
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    on_macos(monkeypatch, fail, synced)

    with pytest.raises(OSError, match="Input/output"):
        filesystem.sync(7)


def test_elsewhere_fsync_does_it(monkeypatch: pytest.MonkeyPatch, synced: Calls) -> None:
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)

    filesystem.sync(7)

    assert synced == [("fsync", 7)]


def test_sqlite_syncs_commits_to_the_disk_itself(tmp_path: Path) -> None:
    store = opened(f"sqlite:///{tmp_path}/sessionary.db")

    def pragmas(tx: Tx) -> list[Any]:
        connection: Any = tx
        names = ("synchronous", "fullfsync", "checkpoint_fullfsync")
        return [connection._connection.pragma(name) for name in names]

    assert store.write(pragmas).result() == [2, 1, 1]
    store.close()


ON_WINDOWS = "import sys; sys.platform = 'win32'; "


@pytest.mark.parametrize(
    ("program", "reported"),
    [
        ("from sessionary.cli import main; main()", sessionary.NOT_ON_WINDOWS),
        (
            "import sessionary; sessionary.Sessionary()",
            f"StoreUnavailable: {sessionary.NOT_ON_WINDOWS}",
        ),
    ],
    ids=["the command", "Python"],
)
def test_on_windows_one_line_says_what_to_do(program: str, reported: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS + program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].endswith(reported)
    if program.startswith("from sessionary.cli"):
        assert done.stderr.strip() == reported
