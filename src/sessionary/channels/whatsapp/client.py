"""The Graph API of Meta, and its errors as ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from sessionary.channels.base import answer_lost
from sessionary.channels.files import MEGABYTE, FileTooLarge
from sessionary.config.secret import Secret
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.terminal import one_line

SECONDS = 30.0
RECONNECT_SECONDS = 10.0
MAX_WAIT_SECONDS = 24 * 3600.0
_MAX_ANSWER_BYTES = MEGABYTE
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Where WhatsApp keeps files: our token is sent nowhere else.
_MEDIA_HOSTS = (".facebook.com", ".fbsbx.com", ".fbcdn.net", ".whatsapp.net")
_OK = 200
_UNSUCCESSFUL = 300
# Raised before anything was sent.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

# What WhatsApp's error codes mean for the owner of the bot.
_MEANINGS = {
    131047: (
        "more than 24 hours have passed since this person last wrote, and WhatsApp then takes only "
        "an approved template; once they write again, retry or redirect the delivery"
    ),
    470: "the 24 hours in which this person may be answered are over",
    131026: "the number is not on WhatsApp, blocked the bot, or has an app that is too old",
    131030: "the number is not among those that the test number may write to; add it in the app",
    131021: "the bot cannot write to its own number",
    131049: "WhatsApp holds it back, to spare this person messages",
    131050: "this person wants no such messages from the bot",
    130472: "this person's number is part of an experiment of WhatsApp",
    130497: "this account may not write to people in that country",
    131042: "the account's payment method does not work; see the WhatsApp Manager",
    131045: "the number is not registered with the Cloud API yet",
    133010: "the number is not registered with the Cloud API yet",
    131037: "the number's display name is not approved yet",
}
_TEMPLATES = range(132000, 133000)
_REFUSED = {0, 3, 10, 190, 368, 131005, 131031, *range(200, 300)}
_WAITS = {4: 60.0, 613: 60.0, 80007: 60.0, 130429: 5.0, 131056: 6.0, 131048: 3600.0, 133016: 3600.0}
_TEMPORARY = {1: 10.0, 2: 10.0, 131000: 10.0, 131016: 30.0, 131057: 60.0, 133004: 30.0}
_LATER = (408, 425, 429)
_UNAUTHORIZED = (401, 403)
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """Where a file is, and how large WhatsApp says it is."""

    url: str
    size: int | None


class GraphClient:
    """The Graph API for one number of the Cloud API."""

    def __init__(self, number_id: str, token: Secret, *, base_url: str, version: str) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"[channels.whatsapp]: base_url must be an address, not {base_url!r}.")
        self.number_id = number_id
        self._token = token
        self._origin = (parts.scheme, parts.hostname, parts.port)
        self._base = f"{base_url.rstrip('/')}/{version}"
        self._client: httpx2.AsyncClient | None = None

    async def number(self) -> dict[str, Any]:
        """Return what WhatsApp knows of our number, if it accepts our token."""
        fields = "display_phone_number,verified_name,quality_rating,name_status"
        return await self._ask("GET", f"/{self.number_id}", params={"fields": fields})

    async def post(self, message: dict[str, Any], *, chat: str = "") -> str | None:
        """Send a message; return its id."""
        answer = await self._ask("POST", f"/{self.number_id}/messages", chat=chat, json=message)
        sent = answer.get("messages")
        first = sent[0] if isinstance(sent, list) and sent else {}
        named = first.get("id") if isinstance(first, dict) else None
        return named if isinstance(named, str) else None

    async def upload(self, data: bytes, media_type: str, name: str) -> str:
        """Upload a file; return its id."""
        form = {"messaging_product": "whatsapp", "type": media_type}
        sent = {"file": (name, data, media_type)}
        answer = await self._ask("POST", f"/{self.number_id}/media", data=form, files=sent)
        return str(answer.get("id", ""))

    async def find(self, media_id: str) -> MediaInfo:
        """Return where a file that someone sent is kept."""
        if not media_id.isalnum():
            raise Unreachable("its id is not valid")
        answer = await self._read(f"/{media_id}", params={"phone_number_id": self.number_id})
        url, size = answer.get("url"), answer.get("file_size")
        size = int(size) if isinstance(size, int | str) and str(size).isdecimal() else None
        return MediaInfo(url if isinstance(url, str) else "", size)

    async def download(self, url: str, largest: int) -> bytes:
        """Return the bytes of a file; raise `FileTooLarge` if there are more than `largest`."""
        if not self._is_trusted(url):
            raise Unreachable("WhatsApp names a place for it that is not its own")
        got = bytearray()
        try:
            async with self._http().stream("GET", url, headers=self._headers()) as answer:
                if answer.status_code != _OK:
                    await answer.aread()
                    raise error_of(answer.status_code, None, answer.headers, chat="")
                async for piece in answer.aiter_bytes():
                    got += piece
                    if len(got) > largest:
                        raise FileTooLarge(f"more than {largest} bytes")
        except httpx2.HTTPError as error:
            raise _not_reached(error) from error
        return bytes(got)

    async def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _read(self, path: str, **how: Any) -> dict[str, Any]:
        """Make a request that changes nothing, and can be made again when its answer is lost."""
        try:
            return await self._ask("GET", path, **how)
        except SessionaryError as error:
            if error.committed == "unknown":
                raise RetryLater(str(error), after=RECONNECT_SECONDS) from error
            raise

    async def _ask(self, method: str, path: str, *, chat: str = "", **how: Any) -> dict[str, Any]:
        try:
            answer = await self._http().request(
                method, f"{self._base}{path}", headers=self._headers(), **how
            )
        except _NOT_SENT as error:
            raise _not_reached(error) from error
        except httpx2.HTTPError as error:
            raise answer_lost("WhatsApp", error) from error
        content = _decoded(answer.content)
        if answer.status_code >= _UNSUCCESSFUL:
            raise error_of(answer.status_code, content, answer.headers, chat=chat)
        return content

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=SECONDS,
                follow_redirects=False,
                # The machine's proxy is for addresses outside of it.
                trust_env=self._origin[1] not in _LOOPBACK,
            )
        return self._client

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.reveal()}"}

    def _is_trusted(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            origin = (parts.scheme, parts.hostname, parts.port)
        except ValueError:
            return False
        if origin == self._origin:
            return True
        return parts.scheme == "https" and f".{parts.hostname}".endswith(_MEDIA_HOSTS)


def _decoded(content: bytes) -> dict[str, Any]:
    if len(content) > _MAX_ANSWER_BYTES:
        return {}
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _not_reached(error: Exception) -> RetryLater:
    return RetryLater(
        f"WhatsApp cannot be reached: {type(error).__name__}", after=RECONNECT_SECONDS
    )


def error_of(status: int, answer: Any, headers: Mapping[str, str], *, chat: str) -> SessionaryError:
    """Return the error of a refused request as ours."""
    error = answer.get("error") if isinstance(answer, dict) else None
    about = error if isinstance(error, dict) else {}
    code = about.get("code") if isinstance(about.get("code"), int) else None
    reason = reason_of(about) if about else f"WhatsApp answered {status}"
    if code in _WAITS or status in _LATER:
        return RetryLater(reason, after=_wait(headers, _WAITS.get(code or -1, 30.0)))
    if code in _REFUSED or (code is None and status in _UNAUTHORIZED):
        return NotAllowed(f"{reason}; renew the access token or its permissions")
    if code in _TEMPORARY or (about and status >= _SERVER_ERROR):
        return RetryLater(reason, after=_wait(headers, _TEMPORARY.get(code or -1, 10.0)))
    if status >= _SERVER_ERROR:
        return SessionaryError(reason, committed="unknown")
    return Unreachable(reason, chat)


def reason_of(error: Mapping[str, Any]) -> str:
    """Return one line for the owner: WhatsApp's message, and what it means."""
    code = error.get("code")
    data = error.get("error_data")
    details = data.get("details") if isinstance(data, dict) else None
    text = details or error.get("message") or error.get("title") or "no reason given"
    meaning = _MEANINGS.get(code) if isinstance(code, int) else None
    if meaning is None and code in _TEMPLATES:
        meaning = "the template was not taken; see it in the WhatsApp Manager"
    line = f"WhatsApp #{code}: {one_line(str(text), 200)}"
    return line if meaning is None else f"{line} ({meaning})"


def _wait(headers: Mapping[str, str], otherwise: float) -> float:
    try:
        wait = float(headers.get("retry-after", ""))
    except ValueError:
        return otherwise
    return min(max(wait, 0.0), MAX_WAIT_SECONDS)
