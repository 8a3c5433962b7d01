"""Matrix as a platform of the adapter suite: a real Synapse, and a way to it that can be ill."""

import asyncio
import uuid
from typing import Any, Self
from urllib.parse import quote, unquote

from aiohttp import ClientSession, web

from sessionary.channels import registry
from sessionary.channels.files import MEGABYTE
from sessionary.engine.ports import Adapter
from sessionary.model.source import Channel
from tests.support.external_server import port_of, reserved_port
from tests.support.synapse import Synapse

LARGEST_FILE = 100_000
_V3 = "/_matrix/client/v3"
_OK = 200
_PASSED_ON = ("Authorization", "Content-Type")


# Ada has one account on each server; the bot has another one in each test.
_people: dict[str, tuple[str, str]] = {}


def _ada(synapse: Synapse) -> tuple[str, str]:
    if synapse.url not in _people:
        _people[synapse.url] = synapse.register("ada")
    return _people[synapse.url]


class MatrixPlatform:
    """A homeserver where Ada and the bot have a room of their own."""

    name = "matrix"
    acknowledges = True
    largest_file: int | None = LARGEST_FILE
    largest_sent = LARGEST_FILE

    def __init__(self, synapse: Synapse) -> None:
        self.synapse = synapse
        self.known, self.ada = _ada(synapse)
        self.bot, self.token = synapse.register(f"bot-{uuid.uuid4().hex[:8]}")
        self.room = self.make_room(self.ada)
        self.chat = Channel("matrix", self.room)
        # Held until the end, also while nobody can reach the platform.
        self._reservation = reserved_port()
        self._port = port_of(self._reservation)
        self._events: dict[int, str] = {}
        self._read: set[str] = set()
        self._refusals: list[web.Response] = []
        self._to_lose = 0
        self._losing: set[str] = set()
        self.downloads = 0
        self.places = 0
        # What is asked for at paths that hold these words is answered so, one after the other.
        self.ill: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self.taken: list[tuple[str, str]] = []
        self._sends = 0
        self._seen: tuple[int, list[str]] = (-1, [])
        self._again: list[dict[str, Any]] = []
        self._ring = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._out: ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self.go_online()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_offline()
        self._reservation.close()

    @property
    def url(self) -> str:
        """Where the bot finds the homeserver."""
        return f"http://127.0.0.1:{self._port}"

    def make_room(self, owner: str, *, join: bool = True, **more: Any) -> str:
        """A room with the bot in it, or only asked to come."""
        asked = {"invite": [self.bot], "is_direct": True, "preset": "trusted_private_chat", **more}
        room: str = self.synapse.call("POST", f"{_V3}/createRoom", asked, token=owner)["room_id"]
        if join:
            self.join(room, self.token)
        return room

    def join(self, room: str, token: str) -> None:
        """Someone goes in."""
        self.synapse.call("POST", f"{_V3}/rooms/{quote(room)}/join", {}, token=token)

    def put(self, content: dict[str, Any], *, room: str | None = None, token: str = "") -> str:
        """Someone writes anything anywhere: Ada, unless another is named; the event's id."""
        path = f"{_V3}/rooms/{quote(room or self.room)}/send/m.room.message/{uuid.uuid4().hex}"
        sent: str = self.synapse.call("PUT", path, content, token=token or self.ada)["event_id"]
        return sent

    def put_encrypted(self, room: str) -> None:
        """Ada writes something that only devices with its key can read."""
        content = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "s"}
        content |= {"device_id": "d", "sender_key": "k"}
        path = f"{_V3}/rooms/{quote(room)}/send/m.room.encrypted/{uuid.uuid4().hex}"
        self.synapse.call("PUT", path, content, token=self.ada)

    def adapter(self, **settings: Any) -> Adapter:
        """The adapter that the configuration of this account would make."""
        values = {
            "homeserver": self.url,
            "token_env": "TOKEN",
            "invites_from": [self.known],
            "largest_file_bytes": LARGEST_FILE,
            "largest_sent_mb": LARGEST_FILE / MEGABYTE,
            **settings,
        }
        return registry.build("matrix", values, {"TOKEN": self.token})

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """Ada writes; or a stranger, in a room of their own with the bot."""
        if number in self._events:
            return self._offer_again(number)
        content: dict[str, Any] = {"msgtype": "m.text", "body": text}
        if file is not None:
            content = {"msgtype": "m.image", "body": text, "filename": "picture.png"}
            content |= {"url": await self.upload(file), "info": {"size": len(file)}}
        if person is not None:
            _, token = self.synapse.register(f"{person}-{uuid.uuid4().hex[:8]}")
            self.put(content, room=self.make_room(token), token=token)
            return None
        self._events[number] = self.put(content)
        return None

    async def upload(self, data: bytes) -> str:
        """Ada gives a file to the homeserver; its address."""
        assert self._out is not None
        headers = {"Authorization": f"Bearer {self.ada}", "Content-Type": "image/png"}
        url = f"{self.synapse.url}/_matrix/media/v3/upload"
        async with self._out.post(url, data=data, headers=headers) as answer:
            found: str = (await answer.json())["content_uri"]
            return found

    def acknowledged(self, number: int) -> bool:
        """Whether the bot has shown that it read the message."""
        return self._events.get(number) in self._read

    def seen(self) -> list[str]:
        """What the bot has written in the room, as the homeserver has it."""
        if self._seen[0] != self._sends:
            texts = [each["body"] for each in self.written() if each["msgtype"] == "m.text"]
            self._seen = (self._sends, texts)
        return self._seen[1]

    def given(self) -> list[tuple[str, bytes]]:
        """The files that the bot has given in the room, as the homeserver has them."""
        found = [each for each in self.written() if "url" in each]
        return [(each["body"], self._bytes(each["url"])) for each in found]

    def fetched(self) -> int:
        """How many files the bot has asked for."""
        return self.downloads

    def _bytes(self, url: str) -> bytes:
        path = f"/_matrix/client/v1/media/download/{url.removeprefix('mxc://')}"
        return self.synapse.fetch(path, token=self.ada)

    def written(self, room: str | None = None) -> list[dict[str, Any]]:
        """The contents of what the bot has written in a room."""
        path = f"{_V3}/rooms/{quote(room or self.room)}/messages?dir=f&limit=500"
        found = self.synapse.call("GET", path, token=self.ada)["chunk"]
        ours = [event for event in found if event["sender"] == self.bot]
        return [event["content"] for event in ours if event["type"] == "m.room.message"]

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next sendings with an error."""
        code = {429: "M_LIMIT_EXCEEDED", 403: "M_FORBIDDEN"}.get(status, "M_UNKNOWN")
        body: dict[str, Any] = {"errcode": code, "error": "no"}
        if retry_after is not None:
            body["retry_after_ms"] = int(retry_after * 1000)
        self._refusals += [web.json_response(body, status=status) for _ in range(times)]

    def lose_answers(self, times: int = 1) -> None:
        """Take the next messages, and break the connection instead of answering."""
        self._to_lose += times

    def revoke(self) -> None:
        """The bot is logged out."""
        self.synapse.call("POST", f"{_V3}/logout", {}, token=self.token)

    async def go_offline(self) -> None:
        """Be unreachable."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._out is not None:
            await self._out.close()
            self._out = None

    async def go_online(self) -> None:
        """Be reachable, on the same port each time."""
        self._out = ClientSession()
        app = web.Application(client_max_size=50_000_000)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()

    def _offer_again(self, number: int) -> None:
        path = f"{_V3}/rooms/{quote(self.room)}/event/{quote(self._events[number])}"
        self._again.append(self.synapse.call("GET", path, token=self.ada))
        self._ring.set()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        for words, answers in self.ill.items():
            if words in request.path and answers:
                status, body = answers.pop(0)
                return web.json_response(body, status=status)
        if "/send/" in request.path and request.method == "PUT":
            return await self._pass_sending(request)
        if request.path.endswith("/sync"):
            return await self._pass_sync(request)
        if "/download/" in request.path:
            self.downloads += 1
        if "/receipt/" in request.path:
            self._read.add(unquote(request.path.rpartition("/")[2]))
        answer = await self._forward(request)
        self.places += request.method == "PUT" and "/account_data/" in request.path
        return answer

    async def _pass_sending(self, request: web.Request) -> web.StreamResponse:
        if self._refusals:
            return self._refusals.pop(0)
        answer = await self._forward(request)
        self._sends += 1
        if answer.status == _OK:
            room = unquote(request.path.split("/rooms/")[1].partition("/")[0])
            self.taken.append((room, str((await request.json()).get("body", ""))))
        is_again = request.path in self._losing
        # The library of the client asks once more by itself; that answer is lost as well.
        if self._to_lose or is_again:
            self._to_lose -= not is_again
            (self._losing.discard if is_again else self._losing.add)(request.path)
            assert request.transport is not None
            request.transport.close()
        return answer

    async def _pass_sync(self, request: web.Request) -> web.StreamResponse:
        if "since" not in request.query:  # someone who looks around for the first time
            return await self._forward(request)
        upstream = asyncio.ensure_future(self._forward(request))
        ring = asyncio.ensure_future(self._ring.wait())
        try:
            await asyncio.wait({upstream, ring}, return_when=asyncio.FIRST_COMPLETED)
            if not ring.done():
                return await upstream
        finally:
            ring.cancel()
            upstream.cancel()
        self._ring.clear()
        events, self._again = self._again, []
        timeline = {"events": events, "limited": False, "prev_batch": "t"}
        room = {"timeline": timeline, "state": {"events": []}, "ephemeral": {"events": []}}
        room |= {"account_data": {"events": []}, "summary": {}, "unread_notifications": {}}
        rooms = {"join": {self.room: room}, "invite": {}, "leave": {}}
        return web.json_response({"next_batch": request.query.get("since"), "rooms": rooms})

    async def _forward(self, request: web.Request) -> web.Response:
        assert self._out is not None
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = f"{self.synapse.url}{request.raw_path}"
        body = await request.read()
        async with self._out.request(request.method, url, data=body, headers=headers) as answer:
            data = await answer.read()
            kind = answer.content_type
            return web.Response(body=data, status=answer.status, content_type=kind)
