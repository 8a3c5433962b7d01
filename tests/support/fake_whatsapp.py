"""WhatsApp on loopback: the GraphClient API of one number, and the posts that Meta makes to its app.

It posts straight to the adapter that was made last, signed, and again until that answers 200.
"""

import asyncio
import hashlib
import hmac
import itertools
import json
from collections import deque
from typing import Any, Self

from sessionary.channels.whatsapp.adapter import WhatsAppAdapter
from sessionary.channels.whatsapp.client import GraphClient
from sessionary.channels.whatsapp.inbound import WhatsAppOptions
from sessionary.config.secret import Secret
from sessionary.model.source import Channel
from tests.support.http_server import LOST, HttpServer, Request, Response, json_response
from tests.support.webhook_poster import WebhookTarget

NUMBER_ID = "106540352242922"
NUMBER = "15550783881"
TOKEN, APP_SECRET, VERIFY_TOKEN = "EAAG-test", "app-secret", "verify-me"
KNOWN = "16505551234"
LARGEST_FILE = 64 * 1024
_AGAIN_SECONDS = 0.02
_VERSION = "v23.0"
_CODES = {429: 130429, 500: 131000}
_WORDS = ("text", "interactive")


class FakeWhatsApp:
    """A `sessionary.testing.channel_world.SigningPlatform`."""

    name = "whatsapp"
    chat = Channel("whatsapp", KNOWN)
    known = KNOWN
    acknowledges = True
    largest_file: int | None = LARGEST_FILE
    largest_sent = LARGEST_FILE

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.typing: list[str] = []
        self.media: dict[str, tuple[bytes, str]] = {}
        self.options = WhatsAppOptions(largest_file=LARGEST_FILE, largest_sent=LARGEST_FILE)
        self.uploads: dict[str, tuple[str, bytes]] = {}
        self.downloads = 0
        self.current: WebhookTarget | None = None
        self.made: WhatsAppAdapter | None = None
        self._server = HttpServer(self._answer)
        # None stands for a sending that is accepted.
        self._faults: deque[Response | None] = deque()
        self._lost = 0
        self._revoked = False
        self._offline = False
        self._taken: set[int] = set()
        self._posting: set[asyncio.Task[None]] = set()
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        for task in self._posting:
            task.cancel()
        await asyncio.gather(*self._posting, return_exceptions=True)
        if self.made is not None:
            await self.made.close()
        await self._server.__aexit__(*failure)

    @property
    def url(self) -> str:
        """What `base_url` is set to."""
        return self._server.url

    def adapter(self) -> WhatsAppAdapter:
        """A fresh adapter, to which is posted from now on."""
        graph = GraphClient(NUMBER_ID, Secret(TOKEN), base_url=self.url, version=_VERSION)
        made = WhatsAppAdapter(graph, Secret(APP_SECRET), Secret(VERIFY_TOKEN), self.options)
        self.current = self.made = made
        return made

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """A person writes; it is posted until it is taken."""
        message = self.message(text, number=number, person=person)
        if file is not None:
            media_id = self.keep(file, "application/pdf")
            about = {"id": media_id, "mime_type": "application/pdf", "filename": "a.pdf"}
            message |= {"type": "document", "document": {**about, "caption": text}}
        self._post_until_taken(number, payload(message))

    def message(self, text: str, *, number: int, person: str | None = None) -> dict[str, Any]:
        """A message of words as WhatsApp puts it."""
        return {
            "from": person or KNOWN,
            "id": f"wamid.{number}",
            "timestamp": "1739321024",
            "type": "text",
            "text": {"body": text},
        }

    def keep(self, data: bytes, media_type: str) -> str:
        """Someone sent a file; its id."""
        media_id = f"75{next(self._ids)}"
        self.media[media_id] = (data, media_type)
        return media_id

    async def post(self, given: dict[str, Any], *, secret: str = APP_SECRET) -> int:
        """Post something once; the status of the answer."""
        assert self.current is not None
        return int(await self.current.handle_webhook(*signed(given, secret)))

    async def forges(self, text: str, *, number: int) -> int:
        """Someone else posts a message of the known person."""
        message = self.message(text, number=number)
        return await self.post(payload(message), secret="guessed")

    async def replays_late(self, text: str, *, number: int) -> int | None:
        """The time is no part of the signature: the message's id alone tells a repetition."""
        return None

    def cards(self) -> list[str]:
        """The texts of the messages that have buttons or a list."""
        return [
            post["interactive"]["body"]["text"]
            for post in self.posts
            if post["type"] == "interactive"
        ]

    def presses(self, label: str, *, person: str | None = None, id: int = 1) -> None:
        """A person chooses an option of the last card; the same id again is the same press, posted once more."""
        self._post_until_taken(-id, payload(self.pressed(label, person=person, id=id)))

    def pressed(self, label: str, *, person: str | None = None, id: int = 1) -> dict[str, Any]:
        """The choice of an option of the last card as WhatsApp puts it."""
        place, card = [
            (place, post["interactive"])
            for place, post in enumerate(self.posts, 1)
            if post["type"] == "interactive"
        ][-1]
        form = "list_reply" if card["type"] == "list" else "button_reply"
        return {
            "from": person or KNOWN,
            "id": f"wamid.press-{id}",
            "timestamp": "1739321024",
            "type": "interactive",
            "context": {"from": NUMBER, "id": f"wamid.out-{place}"},
            "interactive": {"type": form, form: {"id": _options(card)[label], "title": label}},
        }

    def told(self) -> list[str]:
        """What people were told who pressed a button and changed nothing by it."""
        return [
            post["text"]["body"]
            for post in self.posts
            if post["type"] == "text" and "biz_opaque_callback_data" not in post
        ]

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether every post was answered with 200."""
        return not self._posting

    def acknowledged(self, number: int) -> bool:
        """Whether a post was answered with 200."""
        return number in self._taken

    def seen(self) -> list[str]:
        """What the known person reads."""
        return [
            post["text"]["body"] if post["type"] == "text" else post["interactive"]["body"]["text"]
            for post in self.posts
            if post.get("to") == KNOWN and post["type"] in _WORDS
        ]

    def given(self) -> list[tuple[str, bytes]]:
        """The files that the known person got."""
        mine = [
            post for post in self.posts if post.get("to") == KNOWN and post["type"] not in _WORDS
        ]
        return [self.uploads[post[post["type"]]["id"]] for post in mine]

    def fetched(self) -> int:
        """How many files the bot has asked for."""
        return self.downloads

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next sendings as WhatsApp answers too many of them, or when it is ill."""
        headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
        self.refuse_with(_CODES.get(status, 131000), status, times=times, **headers)

    def refuse_with(self, code: int, status: int = 400, *, times: int = 1, **headers: str) -> None:
        """Answer the next sendings with one of WhatsApp's codes."""
        self._faults.extend([json_response(graph_error(code), status, **headers)] * times)

    def refuse_as(self, answer: Response) -> None:
        """Answer the next sending with anything."""
        self._faults.append(answer)

    def let_pass(self) -> None:
        """Accept the next sending; what is refused comes after it."""
        self._faults.append(None)

    def lose_answers(self, times: int = 1) -> None:
        """Accept the next sendings, and break the connection."""
        self._lost += times

    def revoke(self) -> None:
        """The token is not good any more."""
        self._revoked = True

    async def go_offline(self) -> None:
        """Be unreachable; posts wait."""
        self._offline = True
        await self._server.go_offline()

    async def go_online(self) -> None:
        """Be reachable again."""
        await self._server.go_online()
        self._offline = False

    def _post_until_taken(self, number: int, given: dict[str, Any]) -> None:
        async def post() -> None:
            while not await self._is_taken(given):  # noqa: ASYNC110 - it waits as Meta waits
                await asyncio.sleep(_AGAIN_SECONDS)
            self._taken.add(number)

        task = asyncio.create_task(post())
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    async def _is_taken(self, given: dict[str, Any]) -> bool:
        can_post = self.current is not None and not self._offline
        return can_post and await self.post(given) == 200

    async def _answer(self, request: Request) -> Response:
        if self._revoked or request.headers.get("authorization") != f"Bearer {TOKEN}":
            return json_response(graph_error(190), 401)
        match request.path.strip("/").split("/"):
            case ["file", media_id]:
                self.downloads += 1
                data, media_type = self.media[media_id]
                return Response(200, data, {"content-type": media_type})
            case [_, number_id] if number_id == NUMBER_ID:
                found = {"id": number_id, "display_phone_number": "+1 555-078-3881"}
                return json_response(found | {"verified_name": "Sessionary"})
            case [_, number_id, "messages"] if number_id == NUMBER_ID:
                return self._take(json.loads(request.body))
            case [_, number_id, "media"] if number_id == NUMBER_ID:
                media_id = self.keep(request.body, "multipart/form-data")
                self.uploads[media_id] = request.files[0]
                return json_response({"id": media_id})
            case [_, media_id] if media_id in self.media:
                return json_response(self._about(media_id))
            case _:
                return json_response(graph_error(100), 400)

    def _about(self, media_id: str) -> dict[str, Any]:
        data, media_type = self.media[media_id]
        return {
            "id": media_id,
            "url": f"{self.url}/file/{media_id}",
            "mime_type": media_type,
            "sha256": hashlib.sha256(data).hexdigest(),
            "file_size": len(data),
        }

    def _take(self, message: dict[str, Any]) -> Response:
        if message.get("status") == "read":
            self.typing.append(message["message_id"])
            return json_response({"success": True})
        fault = self._faults.popleft() if self._faults else None
        if fault is not None:
            return fault
        if message["type"] == "text" and not 0 < len(message["text"]["body"]) <= 4096:
            return json_response(graph_error(100), 400)
        if message["type"] == "interactive":
            problem = _problem(message)
            if problem is not None:
                return json_response(graph_error(131009, problem), 400)
        self.posts.append(message)
        if self._lost:
            self._lost -= 1
            return LOST
        return json_response({"messages": [{"id": f"wamid.out-{len(self.posts)}"}]})


