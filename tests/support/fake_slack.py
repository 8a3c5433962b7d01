"""Slack on loopback: the parts of its Web API, Socket Mode and Events API that a bot needs.

Written from Slack's documentation. slack-sdk takes the address of the Web API as `base_url`
(`fake.api`); the address of the socket comes from `apps.connections.open`.
"""

import asyncio
import contextlib
import html
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from aiohttp import WSMsgType, web

from sessionary.channels.slack import inbound
from tests.support.platform_server import HOST, PlatformServer, Post

Json = dict[str, Any]
WebhookHandler = Callable[[Mapping[str, str], bytes], Awaitable[int | str]]

TOKEN = "xoxb-token"
APP_TOKEN = "xapp-token"
SIGNING_SECRET = "signing-secret"
BOT = "U0BOT"
BOT_ID = "B0BOT"
ADA = "U0ADA"
GENERAL = "C0GENERAL"
ARCHIVED = "C0ARCHIVED"
TEAM = "T0TEAM"
FIRST_TS = 1_700_000_000


class FakeSlack(PlatformServer):
    """One workspace with a channel, and a direct chat for everyone who writes."""

    def __init__(self) -> None:
        super().__init__()
        self.by_post = False
        self.webhook_handler: WebhookHandler | None = None
        self.answers: list[int | str] = []
        self.files: dict[str, bytes] = {}
        self.gifts: list[tuple[str, str, bytes]] = []
        self.downloads = 0
        self.may_give = True
        self._uploads: dict[str, tuple[str, bytes]] = {}
        self.edits: list[tuple[str, str]] = []
        # What the bot has sent to edit a message, whole.
        self.edit_bodies: list[Json] = []
        # The buttons that each message has, or had, by their labels; and which messages have them now.
        self.offered: dict[str, dict[str, str]] = {}
        self.with_buttons: list[str] = []
        # What the bot has shown to one person only.
        self.whispers: list[Json] = []
        self.refuses_blocks = False
        self.hangs_up_at_once = False
        self.asked: list[str] = []
        self._open: dict[str, Json] = {}
        self._acknowledged: set[str] = set()
        self._posting: set[asyncio.Task[None]] = set()
        self._envelopes = 0
        self._last = 500_000

    @property
    def api(self) -> str:
        """Where the library finds the Web API."""
        return f"http://{HOST}:{self.port}/api/"

    def routes(self) -> list[web.RouteDef]:
        """The Web API by its methods, the socket, the files."""
        return [
            web.post("/api/{method}", self._called),
            web.get("/api/{method}", self._called),
            web.get("/socket", self._socket),
            web.get("/files/{name}", self._file),
            web.post("/upload/{id}", self._uploaded),
        ]

    async def __aexit__(self, *_: object) -> None:
        for task in self._posting:
            task.cancel()
        await super().__aexit__()

    # What people do

    async def writes(
        self, text: str, *, number: int | None = None, user: str = ADA, **more: Any
    ) -> str:
        """A person writes: in a direct chat, unless a channel is named. The message's ts."""
        ts = self._new_ts() if number is None else self.ts(number)
        kind = "channel" if "channel" in more else "im"
        event = {
            "type": "message",
            "channel": self.direct(user),
            "channel_type": kind,
            "user": user,
            "text": html.escape(text, quote=False).replace("&lt;@U0", "<@U0"),
            "ts": ts,
            "client_msg_id": f"client-{ts}",
        }
        event["text"] = event["text"].replace("BOT&gt;", "BOT>").replace("ADA&gt;", "ADA>")
        await self.offer("events_api", self.event(event | more), of=ts)
        return ts

    async def gives_command(self, command: str, text: str = "", *, channel: str = GENERAL) -> None:
        """A person uses a slash command."""
        form = {"command": command, "text": text, "user_id": ADA, "user_name": "ada"}
        form |= {"channel_id": channel, "channel_name": "general", "team_id": TEAM}
        form |= {"trigger_id": f"trigger-{self._new_ts()}"}
        await self.offer("slash_commands", form, of=form["trigger_id"])

    def presses(self, label: str, *, person: str | None = None, id: int = 1) -> None:
        """A person presses a button of the last card; the same id again is the same press, delivered once more.

        Their app may not know yet that the buttons were removed.
        """
        ts = max(self.offered)
        payload = self.press(self.offered[ts][label], ts, person=person, id=id)
        task = asyncio.ensure_future(self.offer("interactive", payload, of=f"press-{id}"))
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    def press(
        self, value: str, ts: str, *, person: str | None = None, id: int = 1, **message: Any
    ) -> Json:
        """What Slack tells of the press of a button below a message of the bot."""
        post = next(each for each in self.posts if each.id == ts)
        thread = post.body.get("thread_ts")
        about: Json = {"ts": ts, "user": BOT, "bot_id": BOT_ID, "text": post.text, **message}
        if thread is not None:
            about["thread_ts"] = thread
        name = "directmessage" if post.channel.startswith("D") else "general"
        action = {"type": "button", "action_id": value, "block_id": "b1", "value": value}
        return {
            "type": "block_actions",
            "user": {"id": person or ADA, "username": "somebody", "team_id": TEAM},
            "api_app_id": "A0",
            "container": {"type": "message", "message_ts": ts, "channel_id": post.channel},
            "trigger_id": f"trigger-{id}",
            "team": {"id": TEAM, "domain": "team"},
            "channel": {"id": post.channel, "name": name},
            "message": about,
            "actions": [action | {"action_ts": f"{FIRST_TS}.{id}"}],
        }

    def cards(self) -> list[str]:
        """The texts of the messages that have buttons."""
        return [post.text for post in self.posts if post.id in self.with_buttons]

    def told(self) -> list[str]:
        """What people were shown alone."""
        return [html.unescape(each["text"]) for each in self.whispers]

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether the bot has acknowledged everything."""
        return not self._open and not self._posting

    def event(self, event: Json) -> Json:
        """An event as Slack wraps it."""
        about = {"type": "event_callback", "team_id": TEAM, "api_app_id": "A0", "event": event}
        return about | {"event_id": f"Ev{event.get('ts')}", "event_time": FIRST_TS}

    async def offer(self, kind: str, payload: Json, *, of: str) -> None:
        """Send an envelope to the bot until it acknowledges."""
        self._envelopes += 1
        id = f"{of}/{self._envelopes}"
        envelope = {"type": kind, "envelope_id": id, "payload": payload}
        self._open[id] = envelope | {"accepts_response_payload": kind == "slash_commands"}
        if self.by_post:
            task = asyncio.ensure_future(self._post(id, payload, kind))
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)
        for socket in list(self.sockets):
            await _send_packet(socket, self._open[id])

    def acknowledged_ts(self, ts: str) -> bool:
        """Whether the bot has acknowledged every envelope of a message."""
        return ts in self._acknowledged and not any(id.startswith(ts) for id in self._open)

    async def posts_to(
        self,
        webhook: WebhookHandler,
        payload: Json,
        *,
        age: float = 0,
        secret: str,
        is_form: bool = False,
    ) -> int | str:
        """Post to the bot's address, signed with a secret, as if some seconds ago; interactions come in a form."""
        text = json.dumps(payload)
        body = urlencode({"payload": text}).encode() if is_form else text.encode()
        at = str(int(time.time() - age))
        headers = {
            "x-slack-request-timestamp": at,
            "x-slack-signature": inbound.sign(secret, at, body),
        }
        return await webhook(headers, body)

    def attach(self, name: str, data: bytes) -> Json:
        """A file for the `files` of a message."""
        self.files[name] = data
        url = f"http://{HOST}:{self.port}/files/{name}"
        about: Json = {"id": "F1", "name": name, "mimetype": "text/plain", "size": len(data)}
        return about | {"url_private": url, "url_private_download": url}

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next messages of the bot with an error."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        body = {"ok": False, "error": "ratelimited" if status == 429 else "internal_error"}
        self.refuse_with(lambda: web.json_response(body, status=status, headers=headers), times)

    async def asks_to_reconnect(self) -> None:
        """Announce the end of every socket, as Slack does every few hours."""
        for socket in list(self.sockets):
            await _send_packet(socket, {"type": "disconnect", "reason": "refresh_requested"})

    async def hang_up(self) -> None:
        """Close every socket, as Slack does from time to time."""
        for socket in list(self.sockets):
            self.sockets.discard(socket)
            await socket.close()

    @staticmethod
    def direct(person: str) -> str:
        """The direct chat of a person with the bot."""
        return f"D{person[1:]}"

    @staticmethod
    def ts(number: int) -> str:
        """The ts of a numbered message."""
        return f"{FIRST_TS}.{number:06d}"

    # Socket Mode and the Events API

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await _send_packet(socket, {"type": "hello", "num_connections": 1})
        if self.hangs_up_at_once:
            await socket.close()
            return socket
        self.sockets.add(socket)
        for envelope in list(self._open.values()):
            await _send_packet(socket, envelope)
        try:
            async for packet in socket:
                if packet.type is WSMsgType.TEXT:
                    self._settle(json.loads(packet.data)["envelope_id"])
        finally:
            self.sockets.discard(socket)
        return socket

    async def _post(self, id: str, payload: Json, kind: str) -> None:
        is_press = kind == "interactive"
        while id in self._open:
            if self.is_online and self.webhook_handler is not None:
                answer = await self.posts_to(
                    self.webhook_handler, payload, secret=SIGNING_SECRET, is_form=is_press
                )
                self.answers.append(answer)
                # Only an event is posted again. Of an interaction the person sees that it failed.
                if answer == 200 or is_press:
                    self._settle(id)
                    return
            await asyncio.sleep(0.01)

    def _settle(self, id: str) -> None:
        if self._open.pop(id, None) is not None:
            self._acknowledged.add(id.partition("/")[0])

    # The Web API

    async def _called(self, request: web.Request) -> web.StreamResponse:
        method, given = request.match_info["method"], await _given(request)
        self.asked.append(method)
        wanted = APP_TOKEN if method == "apps.connections.open" else TOKEN
        if self.is_revoked or request.headers.get("Authorization") != f"Bearer {wanted}":
            return _error("invalid_auth")
        match method:
            case "apps.connections.open":
                return _ok(url=f"ws://{HOST}:{self.port}/socket")
            case "auth.test":
                return _ok(user_id=BOT, bot_id=BOT_ID, user="sessionary", team="The Team")
            case "users.info":
                return _ok(user=_user(given["user"]))
            case "conversations.info":
                return _ok(channel={"name": "general", "topic": {"value": "All sorts"}})
            case "chat.postMessage":
                return await self._post_message(request, given)
            case "chat.postEphemeral":
                found = self.fault() or _unwritable(given["channel"])
                self.whispers += [given] if found is None else []
                return found or _ok(message_ts=self._new_ts())
            case "files.getUploadURLExternal":
                return self._offer_upload(given)
            case "files.completeUploadExternal":
                return self._share(given)
            case "chat.update":
                return self._update(request, given)
        return _error("unknown_method")

    async def _post_message(self, request: web.Request, given: Json) -> web.StreamResponse:
        channel = given["channel"]
        found = self.fault() or _unwritable(channel)
        if found is not None:
            return found
        shown = self._shown(given)
        if shown is None:
            return _error("invalid_blocks")
        if not shown.strip():
            return _error("no_text")
        ts = self._new_ts()
        self.posts.append(Post(ts, channel, html.unescape(shown), given))
        buttons = _read_buttons(_blocks(given))
        if buttons:
            self.offered[ts] = buttons
            self.with_buttons.append(ts)
        if self.is_lost(request):
            return web.Response(status=500)
        return _ok(ts=ts, channel=channel, message={"ts": ts, "text": given["text"]})

    def _update(self, request: web.Request, given: Json) -> web.StreamResponse:
        found, shown = self.fault(), self._shown(given)
        if found is not None:
            return found
        if shown is None:
            return _error("invalid_blocks")
        if not self.rewrite(given["ts"], html.unescape(shown)):
            return _error("message_not_found")
        self.edits.append((given["ts"], given["text"]))
        self.edit_bodies.append(given)
        if given["ts"] in self.with_buttons and not _read_buttons(_blocks(given)):
            self.with_buttons.remove(given["ts"])
        if self.is_lost(request):
            return web.Response(status=500)
        return _ok(ts=given["ts"])

    def _shown(self, given: Json) -> str | None:
        """What people read of a message; None when its blocks are not taken."""
        blocks = _blocks(given)
        if not blocks:
            return str(given["text"])
        texts = [each["text"]["text"] for each in blocks if each["type"] == "section"]
        is_good = all(0 < len(each) <= 3000 for each in texts) and not self.refuses_blocks
        return "".join(texts) if is_good and _read_buttons(blocks) is not None else None

    def _offer_upload(self, given: Json) -> web.StreamResponse:
        if not self.may_give:
            body = {"ok": False, "error": "missing_scope", "needed": "files:write"}
            return web.json_response(body)
        id = f"F{len(self._uploads) + 1}"
        self._uploads[id] = (given["filename"], b"")
        return _ok(upload_url=f"http://{HOST}:{self.port}/upload/{id}", file_id=id)

    async def _uploaded(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]
        self._uploads[id] = (self._uploads[id][0], await request.read())
        return web.Response(text="OK")

    def _share(self, given: Json) -> web.StreamResponse:
        found = self.fault() or _unwritable(given["channel_id"])
        if found is not None:
            return found
        files = given["files"]
        shared = json.loads(files) if isinstance(files, str) else files
        self.gifts += [(given["channel_id"], *self._uploads[each["id"]]) for each in shared]
        return _ok(files=[{"id": each["id"]} for each in shared])

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        self.downloads += 1
        data = self.files.get(request.match_info["name"])
        if data is None:
            return web.Response(status=404)
        return web.Response(body=data, content_type="text/plain")

    def _new_ts(self) -> str:
        self._last += 1
        return self.ts(self._last)


