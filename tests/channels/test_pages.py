"""The pages of docs/channels, followed step by step as far as loopback allows."""

import asyncio
import contextlib
import io
import json
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sessionary.channels.whatsapp.adapter import WhatsAppAdapter
from sessionary.testing.channel_world import until
from tests.load import places
from tests.load.places import Place
from tests.support.dovecot import Dovecot
from tests.support.fake_discord import FakeDiscord
from tests.support.fake_program import FakeProgram
from tests.support.fake_signal import FakeSignal
from tests.support.fake_slack import SIGNING_SECRET, FakeSlack
from tests.support.fake_telegram import FakeTelegram, as_body
from tests.support.fake_whatsapp import FakeWhatsApp
from tests.support.homeserver import MatrixPlatform
from tests.support.mailbox import MailPlatform
from tests.support.synapse import Synapse

PAGES = Path(__file__).parents[2] / "docs" / "channels"
NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
Tables = dict[str, Any]
# A program on a busy machine; shorter than the time limit of a test.
TIMEOUT_SECONDS = 240


def blocks(name: str, *, until_heading: str = "", under: str = "") -> Tables:
    """What a page says belongs into sessionary.toml, all blocks together."""
    text = (PAGES / f"{name}.md").read_text()
    if under:
        text = text.partition(f"## {under}")[2].partition("\n## ")[0]
    if until_heading:
        text = text.partition(f"## {until_heading}")[0]
    merged: Tables = {}
    for found in re.findall(r"^ *```toml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        _merge(merged, tomllib.loads(textwrap.dedent(found)))
    return merged


def _merge(into: Tables, more: Tables) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def toml(tables: Tables, path: str = "") -> str:
    """Tables as they are written down."""
    lines = [f"{name} = {json.dumps(v)}" for name, v in tables.items() if not isinstance(v, dict)]
    inner = [
        f"[{path}{name}]\n{toml(value, f'{path}{name}.')}"
        for name, value in tables.items()
        if isinstance(value, dict)
    ]
    return "\n".join([*lines, *inner])


class Reader:
    """Someone who follows a page: puts secrets where it says, and their own values into the rest."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {
            **os.environ,
            "HOME": str(home),
            "SESSIONARY_HOME": str(home / "sessionary"),
        }
        (home / "sessionary").mkdir()

    def write(self, tables: Tables, place: Place, **more: str) -> None:
        own = place.settings()
        secrets = {
            name[:-4]: place.environ[str(value)] for name, value in own.items() if _is_env(name)
        }
        table = tables["channels"][place.name]
        for name, value in list(table.items()):
            if name.endswith(("_env", "_file")):
                self._hide(name, value, {**secrets, **more}[name.rpartition("_")[0]])
            elif name in own:
                table[name] = own[name]
        table |= {name: own[name] for name in own if not _is_env(name) and name not in table}
        tables["agents"] = {"echo": {"kind": "echo"}}
        (self.home / "sessionary" / "sessionary.toml").write_text(toml(tables))

    async def runs(self, *args: str) -> tuple[int, str, str]:
        """A command; its code, its output and its complaint."""
        process = await self.begins(*args)
        try:
            out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
        finally:
            await _end(process)
        return process.returncode or 0, out.decode(), err.decode()

    async def begins(self, *args: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sessionary", *args, stdout=pipe, stderr=pipe, env=self.environ
        )

    @contextlib.asynccontextmanager
    async def serves(self) -> AsyncIterator[str]:
        """`sessionary serve`; its address."""
        process = await self.begins("serve", "--port", "0", "--json")
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), TIMEOUT_SECONDS)
            assert line, (await process.communicate())[1].decode()
            yield json.loads(line)["address"]
        finally:
            process.terminate()
            await process.communicate()

    def _hide(self, name: str, value: str, secret: str) -> None:
        if name.endswith("_env"):
            self.environ[value] = secret
            return
        path = self.home / value.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{secret}\n")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that has not ended by itself."""
    if process.returncode is None:
        process.kill()
        await process.communicate()


def _is_env(name: str) -> bool:
    return name.endswith("_env")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


@contextlib.asynccontextmanager
async def place_of(name: str, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        match name:
            case "telegram":
                yield places.Telegram(await enter(FakeTelegram()), 1)
            case "discord":
                yield places.Discord(await enter(FakeDiscord()), 1)
            case "slack":
                yield places.Slack(await enter(FakeSlack()), 1)
            case "whatsapp":
                yield places.WhatsApp(await enter(FakeWhatsApp()), 1)
            case "signal":
                yield places.Signal(await enter(FakeSignal("http")), 1)
            case "webhook":
                yield places.Program(await enter(FakeProgram()), 1)
            case "email":
                dovecot: Dovecot = request.getfixturevalue("dovecot")
                yield places.Mail(await enter(MailPlatform(dovecot)), 1)
            case "matrix":
                synapse: Synapse = request.getfixturevalue("synapse")
                yield places.Matrix(await enter(MatrixPlatform(synapse)), 1)
            case _:
                raise AssertionError(f"docs/channels/{name}.md is a page of no channel")


@pytest.mark.parametrize("name", NAMES)
async def test_the_steps_of_a_page_end_in_a_check_that_succeeds(
    reader: Reader, name: str, request: pytest.FixtureRequest
) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert f"sessionary channels check {name}" in page
    async with place_of(name, request) as place:
        reader.write(blocks(name, until_heading="Settings"), place)

        code, out, err = await reader.runs("channels", "check", name)

    assert (code, err) == (0, ""), err
    assert out.count("\n") == 1, out


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("signal", "webhook")])
async def test_a_wrong_secret_is_one_line_that_says_what_to_do(
    reader: Reader, name: str, request: pytest.FixtureRequest
) -> None:
    async with place_of(name, request) as place:
        place.environ = dict.fromkeys(place.environ, "123:wrong")
        reader.write(blocks(name, until_heading="Settings"), place)

        code, out, err = await reader.runs("channels", "check", name)

    assert (code, out) == (1, "")
    assert err.count("\n") == 1, err
    assert "123:wrong" not in err
    assert any(word in err for word in ("Make", "make", "Get", "put the new", "renew", "correct"))


