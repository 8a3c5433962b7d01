"""The only module that uses slack-sdk: its calls, and its errors as ours."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from sessionary.channels.files import FileRefused, IncomingFile, OutgoingFile
from sessionary.channels.slack.outbound import SlackPost
from sessionary.errors import (
    BadInput,
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
    Unreachable,
)

API = "https://slack.com/api/"
AGAIN_SECONDS = 1.0
WAIT_SECONDS = 30.0
CONNECT_SECONDS = 20.0
LOOKUP_SECONDS = 1.0
MOST_NAMES = 5000
_CHUNK = 64 * 1024
_OK = 200
_TOO_MANY = 429
_REFUSED_KEYS = frozenset(
    {
        "invalid_auth",
        "not_authed",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "not_allowed_token_type",
        "no_permission",
        "org_login_required",
        "team_access_not_granted",
    }
)
_DEAD_PLACES = frozenset(
    {
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "user_not_found",
        "user_disabled",
        "restricted_action",
        "restricted_action_read_only_channel",
        "restricted_action_thread_only_channel",
        "restricted_action_thread_locked",
        "cannot_dm_bot",
        "cannot_reply_to_message",
        "messages_tab_disabled",
        "message_not_found",
        "thread_not_found",
        "cant_update_message",
        "edit_window_closed",
    }
)
_BAD_BLOCKS = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"}
)
_BAD_FILES = frozenset(
    {
        "missing_scope",
        "file_uploads_disabled",
        "file_upload_size_restricted",
        "storage_limit_reached",
    }
)
KEY_REFUSED = (
    "Slack refuses the {key} ({error}). Reinstall the app at api.slack.com/apps and put the new "
    "token where [channels.slack] says."
)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SocketEnvelope:
    """Something that came by the socket, and how to acknowledge it."""

    kind: str
    payload: Mapping[str, Any]
    acknowledge: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SlackAccount:
    """Who the bot is."""

    bot_id: str
    name: str
    team: str


class SlackClient:
    """The Web API and the socket of one app."""

    def __init__(
        self,
        token: str,
        *,
        app_token: str | None = None,
        api: str = API,
        ping_seconds: float = 5.0,
    ) -> None:
        self._token = token
        self._app_token = app_token
        self._api = api
        self._ping_seconds = ping_seconds
        self._client: AsyncWebClient | None = None
        self._names: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    async def account(self) -> SlackAccount:
        """Return who the bot is, if Slack accepts its token."""
        with _translate_errors("the bot's account"):
            found = await self._web().auth_test()
        return SlackAccount(str(found["user_id"]), str(found.get("user")), str(found.get("team")))

    async def listen(self, handle: Callable[[SocketEnvelope], None]) -> None:
        """Handle everything that comes by one connection; return when it is lost."""
        url = await self.socket_address()
        # Reconnecting by itself, it would go on forever with a token that is refused, and only log that.
        socket = SocketModeClient(
            self._app_token or "",
            web_client=self._web(),
            auto_reconnect_enabled=False,
            ping_interval=self._ping_seconds,
        )
        socket.wss_uri = url
        socket.socket_mode_request_listeners.append(_listener(handle))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await socket.connect()  # type: ignore[no-untyped-call]
            await self._until_lost(socket)
        except TimeoutError as error:
            raise RetryLater("Slack's socket cannot be reached.", after=AGAIN_SECONDS) from error
        finally:
            await socket.close()  # type: ignore[no-untyped-call]

    async def socket_address(self) -> str:
        """Return the socket's address, if Slack accepts the app-level token."""
        with _translate_errors("the socket", key="app-level token"):
            found = await self._web().apps_connections_open(app_token=self._app_token or "")
        return str(found["url"])

    async def post(
        self, channel: str, post: SlackPost, *, thread: str | None, plainly: bool = False
    ) -> str:
        """Send a message; return its id. What blocks cannot show is sent as plain text."""
        blocks = None if plainly else post.blocks
        try:
            with _translate_errors(channel):
                sent = await self._web().chat_postMessage(
                    channel=channel,
                    text=post.plain,
                    blocks=blocks,
                    thread_ts=thread,
                    mrkdwn=not plainly,
                    unfurl_links=False,
                    unfurl_media=False,
                )
        except BadInput as error:
            if plainly:
                raise Unreachable(f"Slack does not take this text: {error}", channel) from error
            return await self.post(channel, post, thread=thread, plainly=True)
        return str(sent["ts"])

    async def upload(self, channel: str, file: OutgoingFile, *, thread: str | None) -> str:
        """Share a file; return its id."""
        try:
            with _translate_errors(channel):
                sent = await self._web().files_upload_v2(
                    file=file.data, filename=file.name, channel=channel, thread_ts=thread
                )
        except SessionaryError as error:
            cause = error.__cause__
            why = cause.response.get("error") if isinstance(cause, SlackApiError) else None
            if why in _BAD_FILES:
                raise FileRefused(str(error)) from error
            raise
        shared = sent.get("files") or [{}]
        return str(shared[0].get("id", ""))

    async def edit(self, channel: str, ts: str, post: SlackPost, *, plainly: bool = False) -> None:
        """Replace the text of a message of ours; what blocks cannot show is sent as plain text."""
        # Without this argument the old blocks would stay.
        blocks: list[dict[str, Any]] = [] if plainly else post.blocks
        try:
            with _translate_errors(channel):
                await self._web().chat_update(
                    channel=channel, ts=ts, text=post.plain, blocks=blocks
                )
        except BadInput as error:
            if plainly:
                raise Unreachable(f"Slack does not take this text: {error}", channel) from error
            await self.edit(channel, ts, post, plainly=True)

    async def person(self, id: str) -> Mapping[str, Any]:
        """Return what the bot may know of a person; asked once."""
        return await self._look_up(id, lambda web: web.users_info(user=id), "user")

    async def chat(self, id: str) -> Mapping[str, Any]:
        """Return what the bot may know of a channel; asked once."""
        return await self._look_up(id, lambda web: web.conversations_info(channel=id), "channel")

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the bytes of a file, up to the size that Slack told. The token is sent to Slack only."""
        if not self._is_at_slack(file.id):
            raise NotFound(f"The file {file.name} is not at Slack.")
        headers = {"Authorization": f"Bearer {self._token}"}
        data = bytearray()
        session = self._web().session
        assert session is not None
        with _translate_errors(f"the file {file.name}"):
            async with session.get(file.id, headers=headers, allow_redirects=False) as answer:
                # Without the scope files:read Slack answers with a login page.
                if answer.status != _OK or _is_page(answer, file):
                    raise NotFound(f"Slack does not give out the file {file.name}.")
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    data += chunk
                    if len(data) > (file.size or 0):
                        break
        return bytes(data)

    async def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None and client.session is not None:
            await client.session.close()

    async def _until_lost(self, socket: SocketModeClient) -> None:
        """Wait until the connection is closed, or its pings show that it died."""
        closed = asyncio.Event()

        async def note(_: aiohttp.WSMessage) -> None:
            closed.set()

        socket.on_close_listeners.append(note)
        while await socket.is_connected():
            closed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ping_seconds):
                    await closed.wait()

    def _web(self) -> AsyncWebClient:
        if self._client is None:
            # No retries of its own: a message whose answer was lost may have been sent.
            self._client = AsyncWebClient(
                self._token,
                base_url=self._api,
                session=aiohttp.ClientSession(),
                retry_handlers=[],
            )
        return self._client

    async def _look_up(
        self, id: str, ask: Callable[[AsyncWebClient], Awaitable[Any]], field: str
    ) -> Mapping[str, Any]:
        if id not in self._names:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    with _translate_errors(id):
                        found = (await ask(self._web())).get(field)
            except (SessionaryError, TimeoutError) as error:
                # The id is enough: nothing waits for a name.
                logger.info("slack: the name of %s is not known: %s", id, error)
                found = None
            self._names[id] = found if isinstance(found, dict) else {}
            while len(self._names) > MOST_NAMES:
                self._names.popitem(last=False)
        return self._names[id]

    def _is_at_slack(self, url: str) -> bool:
        asked, ours = urlsplit(url), urlsplit(self._api)
        if (asked.scheme, asked.netloc) == (ours.scheme, ours.netloc):
            return True
        return asked.scheme == "https" and (asked.hostname or "").endswith(".slack.com")


@contextlib.contextmanager
def _translate_errors(where: str, *, key: str = "bot token") -> Iterator[None]:
    """Raise the library's errors as ours."""
    try:
        yield
    except SlackApiError as error:
        raise _api_error(error, where, key) from error
    except aiohttp.ClientConnectorError as error:
        raise RetryLater("Slack cannot be reached.", after=AGAIN_SECONDS) from error
    except (aiohttp.ClientError, SlackClientError, TimeoutError) as error:
        raise SessionaryError(
            f"Slack did not answer: {type(error).__name__}.", committed="unknown"
        ) from error


