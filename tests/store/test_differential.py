"""The same story gives the same answers on SQLite and on PostgreSQL, to the byte."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessionary.actions import verify
from tests.store.conftest import opened
from tests.store.operations import OPERATIONS, Story, do, plain
from tests.support.world import World

MOMENTS = st.tuples(st.sampled_from(range(len(OPERATIONS))), st.integers(0, 11), st.integers(0, 11))


@pytest.mark.timeout(300)
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moments=st.lists(MOMENTS, min_size=25, max_size=60))
def test_both_databases_tell_the_same_story(
    emptied: Callable[[], str], moments: list[tuple[int, int, int]]
) -> None:
    stores = [opened("sqlite::memory:"), opened(emptied())]
    try:
        stories = [Story(World(store)) for store in stores]
        # Every story has someone to be about.
        for number, a, b in ((0, 0, 0), (3, 0, 0), (4, 0, 0), *moments):
            results = [do(story, OPERATIONS[number], a, b) for story in stories]
            assert results[0] == results[1], OPERATIONS[number].__name__
        ends = [plain(story.world.everything()) for story in stories]
        assert ends[0] == ends[1]
        for store in stores:
            assert verify.verify(store).broken == ()
            assert verify.rebuild(store) == 0
    finally:
        for store in stores:
            store.close()
