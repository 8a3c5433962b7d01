"""What a fake model server answers: replies and refusals, and how they look on the wire."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

_WORDS_PER_DELTA = 2
CREATED = 1_770_000_000
CHARACTERS_PER_TOKEN = 4
# What the model reads, in the requests of all formats.
_READ = ("system", "instructions", "systemInstruction", "messages", "input", "contents", "tools")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model asks for. Arguments given as text go out as they are, broken or not."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = "call_1"

    @property
    def text(self) -> str:
        """The arguments as they go over the wire."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the provider says was used; `fresh` input was in no cache and went into none."""

    fresh: int = 10
    cache_read: int = 0
    cache_write: int = 0
    output: int = 5
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model: thinks, speaks, asks for tools, in this order.

    `pause` seconds pass before every piece. With `cut_after` the connection breaks behind so many
    pieces of text. With `close_after` the server closes it there in good order, as a stream without a length may end:
    only the missing finish reason tells that the answer is not complete. `tokens` of None: the provider does not say
    what was used.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    tokens: Tokens | None = Tokens()
    pause: float = 0.0
    cut_after: int | None = None
    close_after: int | None = None
    model: str | None = None
    # Why the model stopped, in OpenAI's words; None: as the reply says.
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error instead of an answer; status 0 closes the connection without a word."""

    status: int
    message: str = "no"
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Reply | Refusal


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a streamed body; `has_text` marks those that hold text of the reply."""

    data: str
    has_text: bool = False


def count_tokens(body: Mapping[str, Any]) -> int:
    """The tokens of a request: the characters of the JSON of what the model reads, divided by four, rounded up.

    That is the system prompt, the messages and the tools, in compact JSON without escapes.
    """
    read = [body[name] for name in _READ if body.get(name)]
    texts = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in read]
    return -(-sum(map(len, texts)) // CHARACTERS_PER_TOKEN)


def counted(reply: Reply, sent: int) -> Reply:
    """The reply with the tokens that were sent, and those of its own text, counted by the same rule."""
    if reply.tokens is None:
        return reply
    made = "".join((reply.reasoning, reply.text, *(call.name + call.text for call in reply.calls)))
    reasoning = -(-len(reply.reasoning) // CHARACTERS_PER_TOKEN)
    tokens = Tokens(sent, output=-(-len(made) // CHARACTERS_PER_TOKEN), reasoning=reasoning)
    return replace(reply, tokens=tokens)


def pieces(text: str) -> list[str]:
    """The text in the portions in which it is streamed."""
    words = text.split(" ")
    portions = [words[at : at + _WORDS_PER_DELTA] for at in range(0, len(words), _WORDS_PER_DELTA)]
    joined = [" ".join(portion) for portion in portions]
    return [*(f"{each} " for each in joined[:-1]), joined[-1]] if text else []


# --- OpenAI: chat completions ---


def openai_stream(reply: Reply, *, model: str, response_id: str) -> Iterator[Piece]:
    """The server-sent events of one chat completion."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return data_event(_completion(response_id, model, ".chunk", choices=[choice]))

    yield Piece(chunk({"role": "assistant", "content": ""}))
    for piece in pieces(reply.reasoning):
        yield Piece(chunk({"reasoning_content": piece}), has_text=True)
    for piece in pieces(reply.text):
        yield Piece(chunk({"content": piece}), has_text=True)
    for index, call in enumerate(reply.calls):
        begun = {"name": call.name, "arguments": ""}
        head = {"index": index, "id": call.id, "type": "function", "function": begun}
        yield Piece(chunk({"tool_calls": [head]}))
        half = len(call.text) // 2
        for portion in (call.text[:half], call.text[half:]):
            rest = {"index": index, "function": {"arguments": portion}}
            yield Piece(chunk({"tool_calls": [rest]}))
    yield Piece(chunk({}, reply.finish or ("tool_calls" if reply.calls else "stop")))
    if reply.tokens is not None:
        used = {"choices": [], "usage": openai_usage(reply.tokens)}
        yield Piece(data_event(_completion(response_id, model, ".chunk", **used)))
    yield Piece("data: [DONE]\n\n")


def openai_whole(reply: Reply, *, model: str, response_id: str) -> dict[str, Any]:
    """The same completion, not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for call in reply.calls
        ]
    finish = reply.finish or ("tool_calls" if reply.calls else "stop")
    choices = [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}]
    whole = _completion(response_id, model, "", choices=choices)
    return whole if reply.tokens is None else whole | {"usage": openai_usage(reply.tokens)}


def openai_usage(tokens: Tokens) -> dict[str, Any]:
    """OpenAI counts cached tokens as a part of the prompt."""
    prompt = tokens.fresh + tokens.cache_read + tokens.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """The body of an error."""
    error = {"message": refusal.message, "type": "error", "param": None, "code": None}
    return {"error": error}


def openai_too_long(tokens: int, window: int) -> dict[str, Any]:
    """The body of the error for a request that is longer than the window."""
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages."
    )
    named = {"type": "invalid_request_error", "param": "messages"}
    return {"error": {"message": message, **named, "code": "context_length_exceeded"}}


def _completion(response_id: str, model: str, kind: str, **more: Any) -> dict[str, Any]:
    base = {"id": response_id, "object": f"chat.completion{kind}", "created": CREATED}
    return base | {"model": model} | more


# --- Anthropic: messages ---


def anthropic_stream(reply: Reply, *, model: str, response_id: str) -> Iterator[Piece]:
    """The server-sent events of one message."""
    tokens = reply.tokens or Tokens(fresh=0, output=0)
    begun = _message(response_id, model, content=[], stop=None, tokens=tokens)
    yield Piece(named_event("message_start", message=begun))
    index = count()
    if reply.reasoning:
        thought = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            *({"type": "thinking_delta", "thinking": each} for each in pieces(reply.reasoning)),
            {"type": "signature_delta", "signature": "signed"},
        ]
        yield from _block(next(index), thought, deltas)
    if reply.text:
        spoken = [{"type": "text_delta", "text": each} for each in pieces(reply.text)]
        yield from _block(next(index), {"type": "text", "text": ""}, spoken)
    for call in reply.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        half = len(call.text) // 2
        portions = (call.text[:half], call.text[half:])
        asked = [{"type": "input_json_delta", "partial_json": each} for each in portions]
        yield from _block(next(index), block, asked)
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    yield Piece(named_event("message_delta", delta=stop, usage={"output_tokens": tokens.output}))
    yield Piece(named_event("message_stop"))


