"""The Matrix channel: an account on a homeserver. The only module that uses matrix-nio."""

import asyncio
import contextlib
import hashlib
import io
import json
import logging
import re
from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

import nio  # type: ignore[import-untyped]
from aiohttp import ClientConnectorError, ClientError
from markdown_it import MarkdownIt

from sessionary.channels.base import ChannelAdapter, is_about_question
from sessionary.channels.files import (
    FailureCounter,
    FileRefused,
    IncomingFile,
    LatestDict,
    OutgoingFile,
)
from sessionary.channels.matrix import inbound
from sessionary.channels.matrix.inbound import Event, MatrixBot, MatrixOptions, MatrixRoom
from sessionary.config.secret import Secret
from sessionary.engine.ports import Capabilities, Receive
from sessionary.errors import NotAllowed, NotFound, RetryLater, Unreachable
from sessionary.model.source import Channel, Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

ENCRYPTED = (
    "This room is encrypted, and I cannot read encrypted messages. "
    "Please write to me in a room without encryption."
)
CHECK_SECONDS = 60.0
STATE = "io.sessionary.sync"
REQUEST_SECONDS = 40.0
_OK, _NOT_FOUND = 200, 404
SYNC_SECONDS = 30
_REFUSED = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"})
_CLOSED = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_UNKNOWN_ROOM", "M_GUEST_ACCESS_FORBIDDEN"})
_NEVER = frozenset({"M_TOO_LARGE", "M_BAD_JSON", "M_NOT_JSON", "M_INVALID_PARAM"})
_FILTER = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {"ephemeral": {"types": []}, "account_data": {"types": []}, "timeline": {"limit": 100}},
}
_MAX_PAGES = 20
_MAX_OWN = 5000
_PAIR = 2
LONGEST_BYTES = 16_000
_LARGEST_EVENT = 60_000
_SHOWN = frozenset({"image", "audio", "video"})
_PERSON = re.compile(r"(?<![\w/])@[\w.=/+-]+:[\w.-]+(?::\d+)?\b")
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")

CAPABILITIES = Capabilities(
    longest_text=10 * LONGEST_BYTES // 4,
    shows_typing=True,
    ids_needed_for_mentions=True,
    edits=True,
    notes=(
        "You are on Matrix. You see only what is said to you here: no history, no other rooms.",
        "Mention a person by writing their id, for instance @ada:example.org.",
        "Markdown works: bold, italics, lists, quotes, tables, `code` and fenced code.",
    ),
)
logger = logging.getLogger(__name__)


