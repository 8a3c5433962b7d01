"""What an importer knows of a session, as a session's line."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sessionary.clock import from_micros
from sessionary.importers.base.events import SessionBegin
from sessionary.model.json_codec import storable_text
from sessionary.model.record import ProjectFact, SessionLine
from sessionary.model.session import TitleBy
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE, clean_title

if TYPE_CHECKING:
    from sessionary.actions.transfer.merge import ParentSession

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from sessionary.clock import Moment
from sessionary.importers.base.events import MessageEvent
from sessionary.model import json_codec
from sessionary.model.title import preview
from sessionary.store.database import Store

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
    begin: SessionBegin,
    fields: dict[str, Any],
    *,
    id: str,
    to: "ImportTarget",
    began_at: datetime,
    active_at: int,
    descent: "ParentSession | None",
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


def _extra(
    begin: SessionBegin, fields: dict[str, Any], *, to: "ImportTarget", skipped: int
) -> dict[str, Any]:
    origin: dict[str, Any] = {"from": to.tool, "tool": to.title, "id": begin.native_id}
    if skipped:
        origin["skipped"] = skipped
    return {"import": origin, **(fields.get("extra") or {})}


_PREVIEWED = 400


class _Body(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of a message in their order; what says nothing is left out."""

    parts: list[dict[str, Any]]
    person: dict[str, Any] | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: dict[str, Any] | None = None


_encode = msgspec.json.Encoder().encode


def body_text(said: MessageEvent, tool: str) -> str:
    """A message as the log keeps it."""
    extra = said.extra
    if said.role == "system":
        # Words of a system that is not ours: people read them, no model takes them for orders.
        extra = {"imported": tool} | (extra or {})
    body = _Body(
        said.parts,
        said.person,
        said.model,
        said.finish_reason,
        said.token_count,
        said.id,
        extra or None,
    )
    try:
        return _encode(body).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair.
        known = ((name, getattr(body, name)) for name in body.__struct_fields__)
        return json_codec.encode({name: value for name, value in known if value is not None})


def preview_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """The first words of a message; None when it has none."""
    words = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return preview(words[:_PREVIEWED]) or None


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """A profile of a store, and by which tool's names sessions are known there."""

    store: Store
    profile: str
    tool: str
    title: str
    moment: Moment
    # Whether a person named the profile: then even what its tool keeps in another goes there.
    is_asked_for: bool = False
    # Which version reads: what an older one could make nothing of is read again.
    version: str = ""


# A command of a tool: one word behind a slash. A path has more slashes, and is no command.
_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?=\s|\Z)")
_PLACEHOLDER = re.compile(
    r"""
    (?: (?:new|untitled|unnamed|child|cli)
        (?:\ (?:session|chat|conversation|thread|task|agent|composer))?
        (?:\s*[-–:#(]?\s*[\d#][\dTZ:.,+()\ /-]*)?
      | (?:session|chat|conversation|thread)\s*[-–:#]?\s*\d[\dTZ:.,+\ /-]*
      | [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}
      | \d{4}-\d\d-\d\d[\dTZ:.+\ -]*
      | \d{8}_\d{1,6}
    )\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)
# What a program writes in a person's name.
_OF_THE_PROGRAM = (
    "<command-",
    "<local-command",
    "<environment_context",
    "<session_context",
    "<system-reminder",
    "Caveat: The messages below were generated",
    "[Request interrupted",
)
_LOOKED_AT = 4096


def says_nothing(title: str) -> bool:
    """Whether a title is a command, a placeholder, or the program's own words."""
    text = title.strip()
    return not text or _is_command(text) or _PLACEHOLDER.match(text) is not None


def words_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """What a person said in a message; None when it is a command or nothing."""
    text = "\n".join(part["text"] for part in parts if part["type"] == "text").strip()
    return None if not text or _is_command(text) else text[:_LOOKED_AT]


def _is_command(text: str) -> bool:
    return text.startswith(_OF_THE_PROGRAM) or _COMMAND.match(text) is not None
