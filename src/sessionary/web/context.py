"""What the web server is given: store, engine, settings and limits."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from typing_extensions import TypedDict

from sessionary.clock import Clock, Ids, Moment, RandomIds, SystemClock
from sessionary.config.server import WebSettings
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Challenge, Webhook
from sessionary.model.access import Scope
from sessionary.model.push import NewSubscription
from sessionary.model.record import ExportOptions
from sessionary.model.reset import Policies
from sessionary.model.source import Person
from sessionary.store.database import Store

PREFIX = "/api/v1"
# Who is logged in at the workbench.
OWNER = Person("owner", name="The owner")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

# The handler for spans: a profile, the raw body, its media type and encoding in; the response's
# body out, or None if the request is too large. It returns only when the messages are durable.
Traces = Callable[[str, bytes, str, str | None], Awaitable[bytes | None]]


class FoundRecords(TypedDict):
    """Conversations of one tool in one place on the server's machine."""

    tool: str
    title: str
    """The tool's name for people."""
    place: str
    """Where they are."""
    units: int
    """How many files or records there are."""
    bytes: int
    new_units: int
    """How many of them were not imported yet."""
    new_bytes: int
    expiring: int
    """How many of the new ones the tool will delete within a week."""
    expires_at: str | None
    """When the first of those is deleted."""


class ImportProgressInfo(TypedDict):
    """How far an import is."""

    tool: str
    place: str
    """The file that is being read."""
    bytes: int
    all_bytes: int
    sessions: int
    messages: int


class OmissionInfo(TypedDict):
    """A unit from which nothing was imported, and why."""

    unit: str
    reason: str


class FaultInfo(TypedDict):
    """A record that could not be read."""

    unit: str
    where: str
    why: str


class ImportOutcome(TypedDict):
    """What an import of one tool's records did, or would do."""

    tool: str
    title: str
    """The tool's name for people."""
    places: list[str]
    units: int
    """How many files or records there are: imported, unchanged and omitted ones together."""
    imported_units: int
    unchanged_units: int
    """Units that have not changed since the last import."""
    omitted_units: int
    """Units from which nothing was imported."""
    omissions: list[OmissionInfo]
    """The first 100 of them."""
    added: int
    """New sessions."""
    extended: int
    """Sessions that got new messages."""
    unchanged: int
    """Sessions without anything new."""
    messages: int
    """New messages."""
    bytes: int
    """Bytes that were read."""
    skipped: int
    """Records that could not be read."""
    faults: list[FaultInfo]
    """The first 100 of them."""
    left_out: dict[str, int]
    """What was not imported on purpose, by kind."""
    wordless: list[str]
    """The first sessions without a conversation."""
    held_back: int
    """Replies that may still grow; a later import brings them."""
    held_back_until: str | None
    notes: list[str]


class BackupInfo(TypedDict):
    """A backup on the server's disk."""

    name: str
    bytes: int


UpkeepTask = Literal["backup", "verify", "shrink"]


class StoreOverview(TypedDict):
    """Where backups are, how large the store is, and which tasks it supports."""

    folder: str
    """The directory of the backups."""
    keep: int | None
    """How many backups are kept; null for all."""
    backups: list[BackupInfo]
    bytes: int | None
    """The size of the database; null with PostgreSQL."""
    tasks: list[UpkeepTask]
    """`backup`, `verify`, and with SQLite `shrink`."""


class UpkeepProgress(TypedDict):
    """How far a task is."""

    done: int
    whole: int
    """The number to reach; 0 if it is not known."""


class BackupOutcome(TypedDict):
    """A backup that was made."""

    file: str
    bytes: int
    sessions: int
    entries: int
    deleted: list[str]
    """Old backups that were deleted."""


class BrokenInvariant(TypedDict):
    """Something that does not hold in the store."""

    invariant: str
    where: str
    what: str


class VerifyOutcome(TypedDict):
    """What a check of the store found."""

    sessions: int
    entries: int
    broken: list[BrokenInvariant]
    """The first 100 problems."""
    broken_count: int


class ShrinkOutcome(TypedDict):
    """The size of the database before and after."""

    before: int
    bytes: int


UpkeepOutcome = BackupOutcome | VerifyOutcome | ShrinkOutcome


class Imports(Protocol):
    """Other tools' records on the server's machine."""

    def discover(self) -> list[FoundRecords]:
        """What is there, and how much of it is new."""

    def run(
        self, tools: Sequence[str], *, dry_run: bool, tell: Callable[[ImportProgressInfo], None]
    ) -> list[ImportOutcome]:
        """Import from the named tools, or from all; `tell` is called between two records."""


class StateExport(Protocol):
    """Writes sessions as a file with the tables of Hermes."""

    def __call__(
        self,
        store: Store,
        path: Path,
        ids: Sequence[str] | None,
        *,
        profile: str,
        options: ExportOptions,
    ) -> int:
        """Write the sessions, or all of the profile, to a new file; return how many."""


class Upkeep(Protocol):
    """Backups, checks and compaction of the store."""

    def overview(self) -> StoreOverview:
        """Where backups are, and which tasks there are."""

    def run(self, task: str, tell: Callable[[UpkeepProgress], None]) -> UpkeepOutcome:
        """Do a task; `tell` is called as it goes, and may raise to end it."""


class BrowserPush(Protocol):
    """What notifies browsers of questions."""

    async def public_key(self) -> str:
        """Return the key that a browser subscribes with."""

    async def check_subscription(self, new: NewSubscription) -> None:
        """Raise `BadInput` unless the subscription is one of a push service that may be called."""


@dataclass(frozen=True, slots=True)
class WebContext:
    """What every request is handled with: store, engine, clock, settings."""

    store: Store
    profile: str = "main"
    engine: Engine | None = None
    settings: WebSettings = field(default_factory=WebSettings)
    policies: Policies = field(default_factory=Policies)
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    rng: Callable[[int], bytes] = os.urandom
    webhooks: Mapping[str, Webhook] = field(default_factory=dict)
    challenges: Mapping[str, Challenge] = field(default_factory=dict)
    # The most that each platform posts in one request. Anyone can post to a webhook, so a body is bounded before its
    # signature is checked.
    webhook_bytes: Mapping[str, int] = field(default_factory=dict)
    traces: Traces | None = None
    logs: Traces | None = None
    imports: Imports | None = None
    upkeep: Upkeep | None = None
    # None if the extra that it needs is not installed.
    push: BrowserPush | None = None
    export_state: StateExport | None = None

    def moment(self) -> Moment:
        """Now, and where fresh ids come from."""
        return Moment(self.clock.now(), self.ids)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: what they may do is in the server's own record, never in the request."""

    profile: str
    scope: Scope
    id: str
    is_browser: bool = False
    # The name of a program's token; may be empty.
    name: str = ""

    @property
    def may_approve(self) -> bool:
        """Whether the caller has an owner's rights: at a browser, or with a token of the scope `admin`."""
        return self.scope.allows(Scope.ADMIN)

    @property
    def person(self) -> Person:
        """Who the log names for what the caller did: the owner, at a browser, or the token of a program."""
        if self.is_browser:
            return OWNER
        return Person(self.id, name=self.name or f"Token {self.id}")


CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Nobody else is told where someone came from. `no-referrer` would do so too, but then a browser
    # sends our own login form with `Origin: null`, and we would refuse it.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
