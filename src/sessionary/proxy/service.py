"""The proxy as a whole: what may pass, what is recorded of it, and how that goes."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import unquote_to_bytes

from msgspec import Struct, to_builtins

from sessionary.actions import budgets, credentials
from sessionary.actions.budgets import Budgets
from sessionary.clock import Clock, Ids
from sessionary.engine import notices
from sessionary.engine.turn.budgets import scopes_of
from sessionary.errors import SessionaryError
from sessionary.model.access import BudgetStatus, Scope
from sessionary.model.source import Source
from sessionary.proxy.copy import BodyCopy, ExchangeCopy, Memory, secret_parts
from sessionary.proxy.journal import Journal, RecordingGap
from sessionary.proxy.reading import SECRET_NAME, Names, interface_of, read_names
from sessionary.proxy.recorder import Recorder
from sessionary.proxy.server import ProxyServer, Recording, Refused, ServerOptions, UpstreamRoute
from sessionary.proxy.upstream import Upstream
from sessionary.proxy.wire import RequestHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import meta
from sessionary.store.tables.exchanges import PLATFORM

_SESSION_HEADERS = (b"x-sessionary-session", b"x-session-id")
_PERSON_HEADER = b"x-sessionary-person"
# Whose conversation it is, where keys are exchanged for new ones from hour to hour.
_ACCOUNT_HEADERS = (b"chatgpt-account-id",)
_KEY_HEADERS = (b"x-api-key", b"api-key", b"x-goog-api-key", b"authorization")
_LONGEST_NAME = 256
_TOKEN_SECONDS = 10.0
_MOST_TOKENS = 1_000
# Budgets of these kinds depend on what the request says.
_BODY_KINDS = ("person", "model", "channel")
_STOP_SECONDS = 5.0
log = logging.getLogger(__name__)


class ProxyOptions(Struct, frozen=True, kw_only=True):
    """How much is recorded, for how long the end of a response waits, and against which budgets it counts."""

    profile: str
    hold_seconds: float = 1.5
    copy_bytes: int = 32 * 1024 * 1024
    memory_bytes: int = 256 * 1024 * 1024
    budgets: Budgets = {}


class RecordingService(Recording):
    """Decides what may pass, and keeps copies of it until they are durable."""

    def __init__(
        self,
        store: Store,
        options: ProxyOptions,
        *,
        clock: Clock,
        ids: Ids,
        holder: str,
        salt: str,
        tell: Callable[[str], None],
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._ids = ids
        self._salt = salt.encode()
        self._tell = tell
        self._memory = Memory(options.memory_bytes)
        self._tokens: dict[str, tuple[float, str | None]] = {}
        self.needs_body = any(name.partition(":")[0] in _BODY_KINDS for name in options.budgets)
        self.recorder = Recorder(
            store,
            budgets=options.budgets,
            profile=options.profile,
            clock=clock,
            ids=ids,
            holder=holder,
            give_way=self._wait_until_quiet,
        )
        self.journal = Journal(
            store,
            clock=clock,
            holder=holder,
            hold_seconds=options.hold_seconds,
            on_durable=self.recorder.wake,
            on_gap=self._note_gap,
        )

    async def _wait_until_quiet(self, seconds: float) -> None:
        await self.journal.wait_until_quiet(seconds)

    def _note_gap(self, gap: RecordingGap) -> None:
        self.recorder.note_gap(gap)
        if gap.until is None:
            self._tell(f"Not recording since {gap.since:%H:%M:%S}, traffic goes on: {gap.reason}")
        else:
            self._tell(f"Recording again. {gap.text}")

    async def check_token(self, token: str | None) -> str | None:
        """Return the profile of a token that may write; without a token, the profile of the settings."""
        if token is None:
            return self._options.profile
        now = time.monotonic()
        name = credentials.hash_secret(token)
        until, profile = self._tokens.get(name, (0.0, None))
        if until < now:
            try:
                async with asyncio.timeout(self._options.hold_seconds):
                    found = await self._store.read(credentials.find_token, token)
            except (SessionaryError, TimeoutError) as error:
                log.warning("A token of the proxy could not be checked: %s", error)
                if profile is None:
                    raise Refused(503, "Tokens cannot be checked at the moment.") from error
                # It stays what it was when it could be checked: traffic goes on.
            else:
                is_good = found is not None and found.scope.allows(Scope.WRITE)
                profile = found.profile if found is not None and is_good else None
            if len(self._tokens) >= _MOST_TOKENS:
                self._tokens.clear()
            self._tokens[name] = now + _TOKEN_SECONDS, profile
        return profile

    def open(self, route: UpstreamRoute, head: RequestHead, profile: str) -> ExchangeCopy | None:
        """Return a copy for a request that a model is to answer; None for any other."""
        interface = interface_of(head.method.decode(), route.path)
        if interface is None:
            return None
        upstream, now = route.upstream, self._clock.now()
        facts = {
            "interface": str(interface),
            "upstream": upstream.label,
            "path": route.path,
            "address": upstream.url,
        }
        if upstream.provider is not None:
            facts["provider"] = upstream.provider
        session = _first(head, _SESSION_HEADERS)
        if session is not None:
            facts["session"] = session
        person = _first(head, (_PERSON_HEADER,))
        if person is not None:
            facts["person"] = person
        return ExchangeCopy(
            id=self._ids.new(now),
            profile=profile,
            interface=interface,
            client=_first(head, _ACCOUNT_HEADERS) or _first(head, _KEY_HEADERS) or "",
            facts=facts,
            began_at=now,
            request=BodyCopy(self._memory, self._options.copy_bytes),
            response=BodyCopy(self._memory, self._options.copy_bytes),
            request_coding=b",".join(
                each for each in head.tokens(b"content-encoding") if each != b"identity"
            ),
            secrets=_secrets(route, head),
        )

    async def admit(
        self, route: UpstreamRoute, copy: ExchangeCopy | None, *, is_whole: bool
    ) -> None:
        """Refuse what a model would answer if a budget is used up."""
        if copy is None or not self._options.budgets:
            return
        names = Names()
        if is_whole:
            copy.decode_request()
            names = read_names(copy.request.bytes())
        person = _hidden(copy.facts.get("person") or names.person, copy)
        source = Source(PLATFORM, copy.facts.get("session") or names.session, user_id=person)
        scopes = [*scopes_of(source), budgets.scope_name("profile", copy.profile)]
        if names.model is not None:
            scopes.append(budgets.model_scope(names.model, self._options.budgets))
        try:
            async with asyncio.timeout(self._options.hold_seconds):
                used_up = await self._store.read(
                    _find_used_up,
                    scopes,
                    self._options.budgets,
                    profile=copy.profile,
                    now=self._clock.now(),
                )
        except (SessionaryError, TimeoutError) as error:
            log.warning("Budgets could not be checked, the request is passed on: %s", error)
            return
        if used_up is not None:
            seconds = (used_up.resets_at - self._clock.now()).total_seconds()
            text = notices.budget_used_up(used_up, outcome="the request was not passed on")
            raise Refused(429, text, code="budget_used_up", after=max(1, int(seconds)))

    def begin(self, copy: ExchangeCopy) -> None:
        """Read what the request says of itself, and make it durable while it is answered."""
        copy.decode_request()
        names = read_names(copy.request.bytes())
        if names.secrets:
            copy.secrets = secret_parts((*copy.secrets, *names.secrets))
        session = _hidden(copy.facts.get("session") or names.session, copy)
        person = _hidden(copy.facts.pop("person", None) or names.person, copy)
        if session is not None:
            copy.facts["session"] = session
        # A program that tells its conversations apart may use other keys from time to time. Many people may use one
        # key, and begin with the same words.
        kind, whose = ("scope", names.scope) if names.scope else ("key", copy.client)
        copy.facts["client"] = self._digest(
            copy.facts["upstream"], kind, whose, session or "", person or ""
        )
        copy.client = ""
        copy.person = person
        self.journal.begin(copy)

    def _digest(self, *fields: str) -> str:
        """A name for a client from which its key cannot be told."""
        text = "\0".join(fields).encode("utf-8", "replace")
        return hmac.new(self._salt, text, hashlib.sha256).hexdigest()[:32]

    async def end(self, copy: ExchangeCopy) -> None:
        """Make an exchange durable; returns when its last bytes may be released."""
        await self.journal.end(copy)

    def status(self) -> Mapping[str, object]:
        """How recording is doing, as JSON."""
        journal, recorder = self.journal.status, self.recorder.status
        found: dict[str, object] = to_builtins(journal)
        return {"is_recording": journal.gap is None, **found, **to_builtins(recorder)}


def _find_used_up(
    tx: Tx, scopes: list[str], known: Budgets, *, profile: str, now: datetime
) -> BudgetStatus | None:
    accounts = budgets.read_accounts(tx, scopes, known, profile=profile, now=now)
    return next((each.status() for each in accounts.values() if each.is_used_up), None)


def _first(head: RequestHead, names: tuple[bytes, ...]) -> str | None:
    for name in names:
        for value in head.values(name):
            text = value.decode("utf-8", "replace").strip()
            if text:
                return text if name in _KEY_HEADERS else text[:_LONGEST_NAME]
    return None


def _hidden(name: str | None, copy: ExchangeCopy) -> str | None:
    """A name that the request gives, unless it is its key."""
    if name is None or any(each.decode("utf-8", "replace") in name for each in copy.secrets):
        return None
    return name


def _secrets(route: UpstreamRoute, head: RequestHead) -> tuple[bytes, ...]:
    """What no record may contain: keys in headers, in the query and in the path."""
    values = [value for name, value in head.headers if SECRET_NAME.search(name)]
    for item in route.target.partition(b"?")[2].split(b"&"):
        name, _, value = item.partition(b"=")
        if SECRET_NAME.search(name):
            values += [value, unquote_to_bytes(value)]
    if route.token is not None:
        values.append(route.token.encode())
    return secret_parts(values)


class Proxy:
    """A running proxy: its server, its journal and its recorder."""

    def __init__(
        self,
        store: Store,
        upstreams: Mapping[str | None, Upstream],
        server: ServerOptions,
        options: ProxyOptions,
        *,
        clock: Clock,
        ids: Ids,
        holder: str,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self.service = RecordingService(
            store,
            options,
            clock=clock,
            ids=ids,
            holder=holder,
            salt=store.read(meta.redaction_salt).result(),
            tell=tell,
        )
        self._server = ProxyServer(upstreams, self.service, server)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.port

    async def start(self) -> None:
        """Listen, and record what is durable already."""
        await self._server.start()
        self._tasks = [
            asyncio.create_task(self.service.recorder.run()),
            asyncio.create_task(self.service.journal.keep_alive()),
        ]

    async def stop(self) -> None:
        """Accept nothing more, finish what passes, and record what is durable, for some seconds each."""
        await self._server.close(seconds=_STOP_SECONDS)
        gap = await self.service.journal.close(seconds=_STOP_SECONDS)
        if gap is not None:
            self.service.recorder.note_gap(gap)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.service.recorder.drain()
        except (SessionaryError, TimeoutError) as error:
            log.warning("What passed last is durable and is recorded at the next start: %s", error)
