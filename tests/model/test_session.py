"""Sessions: which folder, what a head says of itself."""

import itertools

import pytest

from sessionary.model.session import Kind, Lineage, SessionFolder, folder_of


@pytest.mark.parametrize("kind", Kind)
def test_a_session_is_in_one_folder(kind: Kind) -> None:
    """Gone before trash before archive before what it is."""
    for archived, trashed, purged in itertools.product((False, True), repeat=3):
        folder = folder_of(kind=kind, archived=archived, trashed=trashed, purged=purged)
        own = SessionFolder.AUTOMATION if kind in ("job", "subagent") else SessionFolder.CHATS
        expected = (
            (purged, SessionFolder.GONE),
            (trashed, SessionFolder.TRASH),
            (archived, SessionFolder.ARCHIVE),
            (True, own),
        )
        assert folder is next(name for holds, name in expected if holds)


def test_only_forks_and_continuations_share_a_history() -> None:
    assert {each for each in Lineage if each.inherits} == {Lineage.FORK, Lineage.CONTINUATION}
