"""What the web server is given: store, engine, settings and limits."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sessionary.clock import Clock, Ids, Moment, RandomIds, SystemClock
from sessionary.config.server import WebSettings
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Challenge, Webhook
from sessionary.model.access import Scope
from sessionary.model.reset import Policies
from sessionary.store.database import Store

PREFIX = "/api/v1"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

# The handler for spans: a profile, the raw body, its media type and encoding in; the response's
# body out, or None if the request is too large. It returns only when the messages are durable.
Traces = Callable[[str, bytes, str, str | None], Awaitable[bytes | None]]


class Imports(Protocol):
    """Other tools' records on the server's machine; every answer is made of plain values."""

    def discover(self) -> list[dict[str, Any]]:
        """What is there, and how much of it is new."""

    def run(
        self, tools: Sequence[str], *, dry_run: bool, tell: Callable[[dict[str, Any]], None]
    ) -> list[dict[str, Any]]:
        """Import from the named tools, or from all; `tell` is called between two records."""


class Upkeep(Protocol):
    """What keeps the store well; every answer is made of plain values."""

    def overview(self) -> dict[str, Any]:
        """Where backups are, and which `tasks` there are."""

    def run(self, task: str, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Do a task; `tell` is called as it goes, and may raise to end it."""


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
    traces: Traces | None = None
    logs: Traces | None = None
    imports: Imports | None = None
    upkeep: Upkeep | None = None

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
