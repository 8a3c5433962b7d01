"""Sessionary: the session layer for AI agents.

from sessionary import Sessionary

with Sessionary() as s:
    chat = s.session("alice")
    chat.append("user", "hello")
"""

import sys
from typing import TYPE_CHECKING

from sessionary.version import __version__ as __version__

if TYPE_CHECKING:
    from sessionary.actions.retention.purge import PurgeResult
    from sessionary.actions.search.search import Hit, SearchResult
    from sessionary.actions.sessions.holds import Hold
    from sessionary.actions.sessions.lists import SessionCounts, SortOrder
    from sessionary.actions.sessions.log import Appended
    from sessionary.actions.sessions.overview import Overview
    from sessionary.actions.sessions.read import TranscriptWindow
    from sessionary.actions.sessions.routing import Binding, NextReset
    from sessionary.actions.transfer.jsonl_import import ImportReport
    from sessionary.actions.verify import Checked
    from sessionary.app.imports import Discovery, ImportResult, ToolImport
    from sessionary.client.async_changes import AsyncSubscription
    from sessionary.client.async_client import AsyncSessionary
    from sessionary.client.async_pages import AsyncHitPage, AsyncPage
    from sessionary.client.async_paginator import AsyncHitPaginator, AsyncPaginator
    from sessionary.client.async_resources import (
        AsyncAccessResource,
        AsyncArrivalsResource,
        AsyncBindingsResource,
        AsyncDeliveriesResource,
        AsyncImportsResource,
        AsyncProjectsResource,
        AsyncSchedulesResource,
        AsyncTokensResource,
        AsyncUpkeepResource,
    )
    from sessionary.client.async_session import AsyncSession
    from sessionary.client.async_transaction import AsyncTransaction
    from sessionary.client.async_turn import AsyncRunningTurn
    from sessionary.client.changes import Subscription
    from sessionary.client.client import Sessionary
    from sessionary.client.operations import Deferred, SessionReference
    from sessionary.client.pages import HitPage, Page
    from sessionary.client.resources import (
        AccessResource,
        ArrivalsResource,
        BindingsResource,
        DeliveriesResource,
        ImportsResource,
        ProjectsResource,
        SchedulesResource,
        TokensResource,
        UpkeepResource,
    )
    from sessionary.client.session import Session
    from sessionary.client.transaction import Transaction
    from sessionary.client.turn import RunningTurn
    from sessionary.client.values import (
        Change,
        Content,
        FolderName,
        Handover,
        InputMessage,
        KindName,
        Reply,
        RoleName,
        StoredMessage,
    )
    from sessionary.engine.ports import Delta, Step, TurnRequest
    from sessionary.errors import (
        AgentFailed,
        Ambiguous,
        BadInput,
        Conflict,
        Damaged,
        NotAllowed,
        NotFound,
        Purged,
        RetryLater,
        SessionaryError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        TurnLost,
        Unreachable,
        Unreadable,
    )
    from sessionary.formats.message_input import File
    from sessionary.model.access import PairingRequest, Permit, Scope, Token
    from sessionary.model.message import (
        Attachment,
        Compaction,
        Entry,
        Message,
        Part,
        Reasoning,
        Retraction,
        Role,
        Text,
        ToolCall,
        ToolResult,
        Unknown,
    )
    from sessionary.model.schedule import Run, RunState, Schedule
    from sessionary.model.session import Kind, Lineage, Project, SessionFolder, SessionHead
    from sessionary.model.source import Channel, ChatType, Person, Source
    from sessionary.model.transcript import Chat
    from sessionary.model.turn import (
        Arrival,
        ArrivalState,
        Delivery,
        DeliveryState,
        Turn,
        TurnState,
    )
    from sessionary.model.usage import CostStatus, Usage, UsageTotal
    from sessionary.store.backup import BackupFile, BackupReport
    from sessionary.web.server import Ready

NOT_ON_WINDOWS = "Sessionary runs on Linux and macOS. On Windows, use it in WSL (`wsl --install`)."