def _options(interactive: dict[str, Any]) -> dict[str, str]:
    """What each button or row carries, by its title."""
    action = interactive["action"]
    if interactive["type"] == "button":
        return {each["reply"]["title"]: each["reply"]["id"] for each in action["buttons"]}
    return {each["title"]: each["id"] for section in action["sections"] for each in section["rows"]}


def _problem(message: dict[str, Any]) -> str | None:
    """What WhatsApp does not accept about an interactive message, after its documentation."""
    interactive = message["interactive"]
    action = interactive["action"]
    if message["recipient_type"] == "group":
        return "a group gets texts and files only"
    if not 0 < len(interactive["body"]["text"]) <= 1024:
        return "the body has 1 to 1,024 characters"
    if interactive["type"] == "button":
        choices = [each["reply"] for each in action["buttons"]]
        most, longest, longest_id = 3, 20, 256
    else:
        choices = [row for section in action["sections"] for row in section["rows"]]
        most, longest, longest_id = 10, 24, 200
        names = [action["button"], *(section["title"] for section in action["sections"])]
        if not all(0 < len(name) <= 20 for name in names):
            return "a button or a section has a title of 1 to 20 characters"
    titles, ids = ([each[name] for each in choices] for name in ("title", "id"))
    if not 0 < len(choices) <= most or len(set(titles)) < len(titles):
        return "the number of options, or two titles are the same"
    if not all(0 < len(title) <= longest and title == title.strip() for title in titles):
        return "the length of a title"
    if len(set(ids)) < len(ids) or not all(0 < len(id) <= longest_id for id in ids):
        return "the ids"
    if any(len(each.get("description", "x")) > 72 for each in choices):
        return "the length of a description"
    return None


def signed(given: dict[str, Any], secret: str = APP_SECRET) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a post."""
    body = json.dumps(given).encode()
    mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={mac}"}, body


def payload(*messages: dict[str, Any], number_id: str = NUMBER_ID, **more: Any) -> dict[str, Any]:
    """What Meta posts when these messages were sent to a number."""
    people = sorted({message["from"] for message in messages})
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": NUMBER, "phone_number_id": number_id},
        "contacts": [{"wa_id": each, "profile": {"name": f"Ada {each}"}} for each in people],
        "messages": list(messages),
    }
    change = {"field": "messages", "value": {**value, **more}}
    return {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}


def graph_error(code: int, details: str = "as the test wished") -> dict[str, Any]:
    """An error as the GraphClient API tells of it."""
    return {
        "error": {
            "message": f"(#{code}) something",
            "type": "OAuthException",
            "code": code,
            "error_data": {"messaging_product": "whatsapp", "details": details},
            "fbtrace_id": "Az8or2yhqkZfEZ",
        }
    }
