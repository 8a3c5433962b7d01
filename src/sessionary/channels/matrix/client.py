"""The only module that uses matrix-nio: its calls, and its errors as ours."""

import io
import json
from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

import nio  # type: ignore[import-untyped]
from aiohttp import ClientConnectorError, ClientError

from sessionary.channels.files import FileRefused, OutgoingFile
from sessionary.config.secret import Secret
from sessionary.errors import NotAllowed, NotFound, RetryLater, Unreachable

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


class MatrixClient:
    """The account of the bot on its homeserver."""

    def __init__(self, homeserver: str, token: Secret) -> None:
        self.homeserver = homeserver
        self._token = token
        self._nio = self._new_client()

    @property
    def user_id(self) -> str:
        """Our own id; known after `who`."""
        return str(self._nio.user_id)

    async def who(self) -> str:
        """Return our own id."""
        answer = await self._ask(self._nio.whoami())
        self._nio.restore_login(answer.user_id, answer.device_id or "", self._token.reveal())
        return str(answer.user_id)

    async def name(self) -> str | None:
        """Return our display name."""
        try:
            answer = await self._ask(self._nio.get_displayname(self.user_id))
        except Unreachable:  # some servers answer so for an account without a name
            return None
        return answer.displayname or None

    async def full_sync(self) -> Any:
        """Return every room that we are in, with its people and last messages."""
        self._nio.next_batch = ""
        return await self._ask(self._nio.sync(0, sync_filter=_FILTER, full_state=True))

    async def sync(self, since: str) -> Any:
        """Wait for what is new since then."""
        # The library would continue from its own token, which moves before anything is durable.
        self._nio.next_batch = since
        return await self._ask(self._nio.sync(SYNC_SECONDS * 1000, sync_filter=_FILTER))

    async def before(self, room: str, start: str, end: str) -> tuple[list[dict[str, Any]], str]:
        """Return an earlier page of a room, the latest first, and where the next one begins."""
        answer = await self._ask(self._nio.room_messages(room, start, end, limit=100))
        return [event.source for event in answer.chunk], answer.end or ""

    def room(self, room: str) -> Any:
        """Return what the library knows of a room; None if we are not there."""
        return self._nio.rooms.get(room)

    async def send(self, room: str, content: dict[str, Any], transaction: str) -> str:
        """Send a message; return its id. After a broken connection it is unclear whether it was accepted."""
        if not self._nio.user_id:
            await self.who()
        asked = self._nio.room_send(room, "m.room.message", content, tx_id=transaction)
        try:
            return str((await self._answer(asked, room)).event_id)
        except ClientConnectorError as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=10) from error

    async def upload(self, file: OutgoingFile) -> str:
        """Upload a file; return its address."""
        try:
            return str((await self._ask(self._upload(file))).content_uri)
        except Unreachable as error:
            raise FileRefused(str(error)) from error

    async def _upload(self, file: OutgoingFile) -> Any:
        if not self._nio.user_id:
            await self.who()
        answer, _ = await self._nio.upload(
            io.BytesIO(file.data),
            content_type=file.media_type,
            filename=file.name,
            filesize=len(file.data),
        )
        return answer

    async def typing(self, room: str) -> None:
        """Show the typing indicator."""
        await self._ask(self._nio.room_typing(room, timeout=20_000))

    async def join(self, room: str) -> None:
        """Accept an invitation."""
        await self._ask(self._nio.join(room))

    async def mark_read(self, room: str, event_id: str) -> None:
        """Mark a message as read."""
        await self._ask(self._nio.update_receipt_marker(room, event_id, thread_id=None))

    async def download(self, url: str) -> bytes:
        """Return the bytes of a file."""
        answer = await self._answer(self._nio.download(url), url)
        if not isinstance(answer.body, bytes):
            raise NotFound("The homeserver gave no file.")
        return answer.body

    async def load_state(self) -> dict[str, Any]:
        """Return the state that the homeserver keeps for us."""
        status, answer = await self._raw("GET")
        if status == _NOT_FOUND and answer.get("errcode") == "M_NOT_FOUND":
            return {}
        _check(status, answer)
        return answer

    async def save_state(self, state: dict[str, Any]) -> None:
        """Save our state at the homeserver."""
        _check(*await self._raw("PUT", json.dumps(state)))

    async def close(self) -> None:
        """Close connections."""
        await self._nio.close()
        self._nio = self._new_client()

    def _new_client(self) -> Any:
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0, max_timeouts=0, request_timeout=REQUEST_SECONDS,
            encryption_enabled=False, store_sync_tokens=False,
        )  # fmt: skip
        client = nio.AsyncClient(self.homeserver, config=config)
        client.access_token = self._token.reveal()
        return client

    async def _raw(self, method: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        path = f"/_matrix/client/v3/user/{quote(self.user_id)}/account_data/{STATE}"
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
        if isinstance(answer, nio.ErrorResponse):
            raise _error(str(answer.status_code), answer.message, answer.retry_after_ms, where)
        return answer


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
