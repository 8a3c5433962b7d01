"""A fake of Telegram's Bot API on loopback, written from its documentation.

    async with FakeTelegram() as telegram:
        await telegram.says("hello", number=1)
        bot = telegram.Bot(TOKEN, base_url=telegram.base_url)

The official library works against it; so does our adapter.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from sessionary.channels.telegram import TelegramSettings
from sessionary.channels.telegram.adapter import SECRET_HEADER, TelegramAdapter
from sessionary.config.secret import Secret
from sessionary.model.source import Channel
from tests.support import fake_telegram_text as texts
from tests.support.http_server import (
    LOST,
    HttpServer,
    Request,
    Response,
    json_response,
)
from tests.support.webhook_poster import WebhookPoster

TOKEN = "4242:a-token-of-the-fake"
SECRET = "a-secret-of-the-fake"
BOT = {"id": 4242, "is_bot": True, "first_name": "Clerk", "username": "clerk_bot"}
_SENT_FIRST = 1_000_000
_Wire = dict[str, Any]


class FakeTelegram:
    """Keeps updates until they are confirmed, and what the bot sent; can be ill in many ways."""

    name = "telegram"
    known = "7"
    chat = Channel("telegram", "7")
    acknowledges = True
    largest_file: int | None = 64 * 1024
    largest_sent = 64 * 1024

    def __init__(self, **settings: Any) -> None:
        self.calls: list[tuple[str, _Wire]] = []
        self.messages: dict[int, _Wire] = {}
        self.files: dict[str, bytes] = {}
        self.gives_files = True
        self.gifts: list[tuple[str, str, bytes]] = []
        self.migrated: dict[str, int] = {}
        self.blocked: set[str] = set()
        # By number of a message: what each of its buttons carries by its label, also after they were removed.
        self.offered: dict[int, dict[str, str]] = {}
        # What was shown to people who pressed a button: the text, and whether they must close it.
        self.toasts: list[tuple[str, bool]] = []
        self.takes_answers = True
        self.webhook: _Wire = {}
        self._settings = settings
        self._updates: list[_Wire] = []
        self._came = asyncio.Event()
        self._update_id = 500
        self._next_sent = _SENT_FIRST
        self._refusals: list[Response] = []
        self._let_pass = 0
        self._lost = 0
        self._revoked = False
        self._server = HttpServer(self._answer)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._server.__aexit__(*failure)

    @property
    def base_url(self) -> str:
        """What the library takes for `base_url`."""
        return f"{self._server.url}/bot"

    def adapter(self, **more: Any) -> TelegramAdapter:
        """An adapter that speaks to this fake."""
        given = {
            "token": Secret(TOKEN),
            "base_url": self._server.url,
            "poll_seconds": 1,
            "pause_seconds": 0.01,
            "largest_file": self.largest_file,
            "largest_sent": self.largest_sent,
            **self._settings,
            **more,
        }
        return TelegramAdapter(TelegramSettings(**given))

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """A person writes to the bot."""
        who = int(person or self.known)
        chat = {"id": who, "type": "private", "first_name": "Ada"}
        message = self.message(text, number=number, chat=chat, who=who)
        if file is not None:
            message["caption"] = message.pop("text")
            message["document"] = self.document(file)
        self.update("message", message)

    def message(
        self, text: str, *, number: int, chat: Mapping[str, Any], who: int = 7, **more: Any
    ) -> _Wire:
        """A message in the shape of the Bot API."""
        writer = {"id": who, "is_bot": False, "first_name": "Ada", "username": f"user{who}"}
        base = {"message_id": number, "date": 1_772_442_000, "chat": dict(chat), "from": writer}
        return {**base, "text": text, **more}

    def document(self, data: bytes, name: str = "notes.txt") -> _Wire:
        """A file that can be fetched."""
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = data
        return {
            "file_id": file_id,
            "file_unique_id": f"u{file_id}",
            "file_name": name,
            "mime_type": "text/plain",
            "file_size": len(data),
        }

    def update(self, kind: str, message: _Wire) -> _Wire:
        """Offer something to the bot until it is confirmed."""
        self._update_id += 1
        made = {"update_id": self._update_id, kind: message}
        self._updates.append(made)
        self._came.set()
        return made

    def cards(self) -> list[str]:
        """The texts of the messages that have buttons."""
        return [each["shown"] for each in self.messages.values() if _keyboard(each["form"])]

    def presses(self, label: str, *, person: str | None = None, id: int = 1) -> None:
        """A person presses a button of the last card; the same id again is the same press, delivered once more.

        Their app may not know yet that the buttons were removed.
        """
        number = max(self.offered)
        self.press_data(self.offered[number][label], number, person=person, id=id)

    def press_data(
        self, data: str, number: int, *, person: str | None = None, id: int = 1, **more: Any
    ) -> None:
        """A person presses a button that carries this, below a message."""
        held, who = self.messages[number], int(person or self.known)
        kind = "supergroup" if held["chat"].startswith("-") else "private"
        message = {
            "message_id": number,
            "date": 1_772_442_000,
            "chat": {"id": int(held["chat"]), "type": kind},
            "from": BOT,
            "text": held["shown"],
        }
        if held["thread"] is not None:
            message |= {"message_thread_id": int(held["thread"]), "is_topic_message": True}
        query = {
            "id": f"query-{id}",
            "from": {"id": who, "is_bot": False, "first_name": f"Ada {who}"},
            "chat_instance": "1",
            "message": message,
            "data": data,
        }
        self.update("callback_query", {**query, **more})

    def told(self) -> list[str]:
        """What people were told who pressed a button and changed nothing by it."""
        return [text for text, must_close in self.toasts if must_close]

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether nothing is offered to the bot any more."""
        return not self._updates

    def acknowledged(self, number: int) -> bool:
        """Whether no update with this message is offered any more."""
        return not any(number == _message_id(each) for each in self._updates)

    def seen(self, chat: str = "7") -> list[str]:
        """What the bot has written in a chat, as people read it."""
        return [each["shown"] for each in self.messages.values() if each["chat"] == chat]

    def forget(self) -> None:
        """Delete everything that the bot has written."""
        self.messages.clear()

    def given(self) -> list[tuple[str, bytes]]:
        """The files that the bot gave to the known person."""
        return [(name, data) for chat, name, data in self.gifts if chat == self.known]

    def fetched(self) -> int:
        """How many files the bot has asked for."""
        return len(self.sent("getFile"))

    def sent(self, method: str = "sendMessage") -> list[_Wire]:
        """The parameters of all calls of a method."""
        return [given for name, given in self.calls if name == method]

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next sendings with an error."""
        more = {} if retry_after is None else {"parameters": {"retry_after": int(retry_after)}}
        self._refusals += [_error(status, "Something is wrong", **more)] * times

    def refuse_with(self, status: int, description: str) -> None:
        """Answer the next sending with an error in Telegram's words."""
        self._refusals.append(_error(status, description))

    @property
    def pending_refusals(self) -> int:
        """How many of the errors that were ordered nobody has got yet."""
        return len(self._refusals)

    def let_pass(self, times: int) -> None:
        """Take the next sendings; what is refused comes after them."""
        self._let_pass = times

    def lose_answers(self, times: int = 1) -> None:
        """Take the next sendings and never say so."""
        self._lost = times

    def revoke(self) -> None:
        """The token is not good any more."""
        self._revoked = True

    async def go_offline(self) -> None:
        """Refuse connections."""
        await self._server.go_offline()

    async def go_online(self) -> None:
        """Be back, at the same address."""
        await self._server.go_online()

    async def _answer(self, request: Request) -> Response:
        if request.path.startswith(f"/file/bot{TOKEN}/"):
            held = self.files.get(request.path.rpartition("/")[2])
            if not self.gives_files:
                return _error(500, "Internal Server Error")
            return _error(404, "Not Found") if held is None else Response(200, held)
        given, _, method = request.path.removeprefix("/bot").partition("/")
        if given != TOKEN or self._revoked:
            return _error(401, "Unauthorized")
        answer = _METHODS.get(method.lower())
        if answer is None:
            return _error(404, "Not Found")
        form = dict(request.form)
        self.calls.append((method, form))
        if method.lower() in _GIFTS:
            return self._give(form, request.files)
        return await answer(self, form)

    async def _get_me(self, _: _Wire) -> Response:
        more = {"can_join_groups": True, "can_read_all_group_messages": False}
        return _ok({**BOT, **more, "supports_inline_queries": False})

    async def _get_updates(self, form: _Wire) -> Response:
        if self.webhook.get("url"):
            return _error(409, "Conflict: can't use getUpdates method while webhook is active")
        offset = int(form.get("offset", 0))
        self._updates = [each for each in self._updates if each["update_id"] >= offset]
        if not self._updates:
            self._came.clear()
            try:
                async with asyncio.timeout(float(form.get("timeout", 0))):
                    await self._came.wait()
            except TimeoutError:
                pass
        return _ok(self._updates[: int(form.get("limit", 100))])

    async def _set_webhook(self, form: _Wire) -> Response:
        self.webhook = form
        return _ok(True)

    async def _webhook_info(self, _: _Wire) -> Response:
        url = self.webhook.get("url", "")
        waiting = len(self._updates)
        return _ok({"url": url, "has_custom_certificate": False, "pending_update_count": waiting})

    async def _send(self, form: _Wire) -> Response:
        return self._put(form, form["chat_id"])

    def _give(self, form: _Wire, files: list[tuple[str, bytes]]) -> Response:
        refused = self._refused(form, form["chat_id"])
        if refused is not None:
            return refused
        name, data = files[0]
        self.gifts.append((form["chat_id"], name, data))
        where = {"id": int(form["chat_id"]), "type": "private"}
        self._next_sent += 1
        return _ok({"message_id": self._next_sent, "date": 1, "chat": where, "from": BOT})

    async def _edit(self, form: _Wire) -> Response:
        old = self.messages.get(int(form["message_id"]))
        if old is None:
            return _error(400, "Bad Request: message to edit not found")
        if _as_shown(old["form"]) == _as_shown(form):
            detail = "specified new message content and reply markup are exactly the same"
            return _error(400, f"Bad Request: message is not modified: {detail} as now")
        return self._put(form, old["chat"], number=int(form["message_id"]))

    def _put(self, form: _Wire, chat: str, number: int | None = None) -> Response:
        refused = self._refused(form, chat)
        if refused is not None:
            return refused
        try:
            _check_keyboard(form)
            shown = texts.shown(form["text"], form.get("parse_mode"))
        except ValueError as error:
            return _error(400, f"Bad Request: can't parse entities: {error}")
        if not shown.strip():
            return _error(400, "Bad Request: message text is empty")
        if texts.units(shown) > texts.LONGEST:
            return _error(400, "Bad Request: message is too long")
        if number is None:
            number = self._next_sent
            self._next_sent += 1
        thread = form.get("message_thread_id")
        self.messages[number] = {"chat": chat, "shown": shown, "thread": thread, "form": form}
        if rows := _keyboard(form):
            self.offered[number] = {
                each["text"]: each["callback_data"] for row in rows for each in row
            }
        if self._lost:
            self._lost -= 1
            return LOST
        where = {"id": int(chat), "type": "private"}
        return _ok({"message_id": number, "date": 1, "chat": where, "from": BOT, "text": shown})

    def _refused(self, form: _Wire, chat: str) -> Response | None:
        if self._let_pass:
            self._let_pass -= 1
        elif self._refusals:
            return self._refusals.pop(0)
        if chat in self.migrated:
            where = {"migrate_to_chat_id": self.migrated[chat]}
            problem = "Bad Request: group chat was upgraded to a supergroup chat"
            return _error(400, problem, parameters=where)
        if chat in self.blocked:
            return _error(403, "Forbidden: bot was blocked by the user")
        return None

    async def _action(self, _: _Wire) -> Response:
        return _ok(True)

    async def _answer_press(self, form: _Wire) -> Response:
        if not self.takes_answers:
            why = "query is too old and response timeout expired or query ID is invalid"
            return _error(400, f"Bad Request: {why}")
        text = form.get("text", "")
        if len(text) > texts.LONGEST_TOAST:
            return _error(400, "Bad Request: MESSAGE_TOO_LONG")
        self.toasts.append((text, form.get("show_alert") == "true"))
        return _ok(True)

    async def _get_file(self, form: _Wire) -> Response:
        file_id = form["file_id"]
        size = len(self.files.get(file_id, b""))
        found = {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size}
        return _ok({**found, "file_path": file_id})


