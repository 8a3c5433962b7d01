"""Session services of Google's Agent Development Kit.

    runner = Runner(app_name="guide", agent=agent, session_service=SessionarySessionService(client))

A session of the kit is a session here. What its users and apps keep in their state is a session
too, in the folder for automation: each change is a message, and the last one is the state.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from sessionary.actions.sessions import append, edit, log, read
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.integrations import thread
from sessionary.integrations.base import NewFiles, SessionaryClient, require_extra, wait_for_write
from sessionary.integrations.thread import ExternalThread
from sessionary.model import codec
from sessionary.model.message import (
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.session import Kind, SessionHead
from sessionary.model.source import escape
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as rows

with require_extra("google-adk", "The storage for Google's Agent Development Kit"):
    from google.adk.errors._stale_session_error import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from pydantic_core import to_jsonable_python

PLATFORM = "google-adk"
_SLASHES_OF_A_SESSION = 2
_FEW = 500
_STALE = (
    "Session {} has events that this copy of it has not: another run wrote to it. "
    "Nothing was written; get the session again."
)
NATIVE = "google-adk"


class SessionarySessionService(BaseSessionService):
    """Sessions, and the state of users and apps, in a Sessionary store."""

    def __init__(self, client: SessionaryClient, *, profile: str | None = None) -> None:
        self._client = client
        self._profile = profile or client.profile
        # Branches of one invocation share a session object and may append at once.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Open a session, with what its state begins with."""
        name = (session_id or "").strip() or str(uuid.uuid4())
        where = self._thread(app_name, user_id, name)
        given = to_jsonable_python(lasting(state or {}), fallback=str)
        await self._write(_create, where, self._states(app_name, user_id), given)
        made = await self.get_session(app_name=app_name, user_id=user_id, session_id=name)
        assert made is not None
        return made

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """A session with its events and its state."""
        where = self._thread(app_name, user_id, session_id.strip())
        store = self._client.store
        return await store.read(_get, where, self._states(app_name, user_id), config)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """The sessions of a user or of an app, the last written last, with their state but no events."""
        found = await self._client.store.read(
            _list, self._profile, app_name, user_id, lambda user: self._states(app_name, user)
        )
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        where = self._thread(app_name, user_id, session_id.strip())
        await self._write(thread.trash, where)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """What a user keeps, under names without their prefix."""
        where = self._states(app_name, user_id)[State.USER_PREFIX]
        return await self._client.store.read(_state, where)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event and its changes of state, once; `StaleSessionError` when others were first."""
        if event.partial:
            return event
        where = self._thread(session.app_name, session.user_id, session.id)
        async with self._turns.setdefault(str(where.key), asyncio.Lock()):
            used = self._client.priced(usage_of(event), at=None)
            states = self._states(session.app_name, session.user_id)
            delta = event.actions.state_delta if event.actions else {}
            given = to_jsonable_python(lasting(delta), fallback=str)
            is_new = await self._write(
                _append, where, states, given, event=event, session=session, used=used
            )
            if not is_new:
                return event
            appended: Event = await super().append_event(session=session, event=event)
            session.last_update_time = event.timestamp
            session._storage_update_marker = event.id
            return appended

    async def _write(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        return await wait_for_write(
            self._client.store.write(action, *args, moment=self._client.moment(), **kwargs)
        )

    def _thread(self, app: str, user: str, session: str) -> ExternalThread:
        source = thread.source_for(
            PLATFORM,
            "/".join(map(escape, (app, user, session))),
            chat_name=app,
            user_id=user,
            extra={"app_name": app, "session_id": session},
        )
        return ExternalThread(self._profile, source)

    def _states(self, app: str, user: str) -> dict[str, ExternalThread]:
        """Where each kind of state is kept that is not a session's own."""
        names = {State.APP_PREFIX: [app], State.USER_PREFIX: [app, user]}
        return {
            prefix: ExternalThread(
                self._profile,
                thread.source_for(
                    PLATFORM, "/".join(map(escape, path)), chat_name=f"State of {path[-1]}"
                ),
                kind=Kind.JOB,
            )
            for prefix, path in names.items()
        }


def _create(
    tx: Tx,
    where: ExternalThread,
    states: Mapping[str, ExternalThread],
    given: dict[str, Any],
    *,
    moment: Moment,
) -> None:
    if thread.lock_session(tx, where) is not None:
        id = where.source.extra["session_id"]
        raise AlreadyExistsError(f"Session with id {id} already exists.")
    head = thread.get_or_open(tx, where, moment=moment, note="google-adk:opened")
    own = _share_out(tx, states, given, moment=moment)
    kept = {"state": own, "updated": moment.now.timestamp(), "marker": ""}
    edit.update_extra(tx, head, NATIVE, lambda _: kept)


