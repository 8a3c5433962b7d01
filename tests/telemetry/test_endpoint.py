"""`POST /v1/traces` on a real server, with the real SDK's exporter."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from sessionary.actions import verify
from sessionary.model.access import Scope
from sessionary.store.database import Store
from sessionary.store.tables import entries
from sessionary.telemetry import otlp
from tests.store.conftest import opened
from tests.support.model_server import Call, ModelServer, Reply, Tokens
from tests.telemetry.conftest import IngestStore, span
from tests.telemetry.test_otlp import as_json
from tests.web.conftest import Served, served

PATH = "/v1/traces"
KINDS = ["sqlite", "postgres"]
# The exporter drops what the server has not answered in this time; its default is 10 s.
EXPORT_SECONDS = 120


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = (
        f"sqlite:///{tmp_path}/sessionary.db"
        if request.param == "sqlite"
        else request.getfixturevalue("emptied")()
    )
    made = opened(url)
    yield made
    made.close()


@pytest.fixture
async def endpoint(store: Store) -> AsyncIterator[Served]:
    target = IngestStore(store)
    ingest = target.ingest
    async with served(
        store, with_engine=False, traces=ingest.ingest_spans, logs=ingest.ingest_logs
    ) as running:
        yield running


async def post(endpoint: Served, body: bytes, *, token: str | None = None, **headers: str) -> Any:
    given = {"Content-Type": "application/json", **headers}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    return await endpoint.http.post(endpoint.address + PATH, content=body, headers=given)


def provider(endpoint: Served, token: str) -> TracerProvider:
    exporter = OTLPSpanExporter(
        endpoint=endpoint.address + PATH,
        headers={"authorization": f"Bearer {token}"},
        compression=Compression.Gzip,
        timeout=EXPORT_SECONDS,
    )
    made = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


async def test_an_instrumented_agent_needs_no_adapter(endpoint: Served) -> None:
    token, _ = await endpoint.token(Scope.WRITE)
    tracing = provider(endpoint, token)
    async with ModelServer() as models, AsyncExitStack() as ending:
        models.will(
            Reply(calls=(Call("look", {"place": "harbour"}),), tokens=Tokens(100, 10, output=1)),
            Reply("It is at the harbour.", tokens=Tokens(200, 20, output=2)),
            Reply("You are welcome.", tokens=Tokens(300, 30, output=3)),
        )
        http = await ending.enter_async_context(httpx2.AsyncClient(timeout=60))
        provided = OpenAIProvider(base_url=models.openai_url, api_key="k", http_client=http)
        model = OpenAIChatModel("gpt-4o", provider=provided)
        agent = Agent(model, name="guide", instructions="Be brief.")
        agent.instrument = InstrumentationSettings(tracer_provider=tracing)

        @agent.tool_plain
        def look(place: str) -> str:
            """Look somewhere."""
            return f"found in the {place}"

        first = await agent.run("where is the ship?", conversation_id="voyage")
        await agent.run("thanks", message_history=first.all_messages(), conversation_id="voyage")
    # Shutting down waits for 30 s only, and drops what is not sent by then.
    assert await asyncio.to_thread(tracing.force_flush, EXPORT_SECONDS * 1000)
    await asyncio.to_thread(tracing.shutdown)

    target = IngestStore(endpoint.store)
    assert target.texts() == [
        "u:where is the ship?",
        "a:",
        "t:",
        "a:It is at the harbour.",
        "u:thanks",
        "a:You are welcome.",
    ]
    [head] = target.heads()
    assert head.source.chat_id == "voyage"
    used = head.usage
    assert (used.calls, used.input_tokens, used.output_tokens) == (3, 600, 6)
    assert used.cache_read_tokens == 60
    assert used.cost_microusd
    assert target.context()[2]["content"] == "found in the harbour"


async def test_only_a_token_with_write_scope_is_accepted(
    endpoint: Served,
) -> None:
    body = as_json([span(["a"], ["b"])])
    reader, _ = await endpoint.token(Scope.READ)
    writer, _ = await endpoint.token(Scope.WRITE)

    assert (await post(endpoint, body)).status_code == 401
    assert (await post(endpoint, body, token="guessed")).status_code == 401
    assert (await post(endpoint, body, token=reader)).status_code == 403
    assert IngestStore(endpoint.store).heads() == []
    response = await post(endpoint, body, token=writer)
    assert (response.status_code, response.json()) == (200, {})
    assert IngestStore(endpoint.store).texts() == ["u:a", "a:b"]


async def test_spans_go_into_the_profile_of_the_token(endpoint: Served) -> None:
    token, _ = await endpoint.token(Scope.WRITE, profile="other")
    await post(endpoint, as_json([span(["a"], ["b"])]), token=token)

    assert IngestStore(endpoint.store).heads() == []
    assert len((await (await endpoint.client(profile="other")).get("/sessions"))["items"]) == 1


async def test_rubbish_is_refused_in_words_and_the_server_goes_on(
    endpoint: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MAX_BYTES", 1_000_000)
    token, _ = await endpoint.token(Scope.WRITE)
    good = as_json([span(["a"], ["b"])])
    proto = {"Content-Type": "application/x-protobuf"}
    attempts: list[tuple[bytes, dict[str, str], int]] = [
        (b"{", {}, 400),
        (b"\xff\xff\xff", proto, 400),
        (good, proto, 400),
        (good, {"Content-Encoding": "gzip"}, 400),
        (good, {"Content-Encoding": "br"}, 400),
        (good, {"Content-Type": "text/plain"}, 415),
        (b"[" * 100_000, {}, 400),
        (gzip.compress(b"\x00" * 2_000_000), {"Content-Encoding": "gzip"}, 413),
    ]
    for body, headers, status in attempts:
        response = await post(endpoint, body, token=token, **headers)
        assert response.status_code == status, (body[:20], response.text)
        assert response.json()["type"].startswith("urn:sessionary:problem:")
        assert "Traceback" not in response.text
    assert IngestStore(endpoint.store).heads() == []

    response = await post(
        endpoint, gzip.compress(good), token=token, **{"Content-Encoding": "gzip"}
    )
    assert response.status_code == 200


async def test_a_conversation_that_cannot_be_kept_does_not_hold_up_the_others(
    endpoint: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "MAX_BODY", 100_000)
    token, _ = await endpoint.token(Scope.WRITE)
    huge = span(["x" * 200_000], ["b"], trace="1" * 32)
    fine = span(["a"], ["b"], trace="2" * 32)

    body = gzip.compress(as_json([huge, fine]), 1)
    response = await post(endpoint, body, token=token, **{"Content-Encoding": "gzip"})

    assert response.status_code == 200
    assert json.loads(response.content)["partialSuccess"]["rejectedSpans"] == "1"
    assert IngestStore(endpoint.store).texts() == ["u:a", "a:b"]


async def test_absurd_usage_refuses_its_conversation_and_no_other(endpoint: Served) -> None:
    token, _ = await endpoint.token(Scope.WRITE)
    absurd = [
        span(
            [f"q{n}"],
            [f"a{n}"],
            at=n,
            gen_ai__conversation__id="absurd one",
            gen_ai__usage__input_tokens=2**53 - 1,
        )
        for n in range(12)
    ]
    sane = span(
        ["q"], ["a"], gen_ai__conversation__id="sane one", gen_ai__usage__input_tokens=1_000_000
    )

    response = await post(endpoint, as_json([*absurd, sane]), token=token)

    assert response.status_code == 200
    partial = response.json()["partialSuccess"]
    assert partial["rejectedSpans"] == "12"
    assert "absurd one" in partial["errorMessage"]
    assert "input_tokens" in partial["errorMessage"]
    target = IngestStore(endpoint.store)
    [head] = target.heads()
    assert (head.source.chat_id, head.usage.input_tokens) == ("sane one", 1_000_000)
    assert verify.verify(endpoint.store).broken == ()


async def test_many_exporters_at_once_lose_and_double_nothing(endpoint: Served) -> None:
    token, _ = await endpoint.token(Scope.WRITE)
    spans = [
        span([f"q{n}"], [f"a{n}"], at=n, gen_ai__conversation__id=f"c{n % 3}") for n in range(30)
    ]
    bodies = [as_json([each]) for each in spans] * 2
    responses = await asyncio.gather(*(post(endpoint, body, token=token) for body in bodies))

    assert {each.status_code for each in responses} == {200}
    target = IngestStore(endpoint.store)
    texts = [text for head in target.heads() for text in target.texts(head)]
    assert sorted(texts) == sorted([f"u:q{n}" for n in range(30)] + [f"a:a{n}" for n in range(30)])
    assert len(target.heads()) == 3


async def test_without_ingestion_there_is_no_endpoint(tmp_path: Path) -> None:
    store = opened(f"sqlite:///{tmp_path}/closed.db")
    async with served(store, with_engine=False) as running:
        token, _ = await running.token(Scope.WRITE)
        response: httpx2.Response = await post(running, b"{}", token=token)
    store.close()

    assert response.status_code in (404, 405)
