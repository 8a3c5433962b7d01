"""How the answers of the fake model server look in Gemini's format, and what it was asked there."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.model_script import Piece, Refusal, Reply, Tokens, data_event, pieces


def gemini_whole(reply: Reply, *, model: str, response_id: str) -> dict[str, Any]:
    """One answer, not streamed."""
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"text": reply.reasoning, "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    for call in reply.calls:
        given = {"id": call.id, "name": call.name, "args": json.loads(call.text)}
        parts.append({"functionCall": given})
    tokens = reply.tokens or Tokens(fresh=0, output=0)
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": tokens.fresh + tokens.cache_read,
            "cachedContentTokenCount": tokens.cache_read,
            "candidatesTokenCount": tokens.output - tokens.reasoning,
            "thoughtsTokenCount": tokens.reasoning,
            "totalTokenCount": tokens.fresh + tokens.cache_read + tokens.output,
        },
        "modelVersion": model,
        "responseId": response_id,
    }


def gemini_stream(reply: Reply, *, model: str, response_id: str) -> Iterator[Piece]:
    """The same answer as server-sent events: each has some parts, the last one the tokens."""
    whole = gemini_whole(reply, model=model, response_id=response_id)
    named = {"modelVersion": model, "responseId": response_id}
    for part in whole["candidates"][0]["content"]["parts"]:
        texts = pieces(part["text"]) if "text" in part else []
        for portion in [part | {"text": text} for text in texts] or [part]:
            content = {"role": "model", "parts": [portion]}
            yield Piece(
                data_event({"candidates": [{"content": content, "index": 0}]} | named),
                has_text="text" in part,
            )
    last = {
        "content": {"role": "model", "parts": [{"text": ""}]},
        "finishReason": "STOP",
        "index": 0,
    }
    yield Piece(data_event(whole | {"candidates": [last]}))


def gemini_error(refusal: Refusal) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"code": refusal.status, "message": refusal.message, "status": "FAILED"}}


def gemini_too_long(tokens: int, window: int) -> dict[str, Any]:
    """The body of the error for a request that is longer than the window."""
    message = (
        f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
    )
    return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


def gemini_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages in a request, in the same shape as for the other formats."""
    return [_message(content) for content in body.get("contents", ())]


def _message(content: Mapping[str, Any]) -> dict[str, Any]:
    parts = content.get("parts", ())
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    if answers:
        return {"role": "tool", "content": str(answers[0]["response"].get("result"))}
    text = "\n".join(part["text"] for part in parts if "text" in part)
    role = "assistant" if content.get("role") == "model" else "user"
    return {"role": role, "content": text or json.dumps(list(parts))}
