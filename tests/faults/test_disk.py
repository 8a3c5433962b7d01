"""Disks that fail, file systems that cannot hold a store, readers that take their time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import sessionary
from sessionary.actions import verify
from sessionary.actions.transfer import export
from sessionary.errors import StoreUnavailable
from sessionary.store import filesystem
from sessionary.store.sqlite import db_file
from tests.faults.recorded_disk import build

MOUNTS = """\
25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 25 0:40 / /home/eva rw,relatime - nfs4 server:/home rw
32 25 0:41 / /mnt/my\\040disk rw,relatime - ext4 /dev/sdb1 rw
33 25 0:42 / /media/share rw,relatime - fuse.sshfs host: rw
"""


def test_a_disk_that_fails_to_sync_is_not_trusted(tmp_path: Path) -> None:
    """F4: what could not be synced is not acknowledged; the connection is opened again."""
    home = tmp_path / "home"
    home.mkdir()
    environ = os.environ | {
        "LD_PRELOAD": str(build(tmp_path)),
        "SESSIONARY_TEST_JOURNAL": str(tmp_path / "journal"),
        "SESSIONARY_TEST_BELOW": str(home),
        "SESSIONARY_TEST_FAILING": str(tmp_path / "failing"),
    }
    program = Path(__file__).with_name("failing_child.py")
    done = subprocess.run(
        [sys.executable, program, home], env=environ, capture_output=True, check=True, timeout=240
    )

    outcomes = json.loads(done.stdout)

    assert outcomes[0] == ["before", "yes"]
    assert {answer for _, answer in outcomes[1:3]} <= {"unknown", "no"}
    assert outcomes[3:] == [["while", "yes"], ["after", "yes"]]
    with sessionary.Sessionary(f"sqlite:///{home / 'sessionary.db'}") as client:
        chat = client.session(sessionary.Source(platform="web", chat_id="chat"))
        texts = [message["content"] for message in chat.context()]
        assert verify.verify(client.store).broken == ()
    assert [text for text in texts if text != "still"] == ["before", "while", "after"]
    if outcomes[2][1] == "no":
        assert "still" not in texts


@pytest.mark.parametrize(
    ("release", "sound"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 54, 0), True),
    ],
)
def test_an_sqlite_that_can_corrupt_a_store_is_known(
    release: tuple[int, int, int], sound: bool
) -> None:
    """F11."""
    assert db_file.is_sound(release) is sound


def test_an_sqlite_that_can_corrupt_a_store_opens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")

    with pytest.raises(StoreUnavailable, match=r"3\.40\.1 can corrupt a store; nothing was opened"):
        sessionary.Sessionary(f"sqlite:///{tmp_path / 'sessionary.db'}")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "kind", "shared"),
    [
        ("/var/lib/sessionary", "ext4", False),
        ("/home/eva/data", "nfs4", True),
        ("/home/evander", "ext4", False),
        ("/mnt/my disk/x", "ext4", False),
        ("/media/share/x", "fuse.sshfs", True),
    ],
)
def test_a_file_system_of_other_machines_is_known(
    path: str, kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F27: `doctor` warns of it."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)

    assert filesystem.kind(path) == kind
    assert filesystem.is_shared(kind) is shared


def test_a_reader_that_takes_its_time_does_not_let_the_journal_grow(tmp_path: Path) -> None:
    """F21: an export is read in pages, never with one open cursor."""
    path = tmp_path / "sessionary.db"
    with sessionary.Sessionary(f"sqlite:///{path}") as client:
        chat = client.session(sessionary.Source(platform="web", chat_id="chat"))
        for number in range(300):
            chat.append("user", f"{number}")
        slow = export.export_jsonl(client.store, profile="main")
        for _ in range(100):
            next(slow)
        for number in range(4000):
            chat.append("user", f"{number} " + "x" * 12_000)
            if number % 1000 == 0:
                next(slow)
        size = path.with_name(path.name + "-wal").stat().st_size
        assert next(slow)

    assert size < 64 * 1024 * 1024