def _as_shown(form: _Wire) -> tuple[str, str, object]:
    """The words of a message, how they are formatted where they are, and the buttons below them."""
    mode, text, rows = form.get("parse_mode"), form["text"], _keyboard(form)
    try:
        shown = texts.shown(text, mode)
    except ValueError:
        return text, "wrong", rows
    return shown, text if mode and text != shown else "", rows


def _keyboard(form: _Wire) -> list[list[dict[str, str]]]:
    """The rows of buttons that a message is sent with."""
    rows: list[list[dict[str, str]]] = json.loads(form.get("reply_markup", "{}")).get(
        "inline_keyboard", []
    )
    return rows


def _check_keyboard(form: _Wire) -> None:
    """Refuse what Telegram refuses."""
    for button in (each for row in _keyboard(form) for each in row):
        if not button["text"].strip():
            raise ValueError("text buttons are not allowed to be empty")
        if not 0 < len(button["callback_data"].encode()) <= texts.LONGEST_DATA:
            raise ValueError("BUTTON_DATA_INVALID")


class PostingTelegram(FakeTelegram):
    """The same, posting its updates to the adapter as it was asked to."""

    def __init__(self, **settings: Any) -> None:
        hook = {"webhook_url": "https://bot.example/hook", "webhook_secret": Secret(SECRET)}
        super().__init__(**hook, **settings)
        self.poster = WebhookPoster(self._post)
        self._adapter: TelegramAdapter | None = None

    async def __aexit__(self, *failure: object) -> None:
        await self.poster.close()
        await super().__aexit__(*failure)

    def adapter(self, **more: Any) -> TelegramAdapter:
        """The adapter that updates are posted to."""
        self._adapter = super().adapter(**more)
        return self._adapter

    def update(self, kind: str, message: _Wire) -> _Wire:
        """Post something until it is taken."""
        made = super().update(kind, message)
        self.poster.post(made["update_id"], as_body(made))
        return made

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether every update was answered with 200."""
        return all(self.poster.is_accepted(each["update_id"]) for each in self._updates)

    def acknowledged(self, number: int) -> bool:
        """Whether every update with this message was answered with 200."""
        offered = [each for each in self._updates if _message_id(each) == number]
        return all(self.poster.is_accepted(each["update_id"]) for each in offered)

    async def go_offline(self) -> None:
        """Post nothing, and refuse connections."""
        self.poster.pause()
        await super().go_offline()

    async def go_online(self) -> None:
        """Post what waits, and be reachable again."""
        await super().go_online()
        self.poster.resume()

    async def forges(self, text: str, *, number: int) -> int:
        """Someone posts who does not know the secret."""
        message = self.message(text, number=number, chat={"id": 7, "type": "private"})
        return await self._posted(as_body({"update_id": 1, "message": message}), "guessed")

    async def replays_late(self, text: str, *, number: int) -> int | None:
        """Telegram does not sign the time."""
        return None

    async def _post(self, body: bytes) -> int:
        return await self._posted(body, self.webhook.get("secret_token", ""))

    async def _posted(self, body: bytes, secret: str) -> int:
        if self._adapter is None or self._adapter.webhook is None:
            return 404
        return int(await self._adapter.handle_webhook({SECRET_HEADER: secret}, body))


_GIFTS = ("senddocument", "sendphoto")
_METHODS: dict[str, Callable[[FakeTelegram, _Wire], Awaitable[Response]]] = {
    "getme": FakeTelegram._get_me,
    "getupdates": FakeTelegram._get_updates,
    "setwebhook": FakeTelegram._set_webhook,
    "deletewebhook": FakeTelegram._set_webhook,
    "getwebhookinfo": FakeTelegram._webhook_info,
    "sendmessage": FakeTelegram._send,
    "senddocument": FakeTelegram._send,
    "sendphoto": FakeTelegram._send,
    "editmessagetext": FakeTelegram._edit,
    "answercallbackquery": FakeTelegram._answer_press,
    "sendchataction": FakeTelegram._action,
    "setmycommands": FakeTelegram._action,
    "getfile": FakeTelegram._get_file,
}


def _message_id(update: _Wire) -> int | None:
    numbers = [each.get("message_id") for name, each in update.items() if name != "update_id"]
    return numbers[0] if numbers else None


def _ok(result: Any) -> Response:
    return json_response({"ok": True, "result": result})


def _error(code: int, description: str, **more: Any) -> Response:
    return json_response(
        {"ok": False, "error_code": code, "description": description, **more}, code
    )


def as_body(update: _Wire) -> bytes:
    """An update as Telegram posts it."""
    return json.dumps(update).encode()
