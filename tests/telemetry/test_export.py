"""Our own spans and metrics: off unless wanted, and then in the words of the conventions."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from sessionary import Sessionary, config
from sessionary.app import server
from sessionary.app.server import ListenAddress, serve
from sessionary.config.server import TelemetryTable, read_telemetry
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, RetryLater
from sessionary.model.message import message
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.turn import Delivery
from sessionary.telemetry import genai, otlp
from sessionary.telemetry.span import Span
from sessionary.testing.fakes import LoopbackAdapter
from tests.project.code import ROOT
from tests.support.http_server import HttpServer, Request, Response

EXAMPLE = ROOT / "sessionary.example.toml"


def table(folder: Path, text: str, **environ: str) -> TelemetryTable:
    (folder / config.FILE).write_text(text, encoding="utf-8")
    return read_telemetry(config.load(home=str(folder)), environ)


def test_it_is_off_unless_someone_wants_it(tmp_path: Path) -> None:
    assert not table(tmp_path, "").export
    assert table(tmp_path, "[telemetry]\nexport = true\n").export
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert table(tmp_path, "", **named).export
    assert not table(tmp_path, "[telemetry]\nexport = false\n", **named).export
    assert not table(tmp_path, "", OTEL_SDK_DISABLED="true", **named).export
    with pytest.raises(BadInput, match="exprot"):
        table(tmp_path, "[telemetry]\nexprot = true\n")


def test_the_example_says_the_defaults(tmp_path: Path) -> None:
    settings = table(tmp_path, EXAMPLE.read_text(encoding="utf-8"))

    assert settings == TelemetryTable()


def test_nothing_of_it_is_loaded_while_it_is_off(tmp_path: Path) -> None:
    program = (
        "import sys, sessionary, sessionary.app.server, sessionary.app.server as t\n"
        "from sessionary.app.context import open_app\n"
        "client = open_app()\n"
        "assert t.open_exporter(client) is None\n"
        "client.close()\n"
        "ours = ('opentelemetry.sdk', 'opentelemetry.exporter', 'sessionary.telemetry.instrument')\n"
        "print([name for name in sys.modules if name.startswith(ours)])\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, "SESSIONARY_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"


def test_without_the_extra_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sessionary.telemetry.instrument", None)
    (tmp_path / config.FILE).write_text("[telemetry]\nexport = true\n", encoding="utf-8")
    with (
        Sessionary(home=str(tmp_path)) as client,
        pytest.raises(BadInput, match=r"sessionary\[otel\]"),
    ):
        server.open_exporter(client.app)
    (tmp_path / config.FILE).write_text("", encoding="utf-8")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with Sessionary(home=str(tmp_path)) as client:
        assert server.open_exporter(client.app) is None


class Collector:
    """A collector on loopback that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: set[str] = set()

    async def take(self, request: Request) -> Response:
        body = otlp.unpack(request.body, request.headers.get("content-encoding"))
        assert body is not None
        if request.path == "/v1/traces":
            self.spans += otlp.read_spans(body, otlp.PROTOBUF)
        else:
            asked = ExportMetricsServiceRequest.FromString(body)
            scopes = (scope for each in asked.resource_metrics for scope in each.scope_metrics)
            self.metrics |= {metric.name for scope in scopes for metric in scope.metrics}
        return Response(200, b"", {"content-type": "application/x-protobuf"})

    def named(self, beginning: str) -> list[Span]:
        return [each for each in self.spans if each.name.startswith(beginning)]


class Talker(LoopbackAdapter):
    """A person on a platform: says something, and waits for the answer."""

    def __init__(self, text: str, *, faults: int = 0) -> None:
        super().__init__()
        self._text = text
        self._faults = faults
        self.answered = asyncio.Event()

    def attach(self, _: DeliveryServices, /) -> None:
        """Nothing is needed."""

    async def run(self, receive: Receive) -> None:
        await receive(Source("loopback", "c1", user_id="u1"), message("user", self._text))
        await asyncio.Event().wait()

    async def send(self, delivery: Delivery) -> Sent:
        if self._faults:
            self._faults -= 1
            raise RetryLater("busy", after=0.01)
        sent = await super().send(delivery)
        self.answered.set()
        return sent


async def talk(home: Path, settings: str, adapter: Talker) -> SessionHead:
    """Serve with these settings until the person has an answer; the session it is in."""
    text = f'{settings}\n[agents.parrot]\nkind = "echo"\n[access.loopback]\neveryone = true\n'
    (home / config.FILE).write_text(text, encoding="utf-8")
    stop = asyncio.Event()
    with Sessionary(home=str(home)) as client:
        adapters = {"loopback": adapter}
        serving = asyncio.create_task(
            serve(client.app, ListenAddress(port=0), adapters=adapters, stop=stop)
        )
        async with asyncio.timeout(60):
            await adapter.answered.wait()
        stop.set()
        await serving
        [head] = client.sessions().items
        return head


async def test_turns_deliveries_and_transactions_are_exported(tmp_path: Path) -> None:
    collector = Collector()
    async with HttpServer(collector.take) as server:
        settings = f'[telemetry]\nexport = true\nendpoint = "{server.url}"\n'
        head = await talk(tmp_path, settings, Talker("ahoy", faults=1))

    [turn] = collector.named("invoke_agent")
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["gen_ai.agent.name"] == "parrot"
    assert turn.attributes["gen_ai.conversation.id"] == head.id
    assert turn.attributes["sessionary.turn.state"] == "done"
    assert not any("ahoy" in str(each.attributes) for each in collector.spans)
    inside = {each.name for each in collector.spans if each.parent_id == turn.span_id}
    assert "store budgets.end" in inside
    sent = collector.named("send loopback")
    assert [each.error is None for each in sent] == [False, True]
    assert sent[0].attributes["error.type"] == "retry-later"
    assert turn.service == "sessionary"
    assert collector.metrics >= {
        "sessionary.turn.duration",
        "sessionary.delivery.duration",
        "sessionary.store.duration",
        "sessionary.store.wait",
    }


async def test_texts_are_exported_only_if_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    async with HttpServer(collector.take) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-service")
        await talk(tmp_path, "[telemetry]\ncontent = true\n", Talker("ahoy"))

    [turn] = collector.named("invoke_agent")
    span = genai.read_span(turn)
    assert turn.service == "my-service"
    assert [message.text for message in span.inputs] == ["ahoy"]
    assert [str(message.role) for message in span.outputs] == ["assistant"]


async def test_a_collector_that_is_not_there_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    settings = '[telemetry]\nexport = true\nendpoint = "http://127.0.0.1:9"\n'
    adapter = Talker("ahoy")

    head = await talk(tmp_path, settings, adapter)

    assert (head.message_count, len(adapter.sent)) == (2, 1)
