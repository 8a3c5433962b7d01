"""Lists of sessions: by beginning or by activity, compressed chains as one row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sessionary.compat.hermes import lineage, rows
from sessionary.compat.hermes.messages import Json
from sessionary.model.session import Lineage, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

PAGE = 100
# What a chain's row takes over from its newest continuation; beginning and source are the root's.
_OF_ROOT = ("started_at", "source", "user_id", "parent_session_id")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a list shall show."""

    source: str | None = None
    without: Sequence[str] | None = None
    children: bool = False
    tips: bool = True
    by_activity: bool = False

    @property
    def follows_chains(self) -> bool:
        """Whether a chain stands where its newest continuation would."""
        return self.by_activity and self.tips and not self.children


def page(tx: Tx, wanted: Wanted, *, profile: str, limit: int, offset: int) -> list[SessionHead]:
    """Heads, newest first. Of a chain that is one row, the root."""
    if limit <= 0:
        return []
    if not wanted.follows_chains:
        return _rows(tx, wanted, profile=profile, limit=limit, skip=max(0, offset))
    found: dict[int, SessionHead] = {}
    for head in _walk(tx, wanted, profile=profile):
        if head.lineage is Lineage.SUBAGENT and rows.parent_id(tx, head) is not None:
            continue
        root = lineage.root(tx, head)
        found.setdefault(root.no, root)
        if len(found) >= offset + limit:
            break
    return list(found.values())[offset : offset + limit]


def rich_row(tx: Tx, head: SessionHead, *, tips: bool) -> Json:
    """A session's row with its first words and its last activity; a chain as its newest end."""
    end = lineage.tip(tx, head) if tips and head.end_reason == lineage.COMPRESSION else head
    row = rows.session_row(tx, end)
    if end is not head:
        own = rows.session_row(tx, head)
        row |= {name: own[name] for name in _OF_ROOT} | {"_lineage_root_id": head.id}
    return row | {
        "preview": rows.preview(tx, end) or rows.preview(tx, head),
        "last_active": end.last_active_at.timestamp(),
    }


def _walk(tx: Tx, wanted: Wanted, *, profile: str) -> Iterator[SessionHead]:
    skip = 0
    while heads := _rows(tx, wanted, profile=profile, limit=PAGE, skip=skip):
        yield from heads
        skip += len(heads)


def _rows(tx: Tx, wanted: Wanted, *, profile: str, limit: int, skip: int) -> list[SessionHead]:
    without = "".join(f"\n{sessions.column(each)}\n" for each in wanted.without or ())
    found = tx.all(
        "list_by_last_word" if wanted.by_activity else "list_by_beginning",
        profile=profile,
        platform=sessions.column(wanted.source),
        without=without or None,
        roots=None if wanted.children or wanted.follows_chains else 1,
        limit=limit,
        skip=skip,
    )
    return [sessions.head(row) for row in found]
