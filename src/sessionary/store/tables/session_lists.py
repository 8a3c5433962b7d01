"""Lists and counts of sessions. Each reads along an index, and no further than its limit."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from sessionary.clock import to_micros
from sessionary.model import codec
from sessionary.model.session import Cursor, Kind, SessionFolder, SessionHead
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.queries import pg_array_literal
from sessionary.store.tables.sessions import FAR_FUTURE, column, head

_ORDERED = {"created": "list_by_creation", "title": "list_by_title", "cost": "list_by_cost"}


class StatusRow(NamedTuple):
    """How many subagents worked for a session, and how its last turn stands."""

    session_id: str
    subagents: int
    last_turn: TurnState | None


class ListedTexts(NamedTuple):
    """What a list shows of a session in words."""

    title: str | None
    preview: str | None
    labels: tuple[str, ...]


class CountFilters(NamedTuple):
    """What the sessions that are counted have in common; None asks for nothing."""

    kind: Kind | None = None
    model: str | None = None
    is_open: bool | None = None
    pinned: bool = False
    read_only: bool | None = None
    project_no: int | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_by_activity(
    tx: Tx,
    *,
    profile: str,
    folder: SessionFolder,
    before: Cursor,
    limit: int,
    since: datetime | None,
    kind: Kind | None,
    model: str | None,
    platform: str | None,
    is_open: bool | None,
    pinned: bool,
    project_no: int | None,
) -> list[SessionHead]:
    """The sessions of a folder before a cursor, newest activity first."""
    query = "list_by_activity"
    if pinned:
        query = "list_pinned"
    elif project_no is not None:
        query = "list_by_project"
    elif platform is not None:
        query = "list_by_platform"
    rows = tx.all(
        query,
        profile=profile,
        folder=folder,
        before_at=before.at,
        before_no=before.no,
        since=-FAR_FUTURE if since is None else to_micros(since),
        kind=kind,
        model=column(model),
        only_platform=column(platform),
        only_open=None if is_open is None else int(is_open),
        only_project=project_no,
        limit=limit,
    )
    return [head(row) for row in rows]


def list_in_order(
    tx: Tx,
    order: str,
    *,
    profile: str,
    folder: SessionFolder,
    after: Cursor,
    limit: int,
) -> list[SessionHead]:
    """The sessions of a folder after a cursor, in the order `created`, `title` or `cost`."""
    rows = tx.all(
        _ORDERED[order], profile=profile, folder=folder, at=after.at, no=after.no, limit=limit
    )
    return [head(row) for row in rows]


def count_matching(
    tx: Tx,
    filters: CountFilters,
    *,
    profile: str,
    folder: SessionFolder,
    platform: str | None,
    scanned: int,
    limit: int,
) -> int:
    """Count the sessions that fit among the newest `scanned` of a folder, up to a limit."""
    row = tx.one(
        "count_in_folder", **_count_params(filters, profile, folder, platform, scanned), limit=limit
    )
    return 0 if row is None else int(row[0])


def texts_matching(
    tx: Tx,
    filters: CountFilters,
    *,
    profile: str,
    folder: SessionFolder,
    platform: str | None,
    scanned: int,
) -> list[ListedTexts]:
    """The titles, previews and labels of the sessions that `count_matching` would count."""
    rows = tx.all("texts_in_folder", **_count_params(filters, profile, folder, platform, scanned))
    return [
        ListedTexts(title, preview, () if labels == "[]" else tuple(codec.decode(labels)))
        for title, preview, labels in rows
    ]


def _count_params(
    filters: CountFilters, profile: str, folder: SessionFolder, platform: str | None, scanned: int
) -> dict[str, Any]:
    since, until = filters.since, filters.until
    return {
        "profile": profile,
        "folder": folder,
        "since": -FAR_FUTURE if since is None else to_micros(since),
        "before": FAR_FUTURE if until is None else to_micros(until),
        "scanned": scanned,
        "kind": filters.kind,
        "model": column(filters.model),
        "only_platform": column(platform),
        "only_open": None if filters.is_open is None else int(filters.is_open),
        "only_pinned": 1 if filters.pinned else None,
        "only_read_only": None if filters.read_only is None else int(filters.read_only),
        "only_project": filters.project_no,
    }


def count_folder(tx: Tx, folder: SessionFolder, *, profile: str, limit: int) -> int:
    """Count the sessions of a folder, up to a limit."""
    row = tx.one("count_folder", profile=profile, folder=folder, limit=limit)
    return 0 if row is None else int(row[0])


def count_by_platform(
    tx: Tx, folder: SessionFolder, *, profile: str, platforms: int, limit: int
) -> list[tuple[str, int]]:
    """Count a folder's sessions for each of its platforms, each up to a limit."""
    rows = tx.all("platforms_in_folder", profile=profile, folder=folder, limit=platforms)
    found = []
    for (platform,) in rows:
        row = tx.one(
            "count_platform", profile=profile, folder=folder, platform=platform, limit=limit
        )
        found.append((platform, 0 if row is None else int(row[0])))
    return found


def list_models(tx: Tx, *, profile: str, limit: int) -> list[str]:
    """The models that sessions of a profile have."""
    return [model for (model,) in tx.all("models_of_profile", profile=profile, limit=limit)]


def list_statuses(tx: Tx, numbers: Iterable[int]) -> list[StatusRow]:
    """The status of each of these sessions, in one query."""
    return [
        StatusRow(id, count, None if state is None else TurnState(state))
        for id, count, state in tx.all("standings", numbers=pg_array_literal(numbers))
    ]