async def _send_packet(socket: web.WebSocketResponse, packet: Json) -> None:
    """Send a packet, unless the connection is closed."""
    if not socket.closed:
        with contextlib.suppress(ConnectionError):
            await socket.send_str(json.dumps(packet))


async def _given(request: web.Request) -> Json:
    """The arguments of a call: JSON, a form, or the query."""
    if request.content_type == "application/json":
        found: Json = await request.json()
        return found
    return dict(request.query) | dict(await request.post())


def _blocks(given: Json) -> list[Json]:
    """The blocks of a message, which may come as JSON in a form."""
    blocks = given.get("blocks") or []
    found: list[Json] = json.loads(blocks) if isinstance(blocks, str) else blocks
    return found


def _read_buttons(blocks: list[Json]) -> dict[str, str] | None:
    """What the buttons of a message carry, by their labels; None if Slack does not accept them."""
    groups = [each["elements"] for each in blocks if each["type"] == "actions"]
    buttons = [each for group in groups for each in group]
    labels = [each["text"] for each in buttons]
    is_good = (
        all(1 <= len(group) <= 25 for group in groups)
        and all(each["type"] == "button" and len(each["value"]) <= 2000 for each in buttons)
        and all(each["type"] == "plain_text" and 1 <= len(each["text"]) <= 75 for each in labels)
        and all(each.get("style", "primary") in ("primary", "danger") for each in buttons)
        and len({each["action_id"] for each in buttons}) == len(buttons)
    )
    return {each["text"]["text"]: each["value"] for each in buttons} if is_good else None


def _user(id: str) -> Json:
    name = "Ada" if id == ADA else id
    return {"id": id, "name": name.lower(), "profile": {"display_name": name}}


def _unwritable(channel: str) -> web.StreamResponse | None:
    if channel == ARCHIVED:
        return _error("is_archived")
    return None if channel == GENERAL or channel.startswith("D") else _error("channel_not_found")


def _ok(**fields: Any) -> web.StreamResponse:
    return web.json_response({"ok": True} | fields)


def _error(why: str) -> web.StreamResponse:
    return web.json_response({"ok": False, "error": why})
