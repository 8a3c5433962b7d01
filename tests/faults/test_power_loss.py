"""The power fails at any instant, and takes with it what was not synced."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sessionary
from sessionary.actions import verify
from tests.faults.recorded_disk import Disk, DiskOperation, build, read_journal
from tests.faults.writing_child import EACH, THREADS

SEED = 20260301
CUTS = 30


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[DiskOperation]]:
    """A store that was written to, and everything that was done to its files."""
    folder = tmp_path_factory.mktemp("power")
    home, journal = folder / "home", folder / "journal"
    home.mkdir()
    environ = os.environ | {
        "LD_PRELOAD": str(build(folder)),
        "SESSIONARY_TEST_JOURNAL": str(journal),
        "SESSIONARY_TEST_BELOW": str(home),
    }
    program = Path(__file__).with_name("writing_child.py")
    subprocess.run([sys.executable, program, home], env=environ, check=True, timeout=240)
    return home, read_journal(journal)


def acknowledged(done: list[DiskOperation]) -> set[str]:
    notes = b"".join(
        operation.data for operation in done if operation.path.endswith("/acknowledged")
    )
    return set(notes.decode().split())


def after_cut(home: Path, done: list[DiskOperation], folder: Path, rng: random.Random) -> set[str]:
    """Cut the power, start again, and read what is there."""
    folder.mkdir()
    Disk(done, rng).write(home, folder)
    with sessionary.Sessionary(f"sqlite:///{folder / 'sessionary.db'}") as client:
        assert verify.verify(client.store).broken == ()
        found = [
            str(message["content"]).split()[0]
            for head in client.sessions(limit=100).items
            for message in client.find(head.id).context()
        ]
    assert len(found) == len(set(found)), "a message is there twice"
    return set(found)


def test_what_was_acknowledged_before_the_power_failed_is_there(
    recorded: tuple[Path, list[DiskOperation]],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    home, done = recorded
    rng = random.Random(SEED)
    first = next(
        at for at, operation in enumerate(done) if operation.path.endswith("/acknowledged")
    )
    promised = lost = 0
    for cut in range(CUTS):
        so_far = done[: rng.randrange(first + 1, len(done) + 1)]
        found = after_cut(home, so_far, tmp_path / str(cut), rng)
        promised += len(acknowledged(so_far))
        lost += len(acknowledged(so_far) - found)
    # Each reading has checked that nothing is there twice.
    summary = f"power cuts={CUTS} acknowledged={promised} lost={lost} doubled=0"
    record_property("counts", summary)

    assert len(acknowledged(done)) == THREADS * EACH
    assert lost == 0


def test_without_its_syncs_the_same_store_would_lose(
    recorded: tuple[Path, list[DiskOperation]], tmp_path: Path
) -> None:
    """The test above can fail: a disk that is never synced forgets."""
    home, done = recorded
    rng = random.Random(SEED)
    unsynced = [operation for operation in done if operation.what != "s"]
    lost = False
    for cut in range(5):
        try:
            found = after_cut(home, unsynced, tmp_path / str(cut), rng)
        except (sessionary.SessionaryError, AssertionError):
            lost = True
        else:
            lost = lost or bool(acknowledged(unsynced) - found)

    assert lost