async def test_telegram_posts_to_the_address_that_its_page_names(
    reader: Reader, request: pytest.FixtureRequest
) -> None:
    async with FakeTelegram() as fake:
        place = places.Telegram(fake, 1)
        tables = blocks("telegram", under="Webhook")
        tables["access"] = {"telegram": {"allow": ["7"]}}
        reader.write(tables, place, webhook_secret="a-webhook-secret")
        async with reader.serves() as address:
            await until(lambda: bool(fake.webhook.get("url")), "the webhook address was set")
            message = fake.message("hello", number=1, chat={"id": 7, "type": "private"})
            headers = {"X-Telegram-Bot-Api-Secret-Token": fake.webhook["secret_token"]}
            body = as_body({"update_id": 1, "message": message})

            status, _ = await posted(address, fake.webhook["url"], body, headers)

            assert status == 200
            await until(lambda: fake.seen() == ["hello"], "an answer")


async def test_slack_posts_to_the_address_that_its_page_names(reader: Reader) -> None:
    async with FakeSlack() as fake:
        place = places.Slack(fake, 1)
        tables = blocks("slack", until_heading="With")
        # «write `signing_secret_file` … instead of `app_token_file`»
        del tables["channels"]["slack"]["app_token_file"]
        tables["channels"]["slack"]["signing_secret_file"] = "~/signing-secret"
        tables["access"]["slack"]["allow"] = ["U0ADA"]
        url = re.findall(r"`(https://\S+/webhook)`", (PAGES / "slack.md").read_text())[0]
        host = re.findall(r"https://([^/]+)/", url)[0]
        tables["web"] = {"allowed_hosts": [host]}
        reader.write(tables, place, signing_secret=SIGNING_SECRET)
        async with reader.serves() as address:

            async def intake(headers: Any, body: bytes) -> int | str:
                status, text = await posted(address, url, body, headers)
                return text or status

            proof = {"type": "url_verification", "challenge": "prove it"}
            assert await fake.posts_to(intake, proof, secret=SIGNING_SECRET) == "prove it"
            fake.by_post, fake.webhook_handler = True, intake
            await fake.writes("hello", number=1)
            await until(lambda: len(fake.posts) == 1, "an answer")


async def test_whatsapp_posts_to_the_address_that_its_page_names(reader: Reader) -> None:
    async with FakeWhatsApp() as fake:
        place = places.WhatsApp(fake, 1)
        tables = blocks("whatsapp", until_heading="Settings")
        tables["access"]["whatsapp"]["allow"] = [fake.known]
        url = re.findall(r"`(https://\S+/webhook)`", (PAGES / "whatsapp.md").read_text())[0]
        reader.write(tables, place)
        async with reader.serves() as address, aiohttp.ClientSession() as session:
            query = {"hub.mode": "subscribe", "hub.verify_token": "verify-me"}
            query["hub.challenge"] = "42"
            path, headers = path_of(url), {"Host": host_of(url)}
            async with session.get(address + path, params=query, headers=headers) as answer:
                assert (answer.status, await answer.text()) == (200, "42")
            large = io.BytesIO(bytes(WhatsAppAdapter.webhook_bytes + 1))
            async with session.post(address + path, data=large, headers=headers) as answer:
                assert answer.status == 413
            fake.current = ServerWebhook(address, url)
            await fake.says("hello", number=1)
            await until(lambda: fake.seen() == ["hello"], "an answer")


async def test_the_program_of_the_webhook_page_is_answered(reader: Reader, tmp_path: Path) -> None:
    page = (PAGES / "webhook.md").read_text()
    async with FakeProgram() as fake:
        reader.write(blocks("webhook", until_heading="Bodies"), places.Program(fake, 1))
        secret = next(reader.home.glob(".config/sessionary/*"))
        (tmp_path / "hook-secret").write_bytes(secret.read_bytes())
        code = textwrap.dedent(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
        async with reader.serves() as address:
            program = code.replace("http://127.0.0.1:8741", address)
            assert program != code
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, cwd=tmp_path
            )
            assert await process.wait() == 0
            await until(lambda: bool(fake.called), "an answer")

    assert (fake.called[0]["chat_id"], fake.called[0]["text"]) == ("alerts", "Disk is full")


class ServerWebhook:
    """Posts to a server as if through the proxy that a page asks for."""

    def __init__(self, address: str, url: str) -> None:
        self._address, self._url = address, url

    async def handle_webhook(self, headers: Any, body: bytes) -> int:
        return (await posted(self._address, self._url, body, headers))[0]


async def posted(address: str, url: str, body: bytes, headers: Any) -> tuple[int, str]:
    """Post as a proxy passes it on: the path and the name of the public address, on loopback."""
    given = {"content-type": "application/json", **headers, "Host": host_of(url)}
    async with (
        aiohttp.ClientSession() as session,
        session.post(address + path_of(url), data=body, headers=given) as answer,
    ):
        return answer.status, await answer.text()


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def host_of(url: str) -> str:
    return url.split("/")[2]
