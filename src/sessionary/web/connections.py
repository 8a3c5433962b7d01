"""Connections: how many there may be, who keeps one when there are too many, and how slow one may be.

Everything here is about clients that nobody knows yet. A flood of connections that say nothing, or
say it one byte at a time, must not keep out the people and programs that have a right to be here.
"""

import asyncio
import ipaddress
import logging
import resource
from collections import Counter
from functools import lru_cache
from typing import Any, Literal, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from sessionary.config.server import Limits, Network
from sessionary.web.problems import RequestRefused, raw_refusal_response

CONNECTION = "sessionary.connection"
HEALTH = frozenset({"/healthz", "/readyz", "/api/v1/healthz", "/api/v1/readyz"})
# Connections beyond the limit that are kept for health checks, so that a server that is merely busy
# is not taken for a dead one.
HEALTH_RESERVE = 16
# Connections that are accepted in one go, before those that are too many can be closed. Uvicorn's
# 2,048 would use up the files of the process in a flood.
ACCEPTED_AT_ONCE = 32
# Files that the process needs besides: the database, channels, agents, connections just accepted.
OTHER_FILES = 128 + 3 * ACCEPTED_AT_ONCE
LEAST_CONNECTIONS = 32
STOP_SECONDS = 5
# How long a client may still send after its request was refused.
LINGER_SECONDS = 1.0
log = logging.getLogger(__name__)

# Who may use a connection: anyone, only callers with a token or a login, only health checks.
Admission = Literal["anyone", "known", "health"]


class OpenConnections:
    """Every open connection of one listening address."""

    def __init__(
        self,
        limits: Limits,
        *,
        trusted: tuple[Network, ...] = (),
        knows_callers: bool = True,
        addresses: int = 1,
    ) -> None:
        self.limits = limits
        self.trusted = trusted
        self.most = _affordable(limits.connections, addresses)
        reserve = self.most // 4 if knows_callers else 0
        self.most_unknown = self.most - reserve
        self.refused = 0
        self._open: dict[LimitedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, new: "LimitedConnection") -> Admission | None:
        """Take a connection in and say whom it may serve; None when there is no room at all.

        Where there is no room, a connection that waits for its client gives way: first one of the
        address that has the most of them, and of those the one that has waited longest.
        """
        room: Admission = "anyone"
        unknown = [each for each in self._open if each.caller is None]
        of_address = sum(each.address == new.address for each in unknown)
        if new.is_limited and of_address >= min(self.limits.connections_per_address, self.most):
            room = "anyone" if self._evict(unknown, address=new.address) else "known"
        elif len(unknown) >= self.most_unknown and not self._evict(unknown):
            room = "known"
        if len(self._open) >= self.most and not self._evict(list(self._open)):
            room = "health"
        if len(self._open) >= self.most + HEALTH_RESERVE:
            self._count_refusal()
            return None
        self._open[new] = None
        return room

    def discard(self, connection: "LimitedConnection") -> None:
        self._open.pop(connection, None)

    def of_caller(self, caller: str, *, besides: "LimitedConnection") -> int:
        """How many requests of one token or login are being answered on other connections."""
        return sum(
            each is not besides and each.caller == caller and each.is_busy for each in self._open
        )

    def _evict(self, candidates: "list[LimitedConnection]", *, address: str | None = None) -> bool:
        waiting = [
            each
            for each in candidates
            if each.is_waiting and (address is None or each.address == address)
        ]
        if not waiting:
            return False
        crowd = Counter(each.address for each in waiting)
        victim = min(
            waiting,
            key=lambda each: (
                each.caller is not None,
                each.is_proxy,
                -crowd[each.address],
                each.waiting_since,
            ),
        )
        self._count_refusal()
        self.discard(victim)
        victim.drop()
        return True

    def _count_refusal(self) -> None:
        self.refused += 1
        if self.refused.bit_count() == 1:  # the 1st, 2nd, 4th, 8th …: a flood does not fill the log
            log.warning(
                "Connections: %d are open, %d at most; %d were closed to make room or refused so far.",
                len(self._open),
                self.most,
                self.refused,
            )


