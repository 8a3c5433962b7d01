"""Programs that talk to a model, instrumented by others; run where their packages are installed.

Their exporters read where to send from the environment, as docs/telemetry.md says. Each line of the input is
one program: it runs in a process of its own, which has the libraries already, and its exit code is the answer.
"""

import contextlib
import json
import os
import sys
import traceback
from typing import Any

from openai import OpenAI
from opentelemetry import _logs, trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MODEL = "gpt-4o-mini"
CONVERSATION = "voyage"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def main(style: str, model_url: str, first: str) -> None:
    traces, logs = TracerProvider(), LoggerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    trace.set_tracer_provider(traces)
    _logs.set_logger_provider(logs)
    instrument(style)
    talk(style, OpenAI(base_url=model_url, api_key="none"))
    # Both kinds go their own ways; the test says which of them is there first.
    for provider in (traces, logs) if first == "traces" else (logs, traces):
        assert provider.force_flush(120_000)
    traces.shutdown()
    logs.shutdown()


def instrument(style: str) -> None:
    # Only one of the two can be there at a time: both wrap the same functions.
    if style == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor
    else:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    OpenAIInstrumentor().instrument()


def conversation(style: str) -> Any:
    """One turn of the conversation: its calls carry the id of their conversation."""
    if style == "openinference":
        from openinference.instrumentation import using_session

        return using_session(CONVERSATION)
    tracer = trace.get_tracer("shop")
    named = {"gen_ai.conversation.id": CONVERSATION}
    return tracer.start_as_current_span("turn", attributes=named)


def talk(style: str, client: OpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for prompt in ("How is the weather in Lisbon?", "Thank you."):
        messages.append({"role": "user", "content": prompt})
        with contextlib.ExitStack() as turn:
            turn.enter_context(conversation(style))
            answer = ask(client, messages)
            if answer.tool_calls:
                call = answer.tool_calls[0]
                found = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                messages.append(found)
                ask(client, messages)


def ask(client: OpenAI, messages: list[Any]) -> Any:
    tools: Any = [TOOL]
    done = client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    answer = done.choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    return answer


def run(output: str, environ: dict[str, str], **given: str) -> None:
    """Be a program with this environment, which says what it has to say in a file."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environ)
    main(**given)


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(**json.loads(line))
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
