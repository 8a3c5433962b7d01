"""A program on the other side of the webhook channel: posts signed requests, is called back."""

import asyncio
import base64
import json
import time
from typing import Any, Self

from sessionary.channels.webhook import WebhookSettings
from sessionary.channels.webhook.adapter import WebhookAdapter, sign, signature_problem
from sessionary.config.secret import Secret
from sessionary.model.source import Channel
from tests.support.http_server import LOST, HttpServer, Request, Response
from tests.support.webhook_poster import WebhookPoster, WebhookTarget

SECRET = Secret("a-secret-of-the-fake")


class FakeProgram:
    """Posts each message until it is answered with 200; records its call-backs."""

    name = "webhook"
    known = "7"
    chat = Channel("webhook", "room")
    acknowledges = True
    largest_file: int | None = None
    largest_sent = 64 * 1024

    def __init__(self, **settings: Any) -> None:
        self.called: list[dict[str, Any]] = []
        self.poster = WebhookPoster(self._post)
        self.now = time.time
        self._settings = settings
        self.current: WebhookTarget | None = None
        self._refusals: list[Response] = []
        self._lost = 0
        self._revoked = False
        self._server = HttpServer(self._answer)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.poster.close()
        await self._server.__aexit__(*failure)

    @property
    def settings(self) -> WebhookSettings:
        """How both sides sign."""
        given: dict[str, Any] = {"call_back": f"{self._server.url}/answers", "pause_seconds": 0.01}
        given["largest_sent"] = self.largest_sent
        return WebhookSettings(secret=SECRET, **{**given, **self._settings})

    def adapter(self) -> WebhookAdapter:
        """An adapter that this program posts to."""
        self.current = made = WebhookAdapter(self.settings, now=self.now)
        return made

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """Post a message until it is accepted."""
        self.poster.post(number, self.body(text, number=number, person=person))

    def body(
        self, text: str, *, number: int, person: str | None = None, chat: str | None = None
    ) -> bytes:
        """A message as this program writes it."""
        fields = {"chat_id": chat or self.chat.chat_id, "person_id": person or self.known}
        return json.dumps({**fields, "text": text, "message_id": number}).encode()

    def acknowledged(self, number: int) -> bool:
        """Whether a message was answered with 200."""
        return self.poster.is_accepted(number)

    def seen(self) -> list[str]:
        """The texts of the call-backs for the room."""
        wanted = self.chat.chat_id
        return [str(each["text"]) for each in self.called if each["chat_id"] == wanted]

    def given(self) -> list[tuple[str, bytes]]:
        """The files that came with call-backs."""
        files = [file for each in self.called for file in each.get("files", ())]
        return [(file["name"], base64.b64decode(file["data"])) for file in files]

    def fetched(self) -> int:
        """There are no files to be fetched here."""
        return 0

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next call-backs with an error."""
        headers = {} if retry_after is None else {"retry-after": f"{retry_after:.0f}"}
        self._refusals += [Response(status, b"", headers)] * times

    def lose_answers(self, times: int = 1) -> None:
        """Accept the next call-backs, and break the connection instead of answering."""
        self._lost = times

    def revoke(self) -> None:
        """Refuse every signature from now on."""
        self._revoked = True

    async def go_offline(self) -> None:
        """Post nothing, and refuse connections."""
        self.poster.pause()
        await self._server.go_offline()

    async def go_online(self) -> None:
        """Post what waits, and be reachable again."""
        await self._server.go_online()
        self.poster.resume()

    async def forges(self, text: str, *, number: int) -> int:
        """Post with a signature of another secret."""
        body = self.body(text, number=number)
        wrong = sign(WebhookSettings(secret=Secret("guessed"), **self._settings), body, self.now())
        return int(await self._given().handle_webhook(wrong, body))

    async def replays_late(self, text: str, *, number: int) -> int | None:
        """Post what was signed an hour ago."""
        body = self.body(text, number=number)
        late = sign(self.settings, body, self.now() - 3600)
        return int(await self._given().handle_webhook(late, body))

    async def _post(self, body: bytes) -> int:
        headers = sign(self.settings, body, self.now())
        return int(await self._given().handle_webhook(headers, body))

    def _given(self) -> WebhookTarget:
        assert self.current is not None
        return self.current

    async def _answer(self, request: Request) -> Response:
        if self._revoked or signature_problem(
            self.settings, request.headers, request.body, self.now()
        ):
            return Response(401)
        if self._refusals:
            return self._refusals.pop(0)
        self.called.append(json.loads(request.body))
        if self._lost:
            self._lost -= 1
            return LOST
        await asyncio.sleep(0)
        return Response()
