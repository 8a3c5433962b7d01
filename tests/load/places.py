"""Eight platforms full of people, each as its own side sees it: who writes, and who read what."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp

from tests.support import fake_discord, fake_signal, fake_slack, fake_telegram, fake_whatsapp
from tests.support.fake_discord import FakeDiscord
from tests.support.fake_program import SECRET, FakeProgram
from tests.support.fake_signal import FakeSignal
from tests.support.fake_slack import FakeSlack
from tests.support.fake_telegram import FakeTelegram
from tests.support.fake_whatsapp import FakeWhatsApp
from tests.support.homeserver import MatrixPlatform
from tests.support.mailbox import DOMAIN, MailPlatform

ReadMessage = tuple[str, str]
_NOT_TAKEN = 503
Settings = dict[str, Any]


class Place(Protocol):
    """A platform that many people write on. Secrets of its settings stand in `environ`."""

    name: str
    people: list[str]
    environ: dict[str, str]

    def settings(self) -> Settings:
        """The table `[channels.name]`."""

    async def says(self, person: str, text: str, number: int) -> None:
        """Someone writes to the bot."""

    def newly_read(self) -> list[ReadMessage]:
        """Who has read what since this was last asked."""


class ServerWebhook:
    """The webhook of a channel of a server that runs: posts go there over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, address: str, name: str) -> None:
        self._session = session
        self._url = f"{address}/api/v1/channels/{name}/webhook"

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Post; the status of the answer."""
        given = {"content-type": "application/json", **headers}
        try:
            async with self._session.post(self._url, data=body, headers=given) as answer:
                await answer.read()
                return answer.status
        except aiohttp.ClientConnectionError:
            return _NOT_TAKEN  # the platform posts it again


class _Since:
    """What has come to the end of a list since the last look."""

    def __init__(self, look: Callable[[int], Iterable[ReadMessage]]) -> None:
        self._look = look
        self._seen = 0

    def __call__(self) -> list[ReadMessage]:
        found = list(self._look(self._seen))
        self._seen += len(found)
        return found


class Telegram:
    name = "telegram"

    def __init__(self, fake: FakeTelegram, count: int) -> None:
        self.people = [str(10_000 + index) for index in range(count)]
        self.environ = {"LOAD_TELEGRAM": fake_telegram.TOKEN}
        self._fake = fake
        self.newly_read = _Since(
            lambda seen: [(m["chat"], m["shown"]) for m in list(fake.messages.values())[seen:]]
        )

    def settings(self) -> Settings:
        return {"token_env": "LOAD_TELEGRAM", "base_url": self._fake.base_url.removesuffix("/bot")}

    async def says(self, person: str, text: str, number: int) -> None:
        await self._fake.says(text, number=number, person=person)


class Discord:
    name = "discord"

    def __init__(self, fake: FakeDiscord, count: int) -> None:
        self.people = [str(110_000_000_000_000_100 + index) for index in range(count)]
        self.environ = {"LOAD_DISCORD": fake_discord.TOKEN}
        self._fake = fake
        self.newly_read = _Since(lambda seen: [(p.channel[1:], p.text) for p in fake.posts[seen:]])

    def settings(self) -> Settings:
        where = {"base_url": self._fake.rest, "gateway_url": self._fake.gateway}
        return {"token_env": "LOAD_DISCORD", **where}

    async def says(self, person: str, text: str, number: int) -> None:
        while not self._fake.sockets:  # noqa: ASYNC110 - Discord keeps nothing for who is not there
            await asyncio.sleep(0.05)
        await self._fake.writes(text, number=900_000 + number, author=person)


class Slack:
    name = "slack"

    def __init__(self, fake: FakeSlack, count: int) -> None:
        self.people = [f"U1{index:06d}" for index in range(count)]
        self.environ = {"LOAD_SLACK": fake_slack.TOKEN, "LOAD_SLACK_APP": fake_slack.APP_TOKEN}
        self._fake = fake
        self.newly_read = _Since(
            lambda seen: [(f"U{p.channel[1:]}", p.text) for p in fake.posts[seen:]]
        )

    def settings(self) -> Settings:
        keys = {"token_env": "LOAD_SLACK", "app_token_env": "LOAD_SLACK_APP"}
        return {**keys, "base_url": self._fake.api}

    async def says(self, person: str, text: str, number: int) -> None:
        await self._fake.writes(text, number=number, user=person)


class WhatsApp:
    name = "whatsapp"

    def __init__(self, fake: FakeWhatsApp, count: int) -> None:
        self.people = [str(16_505_560_000 + index) for index in range(count)]
        self.environ = {
            "LOAD_WA": fake_whatsapp.TOKEN,
            "LOAD_WA_SECRET": fake_whatsapp.APP_SECRET,
            "LOAD_WA_VERIFY": fake_whatsapp.VERIFY_TOKEN,
        }
        self.fake = fake
        self.newly_read = _Since(
            lambda seen: [(p["to"], p["text"]["body"]) for p in fake.posts[seen:]]
        )

    def settings(self) -> Settings:
        keys = {"token_env": "LOAD_WA", "app_secret_env": "LOAD_WA_SECRET"}
        where = {"phone_number_id": fake_whatsapp.NUMBER_ID, "base_url": self.fake.url}
        return {**keys, "verify_token_env": "LOAD_WA_VERIFY", **where}

    async def says(self, person: str, text: str, number: int) -> None:
        await self.fake.says(text, number=number, person=person)


class Signal:
    name = "signal"

    def __init__(self, fake: FakeSignal, count: int) -> None:
        self.people = [str(4000 + index) for index in range(count)]
        self.environ: dict[str, str] = {}
        self._fake = fake
        self.newly_read = _Since(
            lambda seen: [
                (str(int(s["recipient"][0][-12:])), s["message"]) for s in fake.sent[seen:]
            ]
        )

    def settings(self) -> Settings:
        return {"account": fake_signal.ACCOUNT, "address": self._fake.address}

    async def says(self, person: str, text: str, number: int) -> None:
        await self._fake.says(text, number=number, person=person)


class Program:
    name = "webhook"

    def __init__(self, fake: FakeProgram, count: int) -> None:
        self.people = [f"room-{index}" for index in range(count)]
        self.environ = {"LOAD_HOOK": SECRET.reveal()}
        self.fake = fake
        self.newly_read = _Since(
            lambda seen: [(c["chat_id"], c["text"]) for c in fake.called[seen:]]
        )

    def settings(self) -> Settings:
        return {"secret_env": "LOAD_HOOK", "call_back": self.fake.settings.call_back}

    async def says(self, person: str, text: str, number: int) -> None:
        body = self.fake.body(text, number=number, person=person, chat=person)
        self.fake.poster.post(number, body)


class Mail:
    name = "email"

    def __init__(self, fake: MailPlatform, count: int) -> None:
        self.people = [f"person-{index}" for index in range(count)]
        self.environ = {"LOAD_MAIL": fake.password}
        self._fake = fake
        self.newly_read = _Since(
            lambda seen: [(t.to.partition("@")[0], t.text) for t in fake.sent[seen:]]
        )

    def settings(self) -> Settings:
        return {**self._fake.settings, "password_env": "LOAD_MAIL"}

    async def says(self, person: str, text: str, number: int) -> None:
        await self._fake.says(text, number=number, person=person)


class Matrix:
    """Everyone has an account and a room; what a room holds in the end is asked of the server."""

    name = "matrix"

    def __init__(self, platform: MatrixPlatform, count: int) -> None:
        self._platform = platform
        self._tokens: dict[str, str] = {}
        for index in range(count):
            _, token = platform.synapse.register(f"load-{index}-{platform.bot[5:13]}")
            self._tokens[platform.make_room(token)] = token
        self.people = list(self._tokens)
        self.environ = {"LOAD_MATRIX": platform.token}
        self.newly_read = _Since(lambda seen: platform.taken[seen:])

    def settings(self) -> Settings:
        return {"homeserver": self._platform.url, "token_env": "LOAD_MATRIX"}

    async def says(self, person: str, text: str, number: int) -> None:
        content = {"msgtype": "m.text", "body": text}
        await asyncio.to_thread(
            self._platform.put, content, room=person, token=self._tokens[person]
        )

    def written(self, person: str) -> list[str]:
        """What the bot has written in someone's room, as the homeserver has it."""
        path = f"/_matrix/client/v3/rooms/{quote(person)}/messages?dir=f&limit=500"
        found = self._platform.synapse.call("GET", path, token=self._tokens[person])["chunk"]
        ours = [each for each in found if each["sender"] == self._platform.bot]
        return [each["content"]["body"] for each in ours if each["type"] == "m.room.message"]


def toml(places: Iterable[Place]) -> str:
    """A configuration in which all these channels are on, for everyone."""
    lines = ['[agents.echo]\nkind = "echo"\n']
    for place in places:
        values = [f"{name} = {json.dumps(value)}" for name, value in place.settings().items()]
        lines += [f"[channels.{place.name}]", *values, f"[access.{place.name}]", "everyone = true"]
    return "\n".join(lines) + "\n"


__all__ = ("DOMAIN", "Place", "ServerWebhook", "toml")
