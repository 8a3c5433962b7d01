"""Instrumentations that others publish, with the flags that docs/telemetry.md names."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sessionary.actions.sessions import read, routing
from sessionary.model.access import Scope
from sessionary.model.session import SessionHead
from sessionary.model.source import Source, key_for
from tests.support.environment import installed
from tests.support.external_server import ServerUnavailable
from tests.support.model_server import Call, ModelServer, Reply, Tokens
from tests.telemetry.conftest import IngestStore
from tests.telemetry.test_endpoint import EXPORT_SECONDS, endpoint, store  # noqa: F401
from tests.web.conftest import Served

ROOT = Path(__file__).parents[2]
# Not in the lock: they want older versions of openai and of OpenTelemetry's helpers.
WANTED = (
    "httpx",
    "openai>=2.8,<3",
    "openinference-instrumentation-openai>=0.1.60,<0.2",
    "opentelemetry-exporter-otlp-proto-http>=1.38,<2",
    "opentelemetry-instrumentation-openai-v2==2.4b0",
    "opentelemetry-sdk>=1.38,<2",
    "opentelemetry-util-genai>=0.4b0,<0.5",
)
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
LATEST = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
FLAGS: dict[str, dict[str, str]] = {
    "events in the log": {CAPTURE: "true"},
    "attributes of spans": {**LATEST, CAPTURE: "span_only"},
    "one event in the log": {**LATEST, CAPTURE: "event_only"},
    "both": {**LATEST, CAPTURE: "span_and_event"},
    "openinference": {},
}


Programs = subprocess.Popen[str]


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """Starts instrumented programs: loading their libraries takes longer than what they do."""
    try:
        python = installed(ROOT / ".tools", "instrumentations", WANTED)
    except ServerUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    with subprocess.Popen(
        [python, Path(__file__).parent / "programs" / "instrumented.py"],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started


async def run(
    endpoint: Served,  # noqa: F811
    programs: Programs,
    style: str,
    flags: dict[str, str],
    first: str,
    output: Path,
) -> None:
    token, _ = await endpoint.token(Scope.WRITE)
    async with ModelServer() as models:
        models.will(
            Reply(
                calls=(Call("weather", {"city": "Lisbon"}, id="call_1"),),
                tokens=Tokens(100, 0, output=1),
            ),
            Reply("It is sunny.", tokens=Tokens(200, 0, output=2)),
            Reply("You are welcome.", tokens=Tokens(300, 0, output=3)),
        )
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint.address,
            "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization={quote(f'Bearer {token}')}",
            # Nothing is sent before the program asks for it, and a busy machine may take its time.
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
            "OTEL_BLRP_SCHEDULE_DELAY": "600000",
            "OTEL_EXPORTER_OTLP_TIMEOUT": str(EXPORT_SECONDS),
            **flags,
        }
        given = {"style": style, "model_url": models.openai_url, "first": first}
        wanted = {"output": str(output), "environ": environ, **given}
        assert programs.stdin is not None
        assert programs.stdout is not None
        programs.stdin.write(json.dumps(wanted) + "\n")
        programs.stdin.flush()
        code = await asyncio.to_thread(programs.stdout.readline)
    printed = await asyncio.to_thread(output.read_text)
    assert (code, printed) == ("0\n", "")


def only(target: IngestStore) -> SessionHead:
    """The session that the conversation's name leads to, which no other is beside.

    One that events had begun before their conversation was known is in the trash.
    """
    key = key_for(Source("otel", "voyage"), profile="main")
    [head] = [each for each in target.heads() if each.trashed_at is None]
    assert target.store.read(routing.get_current, key).result() == head
    return head


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", ["traces", "logs"])
@pytest.mark.parametrize("style", FLAGS)
async def test_the_flags_of_the_guide_give_the_whole_conversation(
    endpoint: Served,  # noqa: F811
    programs: Programs,
    style: str,
    first: str,
    tmp_path: Path,
) -> None:
    await run(endpoint, programs, style, FLAGS[style], first, tmp_path / "output")

    target = IngestStore(endpoint.store)
    head = only(target)
    assert target.texts(head) == [
        "u:How is the weather in Lisbon?",
        "a:",
        "t:",
        "a:It is sunny.",
        "u:Thank you.",
        "a:You are welcome.",
    ]
    assert head.tool_call_count == 1
    assert (head.usage.calls, head.usage.input_tokens, head.usage.output_tokens) == (3, 600, 6)
    assert head.usage.cost_microusd
    context = await endpoint.store.read(read.read_context, head.id, profile="main")
    arguments = context[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"city": "Lisbon"}
    assert context[2]["content"] == "sunny"


@pytest.mark.timeout(900)
async def test_without_the_flags_the_calls_are_counted(
    endpoint: Served,  # noqa: F811
    programs: Programs,
    tmp_path: Path,
) -> None:
    await run(endpoint, programs, "events in the log", {}, "traces", tmp_path / "output")

    head = only(IngestStore(endpoint.store))
    assert (head.usage.calls, head.usage.input_tokens) == (3, 600)
    assert head.message_count >= 2
