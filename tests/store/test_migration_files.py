"""The files of the migrations: their numbers follow each other, so that two branches cannot add the same one."""

import pytest

from sessionary.store import migrations


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_numbers_of_migrations_follow_each_other(dialect: str) -> None:
    numbers = [int(step.name.partition("_")[0]) for step in migrations.known(dialect)]

    assert numbers == list(range(1, len(numbers) + 1))
