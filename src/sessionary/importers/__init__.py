"""Parsers for the conversations of other agents' tools, and one driver that imports them.

What the author of an importer needs is exported here; docs/plugins/importer.md shows how it is used. The
modules `files`, `databases` and `archives` read the three kinds of records.
"""

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import archives, databases, files
from sessionary.importers.base.archives import ExportImporter, export_events
from sessionary.importers.base.content import (
    MessageContent,
    ModelTurn,
    call_usage,
    first_time,
    parse_time,
    text_content,
    tree_branches,
    uncached_input,
)
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.events import (
    FOLLOWS,
    Branch,
    Checkpoint,
    Compacted,
    Event,
    Facts,
    HeldBack,
    IgnoredRecord,
    Importer,
    MessageEvent,
    Resume,
    Retracted,
    SessionBegin,
    SessionEnd,
    Skipped,
    SourceRewritten,
    TokenUsage,
    Unit,
    UsageEvent,
    UserEnvironment,
    begin_session,
    facts,
    workspace,
)
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import Usage

__all__ = [
    "FOLLOWS",
    "BadInput",
    "Branch",
    "Checkpoint",
    "Compacted",
    "DatabaseSession",
    "Event",
    "ExportImporter",
    "Facts",
    "HeldBack",
    "IgnoredRecord",
    "Importer",
    "Json",
    "Kind",
    "Lineage",
    "MessageContent",
    "MessageEvent",
    "ModelTurn",
    "Resume",
    "Retracted",
    "SessionBegin",
    "SessionEnd",
    "Skipped",
    "SourceRewritten",
    "TokenUsage",
    "Unit",
    "Usage",
    "UsageEvent",
    "UserEnvironment",
    "archives",
    "begin_session",
    "call_usage",
    "coerce",
    "databases",
    "export_events",
    "facts",
    "files",
    "first_time",
    "parse_time",
    "text_content",
    "tree_branches",
    "uncached_input",
    "workspace",
]
