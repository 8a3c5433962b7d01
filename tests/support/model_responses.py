"""How the answers of the fake model server look in OpenAI's Responses format."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.model_script import CREATED, Call, Piece, Reply, Tokens, named_event, pieces


def responses_stream(reply: Reply, *, model: str, response_id: str) -> Iterator[Piece]:
    """The server-sent events of one response."""
    number = 0

    def event(name: str, **data: Any) -> str:
        nonlocal number
        number += 1
        return named_event(name, sequence_number=number - 1, **data)

    begun = _response(reply, [], model=model, response_id=response_id, status="in_progress")
    yield Piece(event("response.created", response=begun))
    yield Piece(event("response.in_progress", response=begun))
    output = _output(reply, response_id)
    for index, item in enumerate(output):
        at = {"output_index": index, "item_id": item["id"]}
        yield Piece(event("response.output_item.added", output_index=index, item=_begun(item)))
        match item["type"]:
            case "reasoning":
                part = {"type": "summary_text", "text": ""}
                begins = {"summary_index": 0, "part": part, **at}
                yield Piece(event("response.reasoning_summary_part.added", **begins))
                for portion in pieces(reply.reasoning):
                    yield Piece(
                        event(
                            "response.reasoning_summary_text.delta",
                            summary_index=0,
                            delta=portion,
                            **at,
                        ),
                        has_text=True,
                    )
            case "message":
                part = item["content"][0] | {"text": ""}
                begins = {"content_index": 0, "part": part, **at}
                yield Piece(event("response.content_part.added", **begins))
                for portion in pieces(reply.text):
                    delta = {"content_index": 0, "delta": portion, "logprobs": []}
                    yield Piece(event("response.output_text.delta", **delta, **at), has_text=True)
            case "function_call":
                text = item["arguments"]
                for portion in (text[: len(text) // 2], text[len(text) // 2 :]):
                    yield Piece(
                        event("response.function_call_arguments.delta", delta=portion, **at)
                    )
        yield Piece(event("response.output_item.done", output_index=index, item=item))
    done = responses_whole(reply, model=model, response_id=response_id)
    yield Piece(event("response.completed", response=done))


def responses_whole(reply: Reply, *, model: str, response_id: str) -> dict[str, Any]:
    """The same response, not streamed."""
    output = _output(reply, response_id)
    return _response(reply, output, model=model, response_id=response_id, status="completed")


def responses_too_long(tokens: int, window: int) -> dict[str, Any]:
    """The body of the error for a request that is longer than the window; it names no numbers."""
    message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    named = {"type": "invalid_request_error", "param": "input"}
    return {"error": {"message": message, **named, "code": "context_length_exceeded"}}


def responses_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages in a request, in the same shape as for the other formats."""
    given = body.get("input", [])
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found = []
    for item in given:
        if str(item.get("type", "")).endswith("_output"):
            found.append({"role": "tool", "content": item.get("output")})
        elif "role" in item:
            found.append({"role": item["role"], "content": item.get("content")})
    return found


def _output(reply: Reply, response_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{response_id}", "summary": summary})
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{response_id}", "role": "assistant"}
        items.append(message | {"status": "completed", "content": [text]})
    return items + [_call(call, f"fc_{response_id}_{at}") for at, call in enumerate(reply.calls)]


def _call(call: Call, id: str) -> dict[str, Any]:
    named = {"id": id, "call_id": call.id, "name": call.name, "status": "completed"}
    return {"type": "function_call", "arguments": call.text} | named


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    """An output item before any of its content was streamed."""
    empty = {"content": [], "summary": [], "arguments": ""}
    known = {name: empty.get(name, value) for name, value in item.items()}
    return known | ({"status": "in_progress"} if "status" in item else {})


def _response(
    reply: Reply, output: list[dict[str, Any]], *, model: str, response_id: str, status: str
) -> dict[str, Any]:
    made = {
        "id": f"resp_{response_id}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "model": model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }
    if status != "completed" or reply.tokens is None:
        return made | {"usage": None}
    return made | {"usage": _usage(reply.tokens)}


def _usage(tokens: Tokens) -> dict[str, Any]:
    sent = tokens.fresh + tokens.cache_read + tokens.cache_write
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": sent + tokens.output,
    }