__all__ = [
    "AccessResource",
    "AgentFailed",
    "Ambiguous",
    "Appended",
    "Arrival",
    "ArrivalState",
    "ArrivalsResource",
    "AsyncAccessResource",
    "AsyncArrivalsResource",
    "AsyncBindingsResource",
    "AsyncDeliveriesResource",
    "AsyncHitPage",
    "AsyncHitPaginator",
    "AsyncImportsResource",
    "AsyncPage",
    "AsyncPaginator",
    "AsyncProjectsResource",
    "AsyncRunningTurn",
    "AsyncSchedulesResource",
    "AsyncSession",
    "AsyncSessionary",
    "AsyncSubscription",
    "AsyncTokensResource",
    "AsyncTransaction",
    "AsyncUpkeepResource",
    "Attachment",
    "BackupFile",
    "BackupReport",
    "BadInput",
    "Binding",
    "BindingsResource",
    "Change",
    "Channel",
    "Chat",
    "ChatType",
    "Checked",
    "Compaction",
    "Conflict",
    "Content",
    "CostStatus",
    "Damaged",
    "Deferred",
    "DeliveriesResource",
    "Delivery",
    "DeliveryState",
    "Delta",
    "Discovery",
    "Entry",
    "File",
    "FolderName",
    "Handover",
    "Hit",
    "HitPage",
    "Hold",
    "ImportReport",
    "ImportResult",
    "ImportsResource",
    "InputMessage",
    "Kind",
    "KindName",
    "Lineage",
    "Message",
    "NextReset",
    "NotAllowed",
    "NotFound",
    "Overview",
    "Page",
    "PairingRequest",
    "Part",
    "Permit",
    "Person",
    "Project",
    "ProjectsResource",
    "PurgeResult",
    "Purged",
    "Ready",
    "Reasoning",
    "Reply",
    "Retraction",
    "RetryLater",
    "Role",
    "RoleName",
    "Run",
    "RunState",
    "RunningTurn",
    "Schedule",
    "SchedulesResource",
    "Scope",
    "SearchResult",
    "Session",
    "SessionCounts",
    "SessionFolder",
    "SessionHead",
    "SessionReference",
    "Sessionary",
    "SessionaryError",
    "SortOrder",
    "Source",
    "Step",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoredMessage",
    "Subscription",
    "Text",
    "Token",
    "TokensResource",
    "ToolCall",
    "ToolImport",
    "ToolResult",
    "Transaction",
    "TranscriptWindow",
    "Turn",
    "TurnLost",
    "TurnRequest",
    "TurnState",
    "Unknown",
    "Unreachable",
    "Unreadable",
    "UpkeepResource",
    "Usage",
    "UsageTotal",
]
_IMPORTS = ("Discovery", "ImportReport", "ImportResult", "ToolImport")
_MORE = (
    "BackupFile",
    "BackupReport",
    "Checked",
    "Delta",
    "File",
    "Hit",
    "Overview",
    "SearchResult",
    "Step",
    "TurnRequest",
)
_DEPRECATED = ("open",)


def __getattr__(name: str) -> object:
    """Load the public names on first use: the command line starts fast, and a program loads what it uses."""
    if name not in __all__ and name not in _DEPRECATED:
        raise AttributeError(f"module 'sessionary' has no attribute {name!r}")
    from sessionary import errors

    if hasattr(errors, name):
        globals()[name] = getattr(errors, name)
        return globals()[name]
    if sys.platform == "win32":
        raise errors.StoreUnavailable(NOT_ON_WINDOWS)
    if name == "open":
        return _deprecated_open()
    if name in _IMPORTS:
        from sessionary.actions.transfer.jsonl_import import ImportReport
        from sessionary.app.imports import Discovery, ImportResult, ToolImport

        found = {
            each.__name__: each for each in (Discovery, ImportReport, ImportResult, ToolImport)
        }
        globals().update(found)
        return found[name]
    if name == "Ready":
        from sessionary.web.server import Ready

        return Ready
    if name.startswith("Async"):
        from sessionary.client import async_public

        globals()[name] = getattr(async_public, name)
    elif name in _MORE:
        from sessionary.client import more_public

        globals()[name] = getattr(more_public, name)
    else:
        from sessionary.client import public

        globals()[name] = getattr(public, name)
    return globals()[name]


def _deprecated_open() -> object:
    import warnings  # only the old name needs it

    from sessionary.client.client import Sessionary

    warnings.warn(
        "sessionary.open is deprecated: use sessionary.Sessionary, or sessionary.AsyncSessionary.",
        DeprecationWarning,
        stacklevel=3,
    )
    return Sessionary


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
