"""A platform asks whether the address is ours before it posts there."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.engine.ports import Challenge
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.web.app import create_app
from sessionary.web.context import WebContext

HOOK = "/api/v1/channels/sample/webhook"


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


async def test_a_caller_with_the_secret_gets_the_answer_as_plain_text(store: Store) -> None:
    answer = await _asked(store, _echo, word="open", challenge="<b>1158201444</b>")

    assert (answer.status_code, answer.text) == (200, "<b>1158201444</b>")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("query", [{"word": "sesame", "challenge": "1"}, {}])
async def test_a_caller_without_the_secret_gets_nothing(
    store: Store, query: dict[str, str]
) -> None:
    answer = await _asked(store, _echo, **query)

    assert (answer.status_code, answer.text) == (403, "")


async def test_a_very_long_challenge_is_not_given_back(store: Store) -> None:
    assert (await _asked(store, _echo, word="open", challenge="x" * 2000)).status_code == 403


async def test_a_channel_without_a_proof_has_nothing_to_get(store: Store) -> None:
    assert (await _asked(store, None)).status_code in (404, 405)


def _echo(query: Mapping[str, str]) -> str | None:
    return query.get("challenge") if query.get("word") == "open" else None


async def _asked(store: Store, proof: Challenge | None, **query: str) -> httpx2.Response:
    async def webhook(headers: Any, raw: bytes) -> int:
        return 200

    challenges = {} if proof is None else {"sample": proof}
    parts = WebContext(store, webhooks={"sample": webhook}, challenges=challenges)
    transport = httpx2.ASGITransport(create_app(parts))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(HOOK, params=query)


async def test_a_text_that_a_platform_wants_to_read_back_is_the_answer(store: Store) -> None:
    async def webhook(headers: Mapping[str, str], raw: bytes) -> int | str:
        return raw.decode()

    parts = WebContext(store, webhooks={"sample": webhook})
    transport = httpx2.ASGITransport(create_app(parts))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(HOOK, content=b"3eZbrw1a")

    assert (answer.status_code, answer.text) == (200, "3eZbrw1a")
    assert answer.headers["content-type"].startswith("text/plain")