def anthropic_whole(reply: Reply, *, model: str, response_id: str) -> dict[str, Any]:
    """The same message, not streamed."""
    content: list[dict[str, Any]] = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": "signed"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in reply.calls
    ]
    stop = "tool_use" if reply.calls else "end_turn"
    tokens = reply.tokens or Tokens(fresh=0, output=0)
    return _message(response_id, model, content=content, stop=stop, tokens=tokens)


def anthropic_error(refusal: Refusal) -> dict[str, Any]:
    """The body of an error."""
    kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
    kind = kinds.get(refusal.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refusal.message}}


def anthropic_too_long(tokens: int, window: int) -> dict[str, Any]:
    """The body of the error for a request that is longer than the window."""
    message = f"prompt is too long: {tokens} tokens > {window} maximum"
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[Piece]:
    yield Piece(named_event("content_block_start", index=index, content_block=block))
    for delta in deltas:
        has_text = delta["type"] in ("text_delta", "thinking_delta")
        yield Piece(named_event("content_block_delta", index=index, delta=delta), has_text=has_text)
    yield Piece(named_event("content_block_stop", index=index))


def _message(
    response_id: str, model: str, *, content: list[Any], stop: str | None, tokens: Tokens
) -> dict[str, Any]:
    return {
        "id": response_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.fresh,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cache_read,
            "output_tokens": tokens.output,
        },
    }


def named_event(name: str, **data: Any) -> str:
    """A server-sent event that says its name."""
    return f"event: {name}\n{data_event({'type': name} | data)}"


def data_event(data: dict[str, Any]) -> str:
    """A server-sent event without a name."""
    return f"data: {json.dumps(data)}\n\n"