def _get(
    tx: Tx,
    where: ExternalThread,
    states: Mapping[str, ExternalThread],
    config: GetSessionConfig | None,
) -> Session | None:
    head = thread.find_session(tx, where)
    if head is None:
        return None
    kept = _kept(tx, head)
    session = _session(head, kept, state=kept["state"] | _shared_state(tx, states))
    session.events = _events(tx, head, config)
    return session


def _list(
    tx: Tx,
    profile: str,
    app: str,
    user: str | None,
    states_of: Callable[[str], Mapping[str, ExternalThread]],
) -> list[Session]:
    path = f"{escape(app)}/" if user is None else f"{escape(app)}/{escape(user)}/"
    beginning = thread.key_prefix(PLATFORM, path, profile=profile)
    shared: dict[str, dict[str, Any]] = {}
    found = []
    for key, head in thread.sessions_with_prefix(tx, beginning, profile=profile):
        if (key.chat or "").count("/") != _SLASHES_OF_A_SESSION:
            continue
        owner = head.source.user_id or ""
        if owner not in shared:
            shared[owner] = _shared_state(tx, states_of(owner))
        kept = _kept(tx, head)
        found.append(_session(head, kept, state=kept["state"] | shared[owner]))
    return found


def _shared_state(tx: Tx, states: Mapping[str, ExternalThread]) -> dict[str, Any]:
    """The state of the app and of the user, under names with their prefixes."""
    return {
        prefix + name: value
        for prefix, place in states.items()
        for name, value in _state(tx, place).items()
    }


def _append(
    tx: Tx,
    where: ExternalThread,
    states: Mapping[str, ExternalThread],
    given: dict[str, Any],
    *,
    event: Event,
    session: Session,
    used: Usage | None,
    moment: Moment,
) -> bool:
    """Add an event; whether it was new."""
    head = thread.lock_session(tx, where)
    if head is None:
        raise SessionNotFoundError(f"Session {session.id} not found.")
    text = stored_text(event)
    idempotency_key: str | None = f"{PLATFORM}/{head.id}/{event.id}"[: log.MAX_IDEMPOTENCY_KEY]
    assert idempotency_key is not None
    earlier = log.find_repeat(tx, idempotency_key, profile=where.profile)
    if earlier is not None:
        if _text_at(tx, head, earlier.seq) == text:
            return False
        idempotency_key = None  # another event that happens to have the same name
    kept = _kept(tx, head)
    if _is_stale(session, kept):
        raise StaleSessionError(_STALE.format(session.id))
    files = NewFiles()
    message = message_of(event, text, files)
    files.keep(tx)
    new_message = NewMessage(message, at=at(event), idempotency_key=idempotency_key, usage=used)
    append.append_to_session(tx, head.id, new_message, profile=where.profile, moment=moment)
    own = kept["state"] | _share_out(tx, states, given, moment=moment)
    now = {"state": own, "updated": event.timestamp, "marker": event.id}
    edit.update_extra(tx, head, NATIVE, lambda _: now)
    return True


def _is_stale(session: Session, kept: Mapping[str, Any]) -> bool:
    """Whether the store has events that this copy of the session does not know of."""
    known = session._storage_update_marker
    if known is not None:
        return bool(known != kept["marker"])
    return kept["marker"] not in {"", *(event.id for event in session.events)}


def _share_out(
    tx: Tx, states: Mapping[str, ExternalThread], given: Mapping[str, Any], *, moment: Moment
) -> dict[str, Any]:
    """Write what belongs to the user and to the app where it belongs; the session's own rest."""
    own = dict(given)
    for prefix, place in states.items():
        changes = {
            name.removeprefix(prefix): own.pop(name) for name in given if name.startswith(prefix)
        }
        if changes:
            _change(tx, place, changes, moment=moment)
    return own


def _change(tx: Tx, place: ExternalThread, changes: Mapping[str, Any], *, moment: Moment) -> None:
    """Add a line to a state: what is new in it, for people, and all of it beside that."""
    head = thread.get_or_open(tx, place, moment=moment)
    state = _state(tx, place) | dict(changes)
    text = "\n".join(f"{name} = {codec.encode(value)}" for name, value in changes.items())
    message = Message(Role.SYSTEM, (Text(text),), extra={NATIVE: {"state": state}})
    log.append(tx, head.id, message, profile=place.profile, at=moment.now)


def _state(tx: Tx, place: ExternalThread) -> dict[str, Any]:
    for entry in thread.visible_entries(tx, place, limit=1):
        kept: Any = thread.entry_message(entry).extra.get(NATIVE)
        if kept is not None:
            return dict(kept["state"])
    return {}


def _events(tx: Tx, head: SessionHead, config: GetSessionConfig | None) -> list[Event]:
    recent = None if config is None else config.num_recent_events
    since = None if config is None else config.after_timestamp
    if recent == 0:
        return []
    found = _recent(tx, head, recent) if recent is not None and recent <= _FEW else None
    if found is None:
        found = _all_events(thread.all_messages(tx, head))
    found = found if recent is None else found[-recent:]
    return [event for event in found if since is None or event.timestamp >= since]