class MatrixAdapter(ChannelAdapter):
    """Follows the rooms of an account, and writes there."""

    platform = inbound.PLATFORM
    capabilities = CAPABILITIES
    options: MatrixOptions
    longest_message = LONGEST_BYTES

    def __init__(self, homeserver: str, token: Secret, options: MatrixOptions) -> None:
        super().__init__(options)
        self._homeserver = homeserver
        self._token = token
        self._nio = self._new_client()
        self._me = MatrixBot("")
        # What the homeserver keeps for us: how far we have read, and whom we told that we cannot read.
        self._state: dict[str, Any] = {}
        self._own: LatestDict[str, None] = LatestDict(_MAX_OWN)
        self._failed_joins = FailureCounter()

    # Receiving.

    async def run(self, receive: Receive) -> None:
        """Receive messages until cancelled; the sync token is saved once they are durable."""
        with self.receiving(receive):
            self._me = MatrixBot(await self._log_in(), await self._display_name())
            self._state = await self._load_state()
            # A full sync repeats old messages: they are new only if there is no sync token yet.
            news = await self._full_sync()
            since = self._state.get("since")
            while True:
                if since is not None:
                    # The library would continue from its own token, which moves before anything is durable.
                    self._nio.next_batch = since
                    news = await self._ask(self._nio.sync(SYNC_SECONDS * 1000, sync_filter=_FILTER))
                await self._handle(news, since, receive)
                await self._save_token(news.next_batch)
                since = news.next_batch
                self.backoff.reset()

    async def _handle(self, news: Any, since: str | None, receive: Receive) -> None:
        for room_id, invitation in news.rooms.invite.items():
            await self._consider_invitation(room_id, invitation)
        for room_id, joined in news.rooms.join.items():
            events = [event.source for event in joined.timeline.events]
            is_new = since is None or inbound.has_our_join(events, self._me)
            if joined.timeline.limited and not is_new and since is not None:
                missed = await self._missed(room_id, joined.timeline.prev_batch, since)
                events = missed + events
            for event in inbound.unread(events, self._me) if is_new else events:
                await self._handle_event(room_id, event, receive)

    async def _handle_event(self, room_id: str, event: Event, receive: Receive) -> None:
        if inbound.is_encrypted(event):
            await self._tell_once(room_id)
        message = inbound.read(event, self._me)
        if message is None:
            return
        known = self._nio.rooms.get(room_id)
        room, name = MatrixRoom(room_id), None
        if known is not None:
            people = known.member_count + len(known.invited_users)
            room = MatrixRoom(room_id, known.display_name, known.topic, is_direct=people <= _PAIR)
            name = known.user_name(message.sender)
        is_reply_to_us = message.answers is not None and message.answers in self._own
        is_addressed = is_reply_to_us or inbound.is_addressed(message, room, self._me, self.options)
        received = inbound.received(message, room, self._me, name=name, is_addressed=is_addressed)
        if await self.admit(received, receive):
            with contextlib.suppress(RetryLater, Unreachable):
                read = self._nio.update_receipt_marker(room_id, message.event_id, thread_id=None)
                await self._ask(read)

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        try:
            answer = await self._answer(self._nio.download(file.id), file.id)
        except (OSError, TimeoutError) as error:
            raise RetryLater(f"A file could not be fetched: {error}", after=1) from error
        if not isinstance(answer.body, bytes):
            raise NotFound("The homeserver gave no file.")
        return answer.body

    async def _missed(self, room_id: str, start: str | None, since: str) -> list[Event]:
        """Return what was written in a room while we were away, if one sync cannot hold it."""
        found: list[Event] = []
        for _ in range(_MAX_PAGES):
            if not start:
                break
            try:
                page = await self._ask(self._nio.room_messages(room_id, start, since, limit=100))
            except Unreachable as error:
                logger.warning("matrix: missed messages in %s cannot be read: %s", room_id, error)
                break
            found += [event.source for event in page.chunk]
            start = page.end
        return found[::-1]

    async def _consider_invitation(self, room_id: str, invitation: Any) -> None:
        """Join where people who may invite us want us; leave other invitations open."""
        inviter = next(
            (
                event.sender
                for event in invitation.invite_state
                if getattr(event, "membership", "") == "invite"
                and getattr(event, "state_key", "") == self._me.id
            ),
            "",
        )
        if not self.options.may_invite(inviter):
            logger.warning("matrix: an invitation of %s is left open", one_line(inviter, 100))
            return
        try:
            await self._ask(self._nio.join(room_id))
        except (Unreachable, RetryLater) as error:
            # The room may be on a server that is gone: nothing else must wait for it.
            if isinstance(error, RetryLater) and not self._failed_joins.is_hopeless(room_id):
                raise
            logger.warning("matrix: %s cannot be joined: %s", room_id, error)

    async def _tell_once(self, room_id: str) -> None:
        """Say once in a room that we cannot read its messages."""
        told = self._state.setdefault("told", [])
        if room_id in told:
            return
        transaction = f"sessionary-encrypted-{room_id[1:20]}"
        try:
            await self._send_event(
                room_id, {"msgtype": "m.notice", "body": ENCRYPTED, "m.mentions": {}}, transaction
            )
        except Unreachable as error:
            logger.info("matrix: %s cannot be told about encryption: %s", room_id, error)
        except (OSError, TimeoutError) as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=1) from error
        told.append(room_id)

    async def _save_token(self, since: str) -> None:
        """Save at the homeserver that everything up to here is durable."""
        if since != self._state.get("since"):
            self._state["since"] = since
            try:
                _check(*await self._request_state("PUT", json.dumps(self._state)))
            except Unreachable as error:
                raise NotAllowed(f"The homeserver keeps nothing for us: {error}") from error

    @staticmethod
    def measure(text: str) -> int:
        return len(text.encode())

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        mentions = not is_about_question(delivery)
        content = content_of(text, delivery.channel.thread_id, mentions=mentions)
        return await self._send(delivery, content, index)

    async def edit_card(self, channel: Channel, message_id: str, text: str) -> None:
        # The same in every attempt: a homeserver accepts it only once.
        digest = hashlib.sha256(f"{message_id}/{text}".encode()).hexdigest()[:32]
        content = edit_of_message(message_id, text)
        await self._send_event(channel.chat_id, content, f"sessionary-edit-{digest}")

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        await self._ensure_login()
        try:
            answer, _ = await self._ask(
                self._nio.upload(
                    io.BytesIO(file.data),
                    content_type=file.media_type,
                    filename=file.name,
                    filesize=len(file.data),
                )
            )
        except Unreachable as error:
            raise FileRefused(str(error)) from error
        url = str(answer.content_uri)
        content = file_content(file, url, delivery.channel.thread_id)
        return await self._send(delivery, content, index)

    async def _send(self, delivery: Delivery, content: dict[str, Any], index: int) -> str:
        transaction = transaction_id(delivery.id, index)
        event_id = await self._send_event(delivery.channel.chat_id, content, transaction)
        self._own[event_id] = None
        return event_id

    async def _send_event(self, room: str, content: dict[str, Any], transaction: str) -> str:
        """Send a message; return its id. After a broken connection it is unclear whether it was accepted."""
        await self._ensure_login()
        asked = self._nio.room_send(room, "m.room.message", content, tx_id=transaction)
        try:
            return str((await self._answer(asked, room)).event_id)
        except ClientConnectorError as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=10) from error

    async def typing(self, channel: Channel) -> None:
        await self._ask(self._nio.room_typing(channel.chat_id, timeout=20_000))

    async def close(self) -> None:
        await self._nio.close()
        self._nio = self._new_client()

    async def check(self) -> str:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                user = await self._log_in()
                news = await self._full_sync()
        finally:
            await self.close()
        joined, asked = len(news.rooms.join), len(news.rooms.invite)
        return f"The bot is {user}; it is in {joined} rooms, and {asked} invitations wait."

    # Requests to the homeserver.

    def _new_client(self) -> Any:
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0, max_timeouts=0, request_timeout=REQUEST_SECONDS,
            encryption_enabled=False, store_sync_tokens=False,
        )  # fmt: skip
        client = nio.AsyncClient(self._homeserver, config=config)
        client.access_token = self._token.reveal()
        return client

    async def _log_in(self) -> str:
        """Return our own id, which the homeserver knows from the token."""
        answer = await self._ask(self._nio.whoami())
        self._nio.restore_login(answer.user_id, answer.device_id or "", self._token.reveal())
        return str(answer.user_id)

    async def _ensure_login(self) -> None:
        if not self._nio.user_id:
            await self._log_in()

    async def _display_name(self) -> str | None:
        try:
            answer = await self._ask(self._nio.get_displayname(self._nio.user_id))
        except Unreachable:  # some servers answer so for an account without a name
            return None
        return answer.displayname or None

    async def _full_sync(self) -> Any:
        """Return every room that we are in, with its people and last messages."""
        self._nio.next_batch = ""
        return await self._ask(self._nio.sync(0, sync_filter=_FILTER, full_state=True))

    async def _load_state(self) -> dict[str, Any]:
        """Return the state that the homeserver keeps for us."""
        status, answer = await self._request_state("GET")
        if status == _NOT_FOUND and answer.get("errcode") == "M_NOT_FOUND":
            return {}
        _check(status, answer)
        return answer

    async def _request_state(
        self, method: str, body: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        path = f"/_matrix/client/v3/user/{quote(self._nio.user_id)}/account_data/{STATE}"
        headers = {"Authorization": f"Bearer {self._token.reveal()}"}
        try:
            async with await self._nio.send(method, path, body, headers) as answer:
                found = await answer.json()
                return answer.status, found if isinstance(found, dict) else {}
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=1) from error

    async def _ask(self, asked: Awaitable[Any]) -> Any:
        """Make a request that may be repeated."""
        try:
            return await self._answer(asked, "")
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=1) from error

    async def _answer(self, asked: Awaitable[Any], where: str) -> Any:
        answer = await asked
        # An upload is answered with a pair.
        failed = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(failed, nio.ErrorResponse):
            raise _error(str(failed.status_code), failed.message, failed.retry_after_ms, where)
        return answer


