"""What an importer knows of a session, as a session's line."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sessionary.clock import from_micros
from sessionary.importers.base import Begin
from sessionary.model.document import storable_text
from sessionary.model.record import ProjectFact, SessionLine
from sessionary.model.session import TitleBy
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE, clean_title

if TYPE_CHECKING:
    from sessionary.actions.weaving import Descent
    from sessionary.importers.target import Target

# What an importer may say with `Facts`.
FIELDS = frozenset(
    {
        "title",
        "source",
        "model",
        "settings",
        "system_prompt",
        "workspace",
        "project",
        "pinned",
        "archived",
        "labels",
        "extra",
        "draft",
        "key",
        "active_at",
        "ended_at",
        "end_reason",
    }
)


def line_of(
    begin: Begin,
    fields: dict[str, Any],
    *,
    id: str,
    to: "Target",
    began_at: datetime,
    active_at: int,
    descent: "Descent | None",
    skipped: int,
) -> SessionLine:
    """The session's line: read-only, and marked with where it came from."""
    # A tool's clock may say that a session began after its last word.
    active = max(began_at, from_micros(active_at)) if active_at else began_at
    if fields.get("active_at") is not None:
        active = max(active, fields["active_at"])
    ended_at, end_reason = fields.get("ended_at"), fields.get("end_reason")
    if ended_at is not None:
        ended_at, end_reason = max(ended_at, began_at), end_reason or "ended"
    return SessionLine(
        id=id,
        profile=to.profile,
        kind=begin.kind,
        began_at=began_at,
        source=fields.get("source") or {"platform": to.tool},
        title=_title(fields.get("title")),
        title_by=None if _title(fields.get("title")) is None else TitleBy.IMPORT,
        model=_name(fields.get("model")),
        settings=fields.get("settings"),
        system_prompt=fields.get("system_prompt"),
        workspace=fields.get("workspace"),
        project=_project(fields.get("project")),
        pinned=bool(fields.get("pinned")),
        archived=bool(fields.get("archived")),
        read_only=True,
        labels=fields.get("labels") or [],
        draft=fields.get("draft"),
        extra=_extra(begin, fields, to=to, skipped=skipped),
        parent_id=None if descent is None else descent.parent.id,
        lineage=None if descent is None else descent.lineage,
        base_seq=0 if descent is None else descent.base_seq,
        last_active_at=active,
        ended_at=ended_at,
        end_reason=None if ended_at is None else end_reason,
        # What must follow an end was the other tool's business.
        finalized_at=ended_at,
    )


def _title(given: object) -> str | None:
    if not isinstance(given, str):
        return None
    return clean_title(one_line(given)[:MAX_TITLE])


def _name(given: object) -> str | None:
    """A name as a column holds it."""
    return storable_text(given) if isinstance(given, str) else None


def _project(given: object) -> ProjectFact | None:
    if isinstance(given, ProjectFact):
        return given
    name = _title(given)
    return None if name is None else ProjectFact(name)


def _extra(begin: Begin, fields: dict[str, Any], *, to: "Target", skipped: int) -> dict[str, Any]:
    origin: dict[str, Any] = {"from": to.tool, "tool": to.title, "id": begin.native_id}
    if skipped:
        origin["skipped"] = skipped
    return {"import": origin, **(fields.get("extra") or {})}