def _recent(tx: Tx, head: SessionHead, wanted: int) -> list[Event] | None:
    """The last events; None when so few messages do not hold as many."""
    # One more than asked for: the line that opened the session is no event.
    window = read.read_window(tx, head.id, profile=head.profile, limit=wanted + 1)
    found = _all_events([entry.body for entry in window.entries if isinstance(entry.body, Message)])
    return found if len(found) >= wanted or not window.more_before else None


def _all_events(messages: Sequence[Message]) -> list[Event]:
    return [event for one in messages if (event := event_of(one)) is not None]


def _session(head: SessionHead, kept: Mapping[str, Any], *, state: dict[str, Any]) -> Session:
    made = Session(
        id=head.source.extra["session_id"],
        app_name=head.source.extra["app_name"],
        user_id=head.source.user_id or "",
        state=state,
        last_update_time=kept["updated"],
    )
    made._storage_update_marker = kept["marker"]
    return made


def _kept(tx: Tx, head: SessionHead) -> dict[str, Any]:
    found: Any = rows.details(tx, head.no).extra.get(NATIVE)
    return dict(found) if found else {"state": {}, "updated": 0.0, "marker": ""}


def _text_at(tx: Tx, head: SessionHead, seq: int) -> Any:
    found = read.read_log(tx, head.id, profile=head.profile, after=seq - 1, limit=1)
    body = found[0].body if found else None
    return body.extra.get(NATIVE) if isinstance(body, Message) else None


def stored_text(event: Event) -> str:
    """The event as it is kept: what is only meant for the running invocation is left out."""
    kept = event
    if event.actions and any(
        name.startswith(State.TEMP_PREFIX) for name in event.actions.state_delta
    ):
        delta = lasting(event.actions.state_delta)
        actions = event.actions.model_copy(update={"state_delta": delta})
        kept = event.model_copy(update={"actions": actions})
    text: str = kept.model_dump_json(exclude_none=True)
    return text


def lasting(delta: dict[str, Any]) -> dict[str, Any]:
    """The changes of state that outlive an invocation."""
    return {name: value for name, value in delta.items() if not name.startswith(State.TEMP_PREFIX)}


def message_of(event: Event, text: str, files: NewFiles) -> Message:
    """An event as a message that people read, with the event itself beside it."""
    parts = tuple(_part(part, files) for part in (event.content and event.content.parts) or ())
    if event.error_message or event.error_code:
        parts += (Text(str(event.error_message or event.error_code)),)
    if not parts:
        delta = event.actions.state_delta if event.actions else {}
        parts = (Unknown({"type": "google-adk:actions", "state": sorted(lasting(delta))}),)
    return Message(
        _role(event, parts),
        parts,
        model=event.model_version,
        finish_reason=None if event.finish_reason is None else event.finish_reason.value,
        extra={NATIVE: text},
    )


def event_of(message: Message) -> Event | None:
    """The event that a message is; None when it came another way."""
    text = message.extra.get(NATIVE)
    return Event.model_validate_json(text) if isinstance(text, str) else None


def at(event: Event) -> datetime:
    """When an event happened."""
    return datetime.fromtimestamp(event.timestamp, UTC)


def usage_of(event: Event) -> Usage | None:
    """The model call that an event is the answer of, in our way of counting."""
    used = event.usage_metadata
    if used is None:
        return None
    cached, thoughts = used.cached_content_token_count or 0, used.thoughts_token_count or 0
    prompt = (used.prompt_token_count or 0) + (used.tool_use_prompt_token_count or 0)
    return Usage(
        model=event.model_version,
        input_tokens=max(0, prompt - cached),
        output_tokens=(used.candidates_token_count or 0) + thoughts,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
        call_id=f"{NATIVE}/{event.id}",
        at=at(event),
    )


def _role(event: Event, parts: tuple[Part, ...]) -> Role:
    if any(isinstance(part, ToolResult) for part in parts):
        return Role.TOOL
    if event.content is None:
        return Role.SYSTEM
    return Role.USER if event.author == "user" else Role.ASSISTANT


def _part(part: Any, files: NewFiles) -> Part:
    if part.function_call is not None:
        call = part.function_call
        return ToolCall(call.id or call.name or "", call.name or "", call.args)
    if part.function_response is not None:
        answer = part.function_response
        return ToolResult(answer.id or answer.name or "", answer.response, answer.name)
    if part.text is not None:
        return Reasoning(part.text) if part.thought else Text(part.text)
    if part.inline_data is not None and part.inline_data.data:
        held = part.inline_data
        return files.add(held.data, held.mime_type, held.display_name)
    kinds = [name for name, value in part if value is not None]
    return Unknown({"type": f"google-adk:{kinds[0] if kinds else 'part'}"})
