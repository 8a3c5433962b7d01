"""Machines whose clocks differ agree on the server's."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine

import sessionary


def test_a_machine_whose_clock_is_wrong_goes_by_the_servers(postgres_url: str) -> None:
    """Rule 12: leases expire by database time."""
    right = datetime.now(UTC)
    with (
        time_machine.travel(right + timedelta(hours=3)),
        sessionary.Sessionary(postgres_url) as client,
    ):
        off_by = abs(client.app.clock.now() - right)

    assert off_by < timedelta(hours=1)


def test_a_file_goes_by_the_clock_of_its_machine(tmp_path: Path) -> None:
    wrong = datetime.now(UTC) + timedelta(hours=3)
    with time_machine.travel(wrong), sessionary.Sessionary(tmp_path / "sessionary.db") as client:
        assert abs(client.app.clock.now() - wrong) < timedelta(hours=1)
