"""How many sessions stand where: for the filters of a list, never further than is worth it."""

from collections.abc import Mapping
from dataclasses import dataclass

from sessionary.model.session import SessionFolder
from sessionary.store.database import Tx

# Who sees so many means «so many or more».
MOST = 10_000
_PLATFORMS = 200
_MODELS = 500
_FOLDERS = (
    SessionFolder.CHATS,
    SessionFolder.AUTOMATION,
    SessionFolder.ARCHIVE,
    SessionFolder.TRASH,
)


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Sessions by source on the shelves that were asked for, and by shelf."""

    sources: Mapping[str, int]
    shelves: Mapping[SessionFolder, int]


def counts(tx: Tx, shelves: tuple[SessionFolder, ...], *, profile: str) -> SessionCounts:
    """Count by source on these shelves, and by shelf; each up to a limit."""
    sources: dict[str, int] = {}
    for shelf in shelves:
        for platform, count in _by_platform(tx, shelf, profile=profile):
            sources[platform] = min(MOST, sources.get(platform, 0) + count)
    return SessionCounts(sources, {shelf: _on(tx, shelf, profile=profile) for shelf in _FOLDERS})


def models(tx: Tx, *, profile: str) -> list[str]:
    """The models that the profile's sessions have, purged ones aside, in the order of their names."""
    rows = tx.all("models_of_profile", profile=profile, limit=_MODELS)
    return sorted(model for (model,) in rows if model)


def _by_platform(tx: Tx, shelf: SessionFolder, *, profile: str) -> list[tuple[str, int]]:
    rows = tx.all("platforms_on_shelf", profile=profile, shelf=shelf, limit=_PLATFORMS)
    return [(row[0], _of(tx, row[0], shelf, profile=profile)) for row in rows]


def _of(tx: Tx, platform: str, shelf: SessionFolder, *, profile: str) -> int:
    row = tx.one("count_platform", profile=profile, shelf=shelf, platform=platform, limit=MOST)
    return 0 if row is None else int(row[0])


def _on(tx: Tx, shelf: SessionFolder, *, profile: str) -> int:
    row = tx.one("count_shelf", profile=profile, shelf=shelf, limit=MOST)
    return 0 if row is None else int(row[0])
