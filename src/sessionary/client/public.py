"""The public names that every program with a blocking client loads; `sessionary` gives them out."""

from sessionary.actions.retention.purge import PurgeResult
from sessionary.actions.sessions.holds import Hold
from sessionary.actions.sessions.lists import SessionCounts, SortOrder
from sessionary.actions.sessions.log import Appended
from sessionary.actions.sessions.read import TranscriptWindow
from sessionary.actions.sessions.routing import Binding, NextReset
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
from sessionary.model.turn import Arrival, ArrivalState, Delivery, DeliveryState, Turn, TurnState
from sessionary.model.usage import CostStatus, Usage, UsageTotal
