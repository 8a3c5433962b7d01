"""The Slack channel: Socket Mode or the Events API in, the Web API out. The only module that uses slack-sdk."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from sessionary.channels.base import (
    ChannelAdapter,
    PendingQueue,
    answer_lost,
    is_about_question,
    until_first_ends,
)
from sessionary.channels.files import MEGABYTE, FileRefused, IncomingFile, LatestDict, OutgoingFile
from sessionary.channels.slack import inbound, outbound
from sessionary.channels.slack.inbound import SlackMessage, SlackNames, SlackOptions
from sessionary.channels.slack.outbound import SlackPost
from sessionary.config.secret import Secret
from sessionary.engine.ports import Receive
from sessionary.errors import (
    BadInput,
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
    Unreachable,
)
from sessionary.model.question import Card
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

API = "https://slack.com/api/"
AGAIN_SECONDS = 1.0
WAIT_SECONDS = 30.0
CONNECT_SECONDS = 20.0
LOOKUP_SECONDS = 1.0
MAX_NAMES = 5000
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
class SlackKeys:
    """The app's secrets: an app-level token for the socket, or a signing secret for events."""

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None


@dataclass(frozen=True, slots=True)
class SocketEnvelope:
    """Something that came by the socket, and how to acknowledge it."""

    kind: str
    payload: Mapping[str, Any]
    acknowledge: Callable[[], Awaitable[None]]