def _api_error(error: SlackApiError, where: str, key: str) -> SessionaryError:
    response = error.response
    if isinstance(response, dict):  # an answer that is not JSON
        status, headers, why = response.get("status"), response.get("headers", {}), ""
    else:
        status, headers = response.status_code, response.headers
        why = str(response.get("error", ""))
    if status == _TOO_MANY or why in ("ratelimited", "rate_limited"):
        return RetryLater("Slack asks us to wait.", after=_retry_after(headers))
    if why in _REFUSED_KEYS:
        return NotAllowed(KEY_REFUSED.format(key=key, error=why))
    if why == "missing_scope":
        needed = response.get("needed", "?")
        return NotAllowed(
            f"The Slack app lacks the scope {needed}: add it under OAuth & Permissions, reinstall."
        )
    if why in _DEAD_PLACES:
        hint = " Invite the bot there." if why in ("not_in_channel", "channel_not_found") else ""
        return Unreachable(f"Slack does not let the bot write to {where}: {why}.{hint}", where)
    if why in _BAD_BLOCKS:
        return BadInput(why)
    return SessionaryError(f"Slack failed: {why or status}.", committed="unknown")


def _retry_after(headers: Mapping[str, Any]) -> float:
    found = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
    text = str(found[0] if isinstance(found, list) and found else found)
    return float(text) if text.isdigit() else WAIT_SECONDS


def _is_page(answer: aiohttp.ClientResponse, file: IncomingFile) -> bool:
    return answer.content_type == "text/html" and file.media_type != "text/html"


def _listener(
    handle: Callable[[SocketEnvelope], None],
) -> Callable[[AsyncBaseSocketModeClient, SocketModeRequest], Awaitable[None]]:
    async def listen(socket: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        async def acknowledge() -> None:
            answer = SocketModeResponse(envelope_id=request.envelope_id)
            try:
                await socket.send_socket_mode_response(answer)
            except (ConnectionError, aiohttp.ClientError) as error:
                logger.info("slack: an envelope is not acknowledged and comes again: %s", error)

        handle(SocketEnvelope(request.type, request.payload, acknowledge))

    return listen