def transaction_id(delivery_id: str, index: int) -> str:
    """Return the id of a piece, the same in every attempt: a homeserver accepts it only once."""
    return f"sessionary-{delivery_id}-{index}"


def content_of(text: str, thread: str | None, *, mentions: bool = True) -> dict[str, Any]:
    """Return the content for a text: plain, and as HTML where that shows more. `mentions`: who is named is notified."""
    content: dict[str, Any] = {"msgtype": "m.text", "body": text, **_in_thread(thread)}
    people = sorted(set(_PERSON.findall(text))) if mentions else []
    # Also when empty: otherwise clients look for names in the text.
    content["m.mentions"] = {"user_ids": people} if people else {}
    html = _MARKDOWN.render(text).strip()
    if html != f"<p>{text}</p>":
        rich = {**content, "format": "org.matrix.custom.html", "formatted_body": html}
        if len(json.dumps(rich)) <= _LARGEST_EVENT:
            return rich
    return content


def edit_of_message(event_id: str, text: str) -> dict[str, Any]:
    """Return the content that replaces the text of an earlier message; clients that cannot replace show it below."""
    edit = {
        "msgtype": "m.text",
        "body": f"* {text}",
        "m.mentions": {},
        "m.new_content": content_of(text, None, mentions=False),
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
    }
    if len(json.dumps(edit)) > _LARGEST_EVENT:
        edit["m.new_content"] = {"msgtype": "m.text", "body": text, "m.mentions": {}}
    return edit


