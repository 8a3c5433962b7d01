"""Discord on loopback: the parts of its REST interface and gateway that a bot needs.

Written from Discord's documentation. discord.py is pointed at it by two class attributes:
`Route.BASE` (`fake.rest`) and `DiscordWebSocket.DEFAULT_GATEWAY` (`fake.gateway`).
"""

import asyncio
import contextlib
import json
import time
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.platform_server import HOST, PlatformServer, Post

Json = dict[str, Any]

TOKEN = "discord-token"
BOT = "900000000000000001"
APPLICATION = "900000000000000002"
BOT_ROLE = "900000000000000003"
GUILD = "100000000000000001"
GENERAL = "200000000000000001"
THREAD = "200000000000000002"
ADA = "110000000000000001"
LONGEST = 2000
AT = "2026-01-01T00:00:00.000000+00:00"

_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _INVALID, _HELLO, _ACK = 0, 1, 2, 6, 9, 10, 11
_MESSAGE_CONTENT = 1 << 15
# How a bot responds to a press: with a message, or with the promise of one; only the person sees it.
_MESSAGE, _DEFERRED, _EPHEMERAL = 4, 5, 64
_EPOCH = 1_420_070_400_000


class FakeDiscord(PlatformServer):
    """One guild with a channel and a thread, and a direct chat for everyone who writes."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[Json] = []
        self.confirmed: list[str] = []
        self.typed: list[str] = []
        self.edits: list[tuple[str, str]] = []
        # What the bot has sent to edit a message, whole.
        self.edit_bodies: list[Json] = []
        # The buttons that each message has, or had, by their labels; and which messages have them now.
        self.offered: dict[str, dict[str, str]] = {}
        self.with_buttons: list[str] = []
        # How the bot has responded to each press, by its id: the kinds, and what the person reads.
        self.responses: dict[str, list[int]] = {}
        self.whispers: list[str] = []
        self._pressed: set[str] = set()
        self._pressing: set[asyncio.Task[None]] = set()
        self.files: dict[str, bytes] = {}
        self.gifts: list[tuple[str, str, bytes]] = []
        self.downloads = 0
        self.channels = {GENERAL, THREAD}
        self.may_read_everything = True
        self.forgets_sessions = False
        # Called while a new connection is being set up, to write a message just then.
        self.written_at_once: list[str] = []
        self._log: list[Json] = []
        self._nonces: dict[str, Json] = {}
        self._messages: dict[str, list[Json]] = {}
        # An id tells the time in milliseconds since 2015.
        self._last_id = (int(time.time() * 1000) - _EPOCH) << 22
        self._first_press = self._last_id + (1 << 20)

    @property
    def rest(self) -> str:
        """Where the library finds REST."""
        return f"http://{HOST}:{self.port}/api/v10"

    @property
    def gateway(self) -> str:
        """Where the library finds the gateway."""
        return f"ws://{HOST}:{self.port}/gateway"

    def routes(self) -> list[web.RouteDef]:
        """The paths that we answer; anything else is unknown."""
        v10 = "/api/v10"
        return [
            web.get("/gateway", self._gateway),
            web.get("/files/{name}", self._file),
            web.get(f"{v10}/users/@me", self._me),
            web.get(f"{v10}/oauth2/applications/@me", self._application),
            web.put(f"{v10}/applications/{{id}}/commands", self._put_commands),
            web.post(f"{v10}/interactions/{{id}}/{{token}}/callback", self._callback),
            web.patch(
                f"{v10}/webhooks/{{application}}/{{token}}/messages/@original", self._edit_response
            ),
            web.get(f"{v10}/channels/{{id}}", self._get_channel),
            web.get(f"{v10}/channels/{{id}}/messages", self._list_messages),
            web.post(f"{v10}/channels/{{id}}/messages", self._create_message),
            web.patch(f"{v10}/channels/{{id}}/messages/{{message}}", self._edit_message),
            web.post(f"{v10}/channels/{{id}}/typing", self._typing),
        ]

    # What people do

    async def writes(
        self,
        text: str,
        *,
        number: int | None = None,
        author: str = ADA,
        channel: str | None = None,
        **more: Any,
    ) -> str:
        """A person writes: in a direct chat, unless a channel is named. The message's id."""
        id = self._new_id() if number is None else str(number)
        made = self._message(id, channel or self.direct(author), text, _user(author)) | more
        made["mentions"] = [_user(each) for each in _mentioned(text)]
        made["mention_roles"] = [BOT_ROLE] if f"<@&{BOT_ROLE}>" in text else []
        if channel is not None:
            made |= {"guild_id": GUILD, "member": _member()}
        self._keep(made)
        await self.dispatch("MESSAGE_CREATE", made)
        return id

    async def edits_to(self, id: str, text: str, *, channel: str = GENERAL) -> None:
        """A person edits a message of theirs in a channel."""
        made = self._message(id, channel, text, _user(ADA))
        made |= {"guild_id": GUILD, "member": _member(), "edited_timestamp": AT}
        made["mentions"] = [_user(each) for each in _mentioned(text)]
        await self.dispatch("MESSAGE_UPDATE", made)

    async def gives_command(self, name: str, words: str = "", *, channel: str = GENERAL) -> None:
        """A person uses a slash command."""
        options = [{"type": 3, "name": "words", "value": words}] if words else []
        made: Json = {
            "id": self._new_id(),
            "application_id": APPLICATION,
            "type": 2,
            "token": "interaction-token",
            "version": 1,
            "attachment_size_limit": 10_000_000,
            "guild_id": GUILD,
            "channel_id": channel,
            "channel": _channel(channel),
            "member": _member() | {"user": _user(ADA), "permissions": "0"},
            "data": {"id": "77", "name": name, "type": 1, "options": options},
        }
        await self.dispatch("INTERACTION_CREATE", made)

    def presses(self, label: str, *, person: str | None = None, id: int = 1) -> None:
        """A person presses a button of the last card; the same id again is the same press, delivered once more.

        Their app may not know yet that the buttons were removed.
        """
        message = max(self.offered, key=int)
        task = asyncio.ensure_future(
            self.press_data(self.offered[message][label], message, person=person, id=id)
        )
        self._pressing.add(task)
        task.add_done_callback(self._pressing.discard)

    async def press_data(
        self, data: str, message: str, *, person: str | None = None, id: int = 1
    ) -> None:
        """A person presses a button that carries this, below a message of the bot."""
        post = next(each for each in self.posts if each.id == message)
        who, number = _user(person or ADA), str(self._first_press + id)
        made: Json = {
            "id": number,
            "application_id": APPLICATION,
            "type": 3,
            "token": f"token-{number}",
            "version": 1,
            "attachment_size_limit": 10_000_000,
            "channel_id": post.channel,
            "message": self._message(message, post.channel, post.text, _user(BOT)),
            "data": {"id": 1, "custom_id": data, "component_type": 2},
        }
        if post.channel.startswith("3"):
            made |= {"channel": _direct(post.channel), "user": who}
        else:
            member = _member() | {"user": who, "permissions": "0"}
            made |= {"channel": _channel(post.channel), "guild_id": GUILD, "member": member}
        self._pressed.add(number)
        await self.dispatch("INTERACTION_CREATE", made)

    def cards(self) -> list[str]:
        """The texts of the messages that have buttons."""
        return [post.text for post in self.posts if post.id in self.with_buttons]

    def told(self) -> list[str]:
        """What people read who have pressed a button and changed nothing by it."""
        return [text for text in self.whispers if "nothing was changed" in text.lower()]

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether everybody who has pressed a button was told what became of it."""
        told = {id for id, kinds in self.responses.items() if kinds[-1] == _MESSAGE}
        return not self._pressing and self._pressed <= told

    def attach(self, name: str, data: bytes) -> Json:
        """A file for the `attachments` of a message."""
        self.files[name] = data
        url = f"http://{HOST}:{self.port}/files/{name}"
        kind = {"content_type": "text/plain", "size": len(data), "url": url, "proxy_url": url}
        return {"id": self._new_id(), "filename": name} | kind

    @staticmethod
    def direct(person: str) -> str:
        """The direct chat of a person with the bot."""
        return f"3{person}"

    async def dispatch(self, event: str, data: Json) -> None:
        """Send an event to the bot; one that is offline gets it when it resumes."""
        packet = {"op": _DISPATCH, "t": event, "s": len(self._log) + 1, "d": data}
        self._log.append(packet)
        for socket in list(self.sockets):
            await _send_packet(socket, packet)

    async def hang_up(self, code: int) -> None:
        """Close every connection to the gateway with a code."""
        for socket in list(self.sockets):
            self.sockets.discard(socket)
            await socket.close(code=code)

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next messages of the bot with an error."""
        if retry_after is not None:
            body: Json = {"message": "You are being rate limited.", "global": False}
            body["retry_after"] = retry_after
        else:
            body = {"message": "Something broke", "code": 0}
        # The library itself waits for seconds after a 500; after a 503 it does not.
        status = 503 if status == 500 else status
        headers = {"Via": "1.1 fake"}
        self.refuse_with(lambda: _answer(body, status=status, headers=headers), times=times)

    # The gateway

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await _send_packet(socket, {"op": _HELLO, "d": {"heartbeat_interval": 41250}})
        try:
            async for packet in socket:
                if packet.type is WSMsgType.TEXT:
                    await self._handle_packet(socket, json.loads(packet.data))
        finally:
            self.sockets.discard(socket)
        return socket

    async def _handle_packet(self, socket: web.WebSocketResponse, packet: Json) -> None:
        data = packet.get("d")
        if packet["op"] == _HEARTBEAT:
            await _send_packet(socket, {"op": _ACK})
        elif packet["op"] in (_IDENTIFY, _RESUME) and isinstance(data, dict):
            if data["token"] != TOKEN or self.is_revoked:
                await socket.close(code=4004, message=b"Authentication failed.")
            elif packet["op"] == _RESUME and self.forgets_sessions:
                await _send_packet(socket, {"op": _INVALID, "d": False})
            elif packet["op"] == _RESUME:
                await self._resume(socket, int(data["seq"] or 0))
            elif data["intents"] & _MESSAGE_CONTENT and not self.may_read_everything:
                await socket.close(code=4014, message=b"Disallowed intent(s).")
            else:
                await self._ready(socket)

    async def _ready(self, socket: web.WebSocketResponse) -> None:
        ready = {
            "v": 10,
            "user": _user(BOT),
            "guilds": [{"id": GUILD, "unavailable": True}],
            "session_id": "session-1",
            "resume_gateway_url": self.gateway,
            "application": {"id": APPLICATION, "flags": 0},
        }
        first = len(self._log)
        for event, data in (("READY", ready), ("GUILD_CREATE", _guild())):
            self._log.append({"op": _DISPATCH, "t": event, "s": len(self._log) + 1, "d": data})
        await self._send_from(socket, first)
        while self.written_at_once:
            await self.writes(self.written_at_once.pop(0))

    async def _resume(self, socket: web.WebSocketResponse, seq: int) -> None:
        await self._send_from(socket, seq)
        await _send_packet(socket, {"op": _DISPATCH, "t": "RESUMED", "s": len(self._log), "d": {}})

    async def _send_from(self, socket: web.WebSocketResponse, seq: int) -> None:
        """Send the log from a position, also what is added meanwhile; then what comes."""
        while seq < len(self._log):
            seq += 1
            await _send_packet(socket, self._log[seq - 1])
        self.sockets.add(socket)

    # REST

    async def _me(self, request: web.Request) -> web.StreamResponse:
        return self._refusal(request) or _answer(_user(BOT))

    async def _application(self, request: web.Request) -> web.StreamResponse:
        about: Json = {"id": APPLICATION, "name": "sessionary", "icon": None, "description": ""}
        about |= {"bot_public": False, "bot_require_code_grant": False, "verify_key": "00"}
        about |= {"summary": "", "flags": 0, "owner": _user(ADA), "team": None}
        return self._refusal(request) or _answer(about)

    async def _put_commands(self, request: web.Request) -> web.StreamResponse:
        refusal = self._refusal(request)
        if refusal is None:
            self.commands = await request.json()
        return refusal or _answer(self.commands)

    async def _callback(self, request: web.Request) -> web.StreamResponse:
        body, id = await _body(request), request.match_info["id"]
        if id not in self._pressed:
            self.confirmed.append(body["data"]["content"])
        elif id in self.responses:
            return _error(400, 40060, "Interaction has already been acknowledged.")
        else:
            self.responses[id] = [body["type"]]
            if body["data"].get("flags") != _EPHEMERAL:
                return _error(400, 50035, "Others would read this")
            if body["type"] == _MESSAGE:
                self.whispers.append(body["data"]["content"])
        about = {"id": id, "type": 2}
        return _answer({"interaction": about, "resource": None})

    async def _edit_response(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["token"].removeprefix("token-")
        if self.responses.get(id) != [_DEFERRED]:
            return _error(404, 10015, "Unknown Webhook")
        text = (await _body(request))["content"]
        self.responses[id].append(_MESSAGE)
        self.whispers.append(text)
        return _answer(self._message(self._new_id(), GENERAL, text, _user(BOT)))

    async def _get_channel(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]
        messages = self._messages.get(id)
        made = _direct(id) if id.startswith("3") else _channel(id)
        made["last_message_id"] = messages[-1]["id"] if messages else None
        return self._refusal(request) or self._unknown(id) or _answer(made)

    async def _list_messages(self, request: web.Request) -> web.StreamResponse:
        """The newest messages first: those before an id, if one is given."""
        id, asked = request.match_info["id"], request.query
        before = int(asked.get("before", 2**63))
        found = [each for each in self._messages.get(id, []) if int(each["id"]) < before]
        page = found[::-1][: int(asked.get("limit", 50))]
        return self._refusal(request) or self._unknown(id) or _answer(page)

    async def _create_message(self, request: web.Request) -> web.StreamResponse:
        channel, body = request.match_info["id"], await _body(request)
        files = await _files(request)
        found = self._refusal(request) or self.fault() or self._unknown(channel)
        if found is not None:
            return found
        text = body.get("content") or ""
        if not (text.strip() or files) or len(text) > LONGEST:
            return _error(400, 50035 if text.strip() else 50006, "Invalid Form Body")
        buttons = _read_buttons(body.get("components") or [])
        if buttons is None:
            return _error(400, 50035, "Invalid Form Body: components")
        made = self._nonces.get(body.get("nonce", ""))
        if made is None or not body.get("enforce_nonce"):
            made = self._message(self._new_id(), channel, text, _user(BOT))
            self._keep(made)
            self._nonces[body.get("nonce", "")] = made
            self.gifts += [(channel, name, data) for name, data in files]
            if text:
                self.posts.append(Post(made["id"], channel, text, body))
            if buttons:
                self.offered[made["id"]] = buttons
                self.with_buttons.append(made["id"])
        if self.is_lost(request):
            return web.Response(status=500)
        return _answer(made)

    async def _edit_message(self, request: web.Request) -> web.StreamResponse:
        body, id = await request.json(), request.match_info["message"]
        text = body["content"]
        found = self._refusal(request) or self.fault()
        if found is None and not self.rewrite(id, text):
            found = _error(404, 10008, "Unknown Message")
        if found is None:
            self.edits.append((id, text))
            self.edit_bodies.append(body)
            if body.get("components") == [] and id in self.with_buttons:
                self.with_buttons.remove(id)
            if self.is_lost(request):
                return web.Response(status=500)
        made = self._message(id, request.match_info["id"], text, _user(BOT))
        return found or _answer(made)

    async def _typing(self, request: web.Request) -> web.StreamResponse:
        self.typed.append(request.match_info["id"])
        return web.Response(status=204)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.downloads += 1
        data = self.files.get(request.match_info["name"])
        return web.Response(status=404) if data is None else web.Response(body=data)

    def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        good = request.headers.get("Authorization") == f"Bot {TOKEN}" and not self.is_revoked
        return None if good else _error(401, 0, "401: Unauthorized")

    def _unknown(self, channel: str) -> web.StreamResponse | None:
        if channel in self.channels or channel.startswith("3"):
            return None
        if channel.startswith("4"):
            return _error(403, 50001, "Missing Access")
        return _error(404, 10003, "Unknown Channel")

    def _keep(self, made: Json) -> None:
        # A message in a list names no server and no member.
        kept = {name: value for name, value in made.items() if name not in ("guild_id", "member")}
        messages = self._messages.setdefault(made["channel_id"], [])
        if not any(each["id"] == made["id"] for each in messages):
            messages.append(kept)
            messages.sort(key=lambda each: int(each["id"]))

    def _new_id(self) -> str:
        self._last_id += 1
        return str(self._last_id)

    def _message(self, id: str, channel: str, text: str, author: Json) -> Json:
        return {
            "id": id,
            "channel_id": channel,
            "author": author,
            "content": text,
            "timestamp": AT,
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
        }


async def _send_packet(socket: web.WebSocketResponse, packet: Json) -> None:
    """Send a packet, unless the connection is closed."""
    if not socket.closed:
        with contextlib.suppress(ConnectionError):
            await socket.send_str(json.dumps(packet))


async def _body(request: web.Request) -> Json:
    """The JSON of a request, which comes in a form when files come with it."""
    if request.content_type != "multipart/form-data":
        found: Json = await request.json()
        return found
    form = await request.post()
    return dict(json.loads(str(form["payload_json"])))


async def _files(request: web.Request) -> list[tuple[str, bytes]]:
    if request.content_type != "multipart/form-data":
        return []
    form = await request.post()
    fields = [value for value in form.values() if isinstance(value, web.FileField)]
    return [(field.filename, field.file.read()) for field in fields]


def _read_buttons(rows: list[Json]) -> dict[str, str] | None:
    """What the buttons of a message carry, by their labels; None if Discord does not accept them."""
    buttons = [each for row in rows for each in row["components"]]
    found = {each["label"]: each["custom_id"] for each in buttons}
    is_good = (
        len(rows) <= 5
        and all(row["type"] == 1 and 1 <= len(row["components"]) <= 5 for row in rows)
        and all(each["type"] == 2 and 1 <= each["style"] <= 4 for each in buttons)
        and all(1 <= len(label) <= 80 and len(data) <= 100 for label, data in found.items())
        and len(set(found.values())) == len(buttons)
    )
    return found if is_good else None


def _mentioned(text: str) -> list[str]:
    return [BOT] if f"<@{BOT}>" in text or f"<@!{BOT}>" in text else []


def _user(id: str) -> Json:
    names = {BOT: "Sessionary", ADA: "Ada"}
    about: Json = {"id": id, "username": names.get(id, f"user-{id}"), "discriminator": "0"}
    return about | {"avatar": None, "global_name": names.get(id), "bot": id == BOT}


def _member() -> Json:
    return {"roles": [], "joined_at": AT, "deaf": False, "mute": False, "flags": 0, "nick": None}


def _channel(id: str) -> Json:
    made: Json = {"id": id, "guild_id": GUILD, "position": 0, "permission_overwrites": []}
    if id == THREAD:
        times = {"archived": False, "auto_archive_duration": 60, "archive_timestamp": AT}
        made |= {"type": 11, "name": "a thread", "parent_id": GENERAL, "owner_id": ADA}
        made |= {"thread_metadata": times | {"locked": False}, "message_count": 0}
        return made | {"member_count": 1, "rate_limit_per_user": 0}
    return made | {"type": 0, "name": "general", "topic": "All sorts", "nsfw": False}


def _direct(id: str) -> Json:
    return {"id": id, "type": 1, "recipients": [_user(id[1:])]}


def _guild() -> Json:
    role: Json = {"color": 0, "hoist": False, "position": 0, "permissions": "0", "flags": 0}
    role |= {"managed": False, "mentionable": False, "colors": {"primary_color": 0}}
    everyone = role | {"id": GUILD, "name": "@everyone"}
    own = role | {"id": BOT_ROLE, "name": "Sessionary", "managed": True, "tags": {"bot_id": BOT}}
    return {
        "id": GUILD,
        "name": "The Server",
        "owner_id": ADA,
        "roles": [everyone, own],
        "emojis": [],
        "features": [],
        "channels": [_channel(GENERAL)],
        "threads": [_channel(THREAD)],
        "members": [_member() | {"user": _user(BOT)}],
        "member_count": 2,
        "unavailable": False,
    }


def _answer(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> web.StreamResponse:
    # Discord names no charset, and the library compares the whole header.
    data = json.dumps(body).encode()
    return web.Response(body=data, status=status, headers=headers, content_type="application/json")


def _error(status: int, code: int, text: str) -> web.StreamResponse:
    return _answer({"message": text, "code": code}, status=status)