class SlackAdapter(ChannelAdapter):
    """One app in one workspace."""

    platform = inbound.PLATFORM
    options: SlackOptions
    longest_preview = outbound.LONGEST_PREVIEW
    longest_label = outbound.LONGEST_LABEL
    # Far more than an event has.
    webhook_bytes = MEGABYTE

    def __init__(
        self,
        keys: SlackKeys,
        options: SlackOptions | None = None,
        *,
        api: str = API,
        ping_seconds: float = 5.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(options or SlackOptions())
        self.capabilities = replace(outbound.CAPABILITIES, streams=self.options.stream)
        self._keys = keys
        self._api = api
        self._ping_seconds = ping_seconds
        self._now = now
        self._client: AsyncWebClient | None = None
        self._bot_id: str | None = None
        self._names: LatestDict[str, Mapping[str, Any]] = LatestDict(MAX_NAMES)
        self._envelopes: PendingQueue[SocketEnvelope] = PendingQueue(self.platform)
        # Without a secret nothing may be posted to us.
        if keys.signing_secret is not None:
            self.webhook = self.handle_webhook

    # Receiving.

    async def run(self, receive: Receive) -> None:
        async def handle(envelope: SocketEnvelope) -> None:
            press, told = None, ""
            match envelope.kind:
                case "events_api":
                    await self._handle(inbound.read_event(envelope.payload), receive)
                case "slash_commands":
                    await self._handle(inbound.read_command(envelope.payload), receive)
                case "interactive":
                    press = inbound.read_press(envelope.payload)
                    told = "" if press is None else await self._press(press, receive)
            await envelope.acknowledge()
            if press is not None and told:
                await self._tell(press, told)

        with self.receiving(receive):
            self._bot_id = str((await self._account())["user_id"])
            if self._keys.app_token is None:
                await asyncio.Event().wait()  # they come by the webhook
            await until_first_ends(
                self._envelopes.handle_all(handle), self.stay_connected(self._listen)
            )

    async def _listen(self) -> None:
        """Queue everything that comes by one connection; return when it is lost."""
        url = await self._socket_address()
        # Reconnecting by itself, it would go on forever with a token that is refused, and only log that.
        socket = SocketModeClient(
            self._app_token,
            web_client=self._web(),
            auto_reconnect_enabled=False,
            ping_interval=self._ping_seconds,
        )
        socket.wss_uri = url
        socket.socket_mode_request_listeners.append(self._on_request)
        closed = asyncio.Event()

        async def on_close(_: aiohttp.WSMessage) -> None:
            closed.set()

        socket.on_close_listeners.append(on_close)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await socket.connect()  # type: ignore[no-untyped-call]
            # Until the connection is closed, or its pings show that it died.
            while await socket.is_connected():
                closed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._ping_seconds):
                        await closed.wait()
        except TimeoutError as error:
            raise RetryLater("Slack's socket cannot be reached.", after=AGAIN_SECONDS) from error
        finally:
            await socket.close()  # type: ignore[no-untyped-call]

    async def _on_request(
        self, socket: AsyncBaseSocketModeClient, request: SocketModeRequest
    ) -> None:
        async def acknowledge() -> None:
            answer = SocketModeResponse(envelope_id=request.envelope_id)
            try:
                await socket.send_socket_mode_response(answer)
            except (ConnectionError, aiohttp.ClientError) as error:
                logger.info("slack: an envelope is not acknowledged and comes again: %s", error)

        self._envelopes.put(SocketEnvelope(request.type, request.payload, acknowledge))

    def signature_problem(self, headers: Mapping[str, str], body: bytes) -> str | None:
        assert self._keys.signing_secret is not None
        secret = self._keys.signing_secret.reveal()
        return inbound.signature_problem(secret, headers, body, now=self._now())

    def decode_post(self, body: bytes) -> Any:
        """Decode a body: an event is JSON, a slash command is a form, the press of a button is JSON in a form."""
        if body.lstrip().startswith(b"{"):
            return json.loads(body)
        form = dict(parse_qsl(body.decode(), strict_parsing=True))
        return super().decode_post(form["payload"].encode()) if "payload" in form else form

    async def handle_payload(self, payload: Any, receive: Receive) -> str | None:
        if payload.get("type") == "url_verification":
            return str(payload.get("challenge", ""))
        press = inbound.read_press(payload)
        if press is not None:
            told = await self._press(press, receive)
            if told:
                await self._tell(press, told)
            return None
        is_event = payload.get("type") == "event_callback"
        message = inbound.read_event(payload) if is_event else inbound.read_command(payload)
        await self._handle(message, receive)
        return None

    async def _handle(self, message: SlackMessage | None, receive: Receive) -> None:
        bot_id = self._bot_id
        if bot_id is None:
            raise RetryLater("It is not known yet who the bot is.")
        if message is None or inbound.is_ignored(message, bot_id):
            return
        if not self.options.observe and not inbound.is_addressed(message, bot_id, self.options):
            return  # not worth looking up names for
        user = await self._name_of(message.user_id)
        names = SlackNames(user)
        if not message.is_direct:
            chat = await self._look_up(message.channel_id, "channel")
            names = SlackNames(user, chat.get("name"), (chat.get("topic") or {}).get("value"))
        await self.admit(inbound.received(message, bot_id, self.options, names), receive)

    async def _press(self, press: SlackMessage, receive: Receive) -> str:
        """Answer a question with a button; return what to tell the person, if its message will not show it."""
        names = SlackNames(await self._name_of(press.user_id))
        source = inbound.source_of(press, self.options, names)
        result = await self.press(source, press.text, receive)
        return "" if result.is_changed else result.text

    async def _tell(self, press: SlackMessage, text: str) -> None:
        """Tell a person something that nobody else sees."""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                with _translate_errors(press.channel_id):
                    await self._web().chat_postEphemeral(
                        channel=press.channel_id,
                        user=press.user_id,
                        text=outbound.escaped(text),
                        thread_ts=press.thread,
                    )
        except (SessionaryError, TimeoutError) as error:
            logger.warning("slack: the outcome of a button is not shown: %s", error)

    async def _name_of(self, user_id: str) -> str | None:
        person = await self._look_up(user_id, "user")
        profile = person.get("profile") or {}
        return profile.get("display_name") or person.get("real_name") or person.get("name")

    async def _look_up(self, id: str, kind: str) -> Mapping[str, Any]:
        """Return what the bot may know of a user or a channel; asked once."""
        if id not in self._names:
            web = self._web()
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    with _translate_errors(id):
                        asked = (
                            web.users_info(user=id)
                            if kind == "user"
                            else web.conversations_info(channel=id)
                        )
                        found = (await asked).get(kind)
            except (SessionaryError, TimeoutError) as error:
                # The id is enough: nothing waits for a name.
                logger.info("slack: the name of %s is not known: %s", id, error)
                found = None
            self._names[id] = found if isinstance(found, dict) else {}
        return self._names[id]

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Return the bytes of a file, up to the size that Slack told. The token is sent to Slack only."""
        asked, ours = urlsplit(file.id), urlsplit(self._api)
        is_at_slack = asked.scheme == "https" and (asked.hostname or "").endswith(".slack.com")
        if not is_at_slack and (asked.scheme, asked.netloc) != (ours.scheme, ours.netloc):
            raise NotFound(f"The file {file.name} is not at Slack.")
        headers = {"Authorization": f"Bearer {self._keys.token.reveal()}"}
        data = bytearray()
        session = self._web().session
        assert session is not None
        with _translate_errors(f"the file {file.name}"):
            async with session.get(file.id, headers=headers, allow_redirects=False) as answer:
                # Without the scope files:read Slack answers with a login page.
                is_page = answer.content_type == "text/html" and file.media_type != "text/html"
                if answer.status != _OK or is_page:
                    raise NotFound(f"Slack does not give out the file {file.name}.")
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    data += chunk
                    if len(data) > (file.size or 0):
                        break
        return bytes(data)

    # Sending.

    def split(self, text: str) -> list[str]:
        return outbound.split(text)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        post = outbound.post_of(text, mentions=not is_about_question(delivery))
        return await self._write(delivery.channel, None, post)

    async def send_card(self, delivery: Delivery, text: str, card: Card, index: int) -> str:
        post = outbound.post_of(text, mentions=False, card=card)
        return await self._write(delivery.channel, None, post)

    async def edit_card(self, channel: Channel, message_id: str, text: str) -> None:
        await self._write(channel, message_id, outbound.post_of(text, mentions=False))

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        await self._write(channel, message_id, outbound.post_of(text))

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        shown = outbound.escaped(text)
        return await self._write(channel, message_id, SlackPost(shown, shown))

    async def _write(self, channel: Channel, ts: str | None, post: SlackPost) -> str:
        """Send a message, or replace one of ours; return its id. What blocks cannot show is written as plain text."""
        to, web = channel.chat_id, self._web()
        refused: BadInput | None = None
        for blocks in (post.blocks, []):
            text = post.plain if blocks else post.without_blocks
            try:
                with _translate_errors(to):
                    if ts is not None:
                        # Without the argument `blocks` the old ones would stay.
                        await web.chat_update(channel=to, ts=ts, text=text, blocks=blocks)
                        return ts
                    sent = await web.chat_postMessage(
                        channel=to,
                        text=text,
                        blocks=blocks or None,
                        thread_ts=channel.thread_id,
                        mrkdwn=bool(blocks),
                        unfurl_links=False,
                        unfurl_media=False,
                    )
                    return str(sent["ts"])
            except BadInput as error:
                refused = error
        raise Unreachable(f"Slack does not take this text: {refused}", to) from refused

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        to, thread = delivery.channel.chat_id, delivery.channel.thread_id
        try:
            with _translate_errors(to):
                sent = await self._web().files_upload_v2(
                    file=file.data, filename=file.name, channel=to, thread_ts=thread
                )
        except SessionaryError as error:
            cause = error.__cause__
            why = cause.response.get("error") if isinstance(cause, SlackApiError) else None
            if why in _BAD_FILES:
                raise FileRefused(str(error)) from error
            raise
        shared = sent.get("files") or [{}]
        return str(shared[0].get("id", ""))

    # The connection.

    async def check(self) -> str:
        account = await self._account()
        if self._keys.app_token is not None:
            await self._socket_address()
        name, id, team = account.get("user"), account["user_id"], account.get("team")
        return f"Slack knows this bot as {name} (id {id}) in {team}."

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and client.session is not None:
            await client.session.close()

    async def _account(self) -> Any:
        """Return who the bot is, if Slack accepts its token."""
        with _translate_errors("the bot's account"):
            return await self._web().auth_test()

    async def _socket_address(self) -> str:
        """Return the socket's address, if Slack accepts the app-level token."""
        with _translate_errors("the socket", key="app-level token"):
            found = await self._web().apps_connections_open(app_token=self._app_token)
        return str(found["url"])

    @property
    def _app_token(self) -> str:
        return "" if self._keys.app_token is None else self._keys.app_token.reveal()

    def _web(self) -> AsyncWebClient:
        if self._client is None:
            # No retries of its own: a message whose answer was lost may have been sent.
            self._client = AsyncWebClient(
                self._keys.token.reveal(),
                base_url=self._api,
                session=aiohttp.ClientSession(),
                retry_handlers=[],
            )
        return self._client


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
        raise answer_lost("Slack", error) from error


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
