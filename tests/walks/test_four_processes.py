"""Four processes write to one SQLite file: all of them get on, nothing is lost or doubled."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sessionary.actions import verify
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.message import message
from sessionary.store.open import open_store
from tests.support.fork_server import ForkServer
from tests.walks.history import read_all
from tests.walks.writing_child import moment_of, open_with_message

PROCESSES = 4
THREADS = 4
SECONDS = 12.0


@pytest.mark.timeout(600)
def test_four_processes_append_to_one_file_at_once(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    shared = store.write(
        open_with_message, message("user", "shared"), moment_of(), "shared"
    ).result()
    with ForkServer(tmp_path, "tests.walks.steady_child") as forks:
        children = [
            forks.fork(url, threads=THREADS, seconds=SECONDS, shared=shared.session_id)
            for _ in range(PROCESSES)
        ]
        while any(child.is_alive() for child in children):
            time.sleep(0.1)
        reports = [child.lines()[0] for child in children]

    stored = store.read(read_all, ()).result()
    checked = verify.verify(store)
    store.close()

    counts = [len(report["appended"]) for report in reports]
    rates = " ".join(f"{count / SECONDS:.0f}/s" for count in counts)
    worst = max(report["worst"] for report in reports)
    print(f"\nfour processes: {sum(counts)} appends, {rates}, worst latency {worst * 1000:.0f} ms")
    record_property("rates", rates)
    assert [report["errors"] for report in reports] == [[]] * PROCESSES
    for report in reports:
        for session, seq, token in report["appended"]:
            assert [(each.session, each.seq) for each in stored.log[token]] == [(session, seq)]
    assert len(stored.log) == sum(counts) + PROCESSES * THREADS + 1
    assert stored.gaps == []
    assert checked.broken == ()
    # How their shares compare is up to the machine; that a waiting process is next: tests/store.
    assert min(counts) > 0
