"""The base of every suite of tests for a store."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sessionary.errors import SessionaryError
from sessionary.store.database import Store
from tests.support.world import World


class Suite:
    """Tests of a store. A subclass provides the fixture `store`: open, migrated, empty."""

    @pytest.fixture
    def world(self, store: Store) -> World:
        return World(store)


@contextmanager
def refused(
    error: type[SessionaryError], *words: str, unchanged: World | None = None
) -> Iterator[None]:
    """Expect this error with these words, and that nothing was written."""
    before = None if unchanged is None else unchanged.everything()
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    assert caught.value.committed == "no"
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    if unchanged is not None:
        assert unchanged.everything() == before