def file_content(file: OutgoingFile, url: str, thread: str | None) -> dict[str, Any]:
    """Return the content for a file that was uploaded."""
    return {
        "msgtype": f"m.{file.kind}" if file.kind in _SHOWN else "m.file",
        "body": file.name,
        "filename": file.name,
        "url": url,
        "info": {"mimetype": file.media_type, "size": len(file.data)},
        "m.mentions": {},
        **_in_thread(thread),
    }


def _in_thread(thread: str | None) -> dict[str, Any]:
    if thread is None:
        return {}
    relation = {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
    return {"m.relates_to": {**relation, "m.in_reply_to": {"event_id": thread}}}


def _check(status: int, answer: dict[str, Any]) -> None:
    """Raise the error of an answer: our sync token must not be lost because of it."""
    if status != _OK:
        wait = answer.get("retry_after_ms")
        code, text = str(answer.get("errcode") or status), str(answer.get("error") or "no reason")
        raise _error(code, text, wait if isinstance(wait, int) else None, "account data")


def _error(code: str, text: str, retry_after_ms: int | None, where: str) -> Exception:
    reason = text.rstrip(".")
    if code in _REFUSED:
        return NotAllowed(
            f"The homeserver does not know the access token any more: {reason}. Nothing is lost; "
            "make a new one and start again."
        )
    if code in _CLOSED | _NEVER:
        return Unreachable(f"The homeserver refuses it: {code} {reason}", where)
    after = 5.0 if retry_after_ms is None else max(0.1, retry_after_ms / 1000)
    return RetryLater(f"The homeserver says: {code} {reason}", after=after)