class LimitedConnection(H11Protocol):
    """A connection of uvicorn that has limits of time, and gives way when there are too many."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        assert isinstance(self.config, ServerConfig)
        self._all = self.config.connections
        self._limits = self._all.limits
        self.app = self._known_to(self.app)
        self.address = ""
        self.is_proxy = False
        self.is_limited = False
        self.room: Admission = "anyone"
        self.caller: str | None = None
        self.waiting_since = 0.0
        self._has_named_caller = False
        self._is_ending = False
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    @property
    def is_busy(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to do something next: send a request or its rest, or read."""
        return not self.is_busy or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Find out who is there, and whether there is room."""
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        self.address, self.is_proxy, is_local = classify_peer(peer, self._all.trusted)
        # Everybody behind a proxy, and everybody on this machine, has the same address.
        self.is_limited = not (self.is_proxy or is_local)
        self.waiting_since = self.loop.time()
        room = self._all.admit(self)
        if room is None:
            self.drop()
            return
        self.room = room
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        self._cancel_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in; a request whose head is whole has all the time that its answer needs."""
        if self._is_ending:
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, as nobody in particular unless this one had a caller."""
        if not self._has_named_caller:
            self.caller = None
        self._has_named_caller = False
        self.waiting_since = self.loop.time()
        self._cancel_request_timer()
        super().on_response_complete()
        if not self.transport.is_closing():
            self._look()

    def pause_writing(self) -> None:
        """Watch a client that does not read its answer."""
        super().pause_writing()
        self.waiting_since = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        if self._stall_timer is None:
            self._watch_stall()

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """JsonAnswer what is no HTTP as every other problem, and close."""
        self.transport.write(raw_refusal_response(RequestRefused(400, msg, close=True)))
        self.transport.close()

    def drop(self) -> None:
        """Close at once; what was not sent is not sent."""
        self._cancel_timers()
        self.transport.abort()

    def check(self, path: str, *, has_credential: bool) -> None:
        """Refuse a request for which this connection has no room."""
        if path in HEALTH or self.room == "anyone" or (self.room == "known" and has_credential):
            return
        raise RequestRefused(
            503, "Too many connections are open; nothing was done.", after=2, close=True
        )

    def name_caller(self, caller: str) -> None:
        """Note whose request this is; one caller never has more than half of all connections."""
        self._has_named_caller = True
        if self._all.of_caller(caller, besides=self) >= max(self._all.most // 2, 1):
            raise RequestRefused(429, "This token or login has too many requests open.", after=1)
        self.caller = caller
        if self.room == "known":
            self.room = "anyone"

    def _known_to(self, app: ASGIApp) -> ASGIApp:
        async def with_connection(scope: Scope, receive: Receive, send: Send) -> None:
            scope[CONNECTION] = self
            await app(scope, receive, send)

        return with_connection

    def _look(self) -> None:
        if self.is_busy:
            self._cancel_request_timer()
        elif self._request_timer is None:
            self._expect_request()

    def _expect_request(self) -> None:
        self._request_timer = self.loop.call_later(
            self._limits.request_head_seconds, self._end_slow_request
        )

    def _end_slow_request(self) -> None:
        self._request_timer = None
        if self.transport.is_closing():
            return
        # Only a client that has begun a request expects an answer to it.
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            error = RequestRefused(408, "The request took too long to come.", close=True)
            self.transport.write(raw_refusal_response(error))
            # A client that still sends would lose the answer if we closed now: TCP resets then.
            self._is_ending = True
            self.transport.write_eof()
            self._request_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def _watch_stall(self) -> None:
        self._stall_timer = self.loop.call_later(
            self._limits.response_stall_seconds, self._end_stalled
        )

    def _end_stalled(self) -> None:
        self._stall_timer = None
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:  # slow, but it reads
            self._unsent = unsent
            self._watch_stall()
        else:
            self.drop()

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _cancel_timers(self) -> None:
        self._cancel_request_timer()
        self._cancel_stall_timer()


class ServerConfig(uvicorn.Config):
    """How uvicorn serves an application of ours."""

    def __init__(self, app: ASGIApp, connections: OpenConnections) -> None:
        super().__init__(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            # It has the limits of connections; uvicorn's own answer everybody alike with 503.
            http=LimitedConnection,
            backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=64 * 1024,
        )
        self.connections = connections


class BodyBudget:
    """The bytes of request bodies that are held in memory at once.

    A small body takes nothing. The body that came first may always go on, whatever it needs, so that
    bodies which each hold a part never wait for one another.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: dict[object, int] = {}
        self._freed = asyncio.Condition()

    @property
    def used(self) -> int:
        return sum(self._held.values())

    async def take(self, holder: object, size: int, *, seconds: float) -> None:
        """Account for more bytes of a body; wait for room, and refuse when none comes in time."""
        self._held.setdefault(holder, 0)
        if not self._has_room(holder, size):
            try:
                async with asyncio.timeout(seconds), self._freed:
                    await self._freed.wait_for(lambda: self._has_room(holder, size))
            except TimeoutError as error:
                raise RequestRefused(
                    503,
                    "Too many large requests are being handled at once; nothing was written.",
                    after=5,
                    close=True,
                ) from error
        self._held[holder] += size

    async def release(self, holder: object) -> None:
        """Give back what a body held."""
        if self._held.pop(holder, None) is not None:
            async with self._freed:
                self._freed.notify_all()

    def _has_room(self, holder: object, size: int) -> bool:
        return self.used + size <= self._most or next(iter(self._held)) is holder


@lru_cache(maxsize=1024)
def classify_peer(peer: str, trusted: tuple[Network, ...]) -> tuple[str, bool, bool]:
    """What counts as one address (of IPv6 a network of 64 bits), is it a proxy, is it this machine."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:  # a socket in the file system has no address
        return peer, False, True
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    is_proxy = any(address in network for network in trusted)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        whole = int(address) >> 64 << 64
        return str(ipaddress.IPv6Address(whole)), is_proxy, False
    return str(address), is_proxy, address.is_loopback


def _affordable(wanted: int, addresses: int) -> int:
    """As many connections as are wanted, or as the process may open files for at each address."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    most = max(min(wanted, (files - OTHER_FILES) // addresses - HEALTH_RESERVE), LEAST_CONNECTIONS)
    if most < wanted:
        log.warning(
            "At most %d connections instead of %d: the process may open %d files (ulimit -n).",
            most,
            wanted,
            files,
        )
    return min(most, wanted)
