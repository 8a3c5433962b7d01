"""The Graph API of Meta."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from sessionary.channels.files import FileTooLarge
from sessionary.channels.whatsapp import outbound
from sessionary.config.secret import Secret
from sessionary.errors import BadInput, RetryLater, SessionaryError, Unreachable

BASE_URL = "https://graph.facebook.com"
VERSION = "v23.0"
SECONDS = 30.0
RECONNECT_SECONDS = 10.0
_MOST_ANSWER = 1024 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Where WhatsApp keeps files: our token is sent nowhere else.
_MEDIA_HOSTS = (".facebook.com", ".fbsbx.com", ".fbcdn.net", ".whatsapp.net")
_OK = 200
_UNSUCCESSFUL = 300
# Raised before anything was sent.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


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
                    raise outbound.error_of(answer.status_code, None, answer.headers, chat="")
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
            raise SessionaryError(
                f"WhatsApp's answer got lost: {type(error).__name__}", committed="unknown"
            ) from error
        content = _decoded(answer.content)
        if answer.status_code >= _UNSUCCESSFUL:
            raise outbound.error_of(answer.status_code, content, answer.headers, chat=chat)
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
    if len(content) > _MOST_ANSWER:
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
