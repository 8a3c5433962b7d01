"""Reads recorded exchanges: what a request sends and what its response says, in the formats of three interfaces.

These are OpenAI's Chat Completions and Responses and Anthropic's Messages, streamed or whole. Whatever cannot be read
is kept as it came, up to a limit.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from sessionary.formats import anthropic_blocks, coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.formats.parts import Content
from sessionary.model.message import Message, Role, from_json
from sessionary.model.usage import MAX_COST_MICROUSD, CostStatus, Usage

# Names of headers and parameters that hold secrets, by their words: `X-Codex-Window-Id` holds none.
SECRET_NAME = re.compile(
    rb"(?<![a-z])(?:auth|authori[sz]ation|authentication|credentials?|pass[a-z]*|sig|signature"
    rb"|[a-z]*(?:cookies?|secrets?|tokens?)|(?<!idempotency-)[a-z]*keys?)(?![a-z])|^code$",
    re.IGNORECASE,
)
# What is kept of a body that cannot be read.
MOST_RAW_CHARACTERS = 64 * 1024
_LONGEST_NAME = 256
# `metadata.user_id` of Claude Code, as older versions write it.
_CLAUDE_USER = re.compile(r"user_(\w+?)_account_([\w-]*)_session_([\w-]{8,})")
_ADDRESS = re.compile(r"\r\n|\r|\n")


class Interface(StrEnum):
    """The interfaces whose requests are recorded."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"

    @property
    def is_anthropic(self) -> bool:
        """Whether it is Anthropic's."""
        return self is Interface.MESSAGES


_PATHS = {
    "/chat/completions": Interface.CHAT,
    "/responses": Interface.RESPONSES,
    # OpenAI's assistants have messages too: /v1/threads/ID/messages.
    "/v1/messages": Interface.MESSAGES,
}


def interface_of(method: str, path: str) -> Interface | None:
    """The interface of a request that is to be recorded; None for any other."""
    if method != "POST":
        return None
    return next((each for end, each in _PATHS.items() if path.endswith(end)), None)


class RequestContent(Struct, frozen=True):
    """What a request sends: the conversation, and what goes with it."""

    messages: tuple[Message, ...] = ()
    files: tuple[bytes, ...] = ()
    system: str | None = None
    tools: Sequence[Any] = ()
    settings: Mapping[str, Any] = {}
    model: str | None = None
    # The response, or the conversation, that is continued without sending it again.
    previous: str | None = None
    conversation: str | None = None


class ResponseContent(Struct, frozen=True):
    """What a response says; `is_whole` unless it broke off, `error` if it is one."""

    message: Message | None = None
    files: tuple[bytes, ...] = ()
    model: str | None = None
    id: str | None = None
    usage: Json = {}
    is_whole: bool = False
    error: str | None = None


class Names(Struct, frozen=True):
    """What a request says of its person and session, and which model it wants."""

    model: str | None = None
    person: str | None = None
    # A session that the request names; and what only tells conversations of one program apart.
    session: str | None = None
    scope: str | None = None
    # Keys for servers whose tools the model is to call.
    secrets: tuple[bytes, ...] = ()


class _Facts(Struct, frozen=True):
    model: Any = None
    user: Any = None
    safety_identifier: Any = None
    metadata: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    mcp_servers: msgspec.Raw = msgspec.Raw()


def read_names(body: bytes) -> Names:
    """Read what a request says of itself, without decoding its conversation."""
    try:
        facts = _decoder().decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Names()
    metadata = coerce.record(facts.metadata)
    person, scope = _claude_user(coerce.name(metadata.get("user_id")))
    return Names(
        model=coerce.name(facts.model),
        person=_bounded(
            coerce.first_name(metadata.get("person"), facts.user, facts.safety_identifier) or person
        ),
        session=_bounded(coerce.first_name(metadata.get("session"), metadata.get("session_id"))),
        scope=_bounded(scope),
        secrets=(*_secrets(bytes(facts.tools)), *_secrets(bytes(facts.mcp_servers))),
    )


def _secrets(given: bytes) -> Iterator[bytes]:
    # Other tools, of which there may be many, have none.
    if b'"mcp"' not in given and b'"authorization_token"' not in given:
        return
    for server in coerce.records(coerce.parse_json(given)):
        for name, value in (*server.items(), *coerce.record(server.get("headers")).items()):
            if isinstance(value, str) and SECRET_NAME.search(name.encode()):
                yield value.encode()


@cache
def _decoder() -> "msgspec.json.Decoder[_Facts]":
    return msgspec.json.Decoder(_Facts)


def _claude_user(text: str | None) -> tuple[str | None, str | None]:
    """The person and the session in `metadata.user_id`, as Claude Code sends it."""
    if text is None:
        return None, None
    known = coerce.parse_record(text) if text.startswith("{") else {}
    if known:
        person = coerce.first_name(known.get("account_uuid"), known.get("device_id"))
        return person or text, coerce.name(known.get("session_id"))
    found = _CLAUDE_USER.fullmatch(text)
    if found is None:
        return text, None
    return found[2] or found[1], found[3]


def _bounded(name: str | None) -> str | None:
    return None if name is None else name.strip()[:_LONGEST_NAME]


def read_request(interface: Interface, body: bytes) -> RequestContent:
    """Read the body of a request."""
    given = coerce.parse_json(body)
    if not isinstance(given, dict):
        return RequestContent(messages=(raw_message(Role.USER, "request", body),) if body else ())
    reader = _Messages()
    match interface:
        case Interface.CHAT:
            for each in coerce.items(given.get("messages")):
                _add_chat(reader, each)
        case Interface.RESPONSES:
            _add_items(reader, given.get("input"))
        case Interface.MESSAGES:
            for each in coerce.items(given.get("messages")):
                _add_turn(reader, each)
    system = [_text(given.get("instructions")), _text(given.get("system")), *reader.system]
    tools = coerce.items(given.get("tools")) or coerce.items(given.get("functions"))
    conversation = given.get("conversation")
    return RequestContent(
        messages=tuple(reader.messages),
        files=tuple(reader.files),
        system="\n\n".join(filter(None, system)) or None,
        tools=[_tool(each) for each in tools],
        settings=_settings(given),
        model=coerce.name(given.get("model")),
        previous=coerce.name(given.get("previous_response_id")),
        conversation=_bounded(
            coerce.first_name(coerce.record(conversation).get("id"), conversation)
        ),
    )


# What is recorded elsewhere, or says who asks, or whether it is streamed: nothing about how the model answers.
_NOT_SETTINGS = frozenset(
    {
        *("messages", "input", "instructions", "system", "tools", "functions", "model"),
        "conversation",
        "metadata",
        "previous_response_id",
        "prompt_cache_key",
        "safety_identifier",
        "store",
        "stream",
        "stream_options",
        "user",
    }
)
_LONGEST_SETTING = 4_000


def _settings(given: Json) -> Json:
    """The fields of a request that change how the model answers."""
    return {
        name: value
        for name, value in given.items()
        if name not in _NOT_SETTINGS and len(repr(value)) <= _LONGEST_SETTING
    }


@dataclass
class _Messages:
    """The messages of a request; what stands before the first of them and is of the system is kept apart."""

    messages: list[Message] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    system: list[str] = field(default_factory=list)

    def add(self, role: str, content: Content) -> None:
        if role == "system" and not self.messages:
            self.system.append(content.text)
            return
        if content:
            self.messages.append(_message(role, content))
            self.files.extend(content.blobs)


def _message(role: str, content: Content, **fields: Any) -> Message:
    return Message(Role(role), tuple(map(from_json, content.parts)), **fields)


def raw_message(role: Role, what: str, body: bytes) -> Message:
    """A message with a body as it came, up to a limit."""
    text = body[: 4 * MOST_RAW_CHARACTERS].decode("utf-8", "replace")[:MOST_RAW_CHARACTERS]
    part = {"type": f"proxy_{what}", "text": text, "bytes": len(body)}
    return Message(role, (from_json(part),))


def _text(given: object) -> str:
    """A system prompt: a text, or blocks of text."""
    if isinstance(given, str):
        return given
    content = Content()
    anthropic_blocks.add(content, given)
    return content.text


def _uncached(tool: Any) -> Any:
    """A tool without the mark for prompt caching, which moves from request to request."""
    if not isinstance(tool, dict) or "cache_control" not in tool:
        return tool
    return {name: value for name, value in tool.items() if name != "cache_control"}


def _tool(given: Any) -> Any:
    """A tool as the record describes tools: name, description, parameters, and what else its kind has."""
    tool = _uncached(given)
    if not isinstance(tool, dict):
        return {"name": str(tool)}
    function = coerce.record(tool.get("function"))
    if function:
        return function
    facts = dict(tool)
    if "input_schema" in facts:
        facts["parameters"] = facts.pop("input_schema")
    if facts.get("type") in ("function", "custom"):
        del facts["type"]
    facts.setdefault("name", coerce.text(tool.get("type")))
    return facts


# Chat Completions


def _add_chat(reader: _Messages, given: object) -> None:
    if not isinstance(given, dict):
        reader.add("user", Content().add({"type": "proxy_message", "native": given}))
        return
    role, content = _chat_content(given)
    reader.add(role, content)


def _chat_content(given: Json) -> tuple[str, Content]:
    role = openai_items.role_of(given.get("role"))
    content = Content()
    if role == "tool":
        result = given.get("content")
        inner = Content()
        openai_items.add(inner, result)
        call_id = given.get("tool_call_id") or given.get("name")
        content.add_result(call_id, inner, name=given.get("name"))
        return role, content
    if role == "assistant":
        thought = coerce.first_name(given.get("reasoning_content"), given.get("reasoning"))
        content.add_reasoning(thought, given.get("reasoning_details"))
    openai_items.add(content, given.get("content"))
    content.add_text(given.get("refusal"))
    openai_items.add_tool_calls(content, given.get("tool_calls"))
    called = coerce.record(given.get("function_call"))
    if coerce.name(called.get("name")):
        content.add_call("", called["name"], coerce.parse_json_or_keep(called.get("arguments")))
    audio = coerce.record(given.get("audio"))
    content.add_text(audio.get("transcript"))
    return role, content


# Responses


_THEIRS = ("tool", "assistant")


def _add_items(reader: _Messages, given: object) -> None:
    """Add the items of an input; those of one answer of the model are one message."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    answer = Content()
    for item in coerce.items(given):
        content = answer if _is_of_answer(item) else Content()
        if not isinstance(item, dict):
            content.add_text(item) if isinstance(item, str) else content.add_unknown(item)
            role = "user"
        elif item.get("type") == "item_reference":
            continue
        else:
            role = openai_items.add_item(content, item)
        if content is answer:
            continue
        reader.add("assistant", answer)
        answer = Content()
        reader.add(role, content)
    reader.add("assistant", answer)


def _is_of_answer(item: object) -> bool:
    """Whether an item is part of an answer of the model."""
    kind = coerce.record(item).get("type")
    if kind in (None, "message"):
        return coerce.record(item).get("role") == "assistant"
    return isinstance(kind, str) and not kind.endswith("_output")


# Messages


def _add_turn(reader: _Messages, given: object) -> None:
    turn = coerce.record(given)
    role = openai_items.role_of(turn.get("role"))
    blocks = turn.get("content")
    if isinstance(blocks, str):
        reader.add(role, Content().add({"type": "text", "text": blocks}) if blocks else Content())
        return
    results, rest = Content(), Content()
    for block in coerce.items(blocks):
        is_result = role == "user" and coerce.record(block).get("type") == "tool_result"
        anthropic_blocks.add_block(results if is_result else rest, _uncached(block))
    # What tools answered comes first, in a message of its own.
    reader.add("tool", results)
    reader.add(role, rest)


# Responses of all interfaces


def read_response(
    interface: Interface, body: bytes, *, status: int, is_stream: bool, is_whole: bool
) -> ResponseContent:
    """Read the body of a response, or as much of it as came."""
    if is_stream:
        streamed = _STREAMS[interface](_events(body))
        if streamed.message is not None or streamed.error is not None or not body:
            return streamed
        return ResponseContent(
            message=raw_message(Role.ASSISTANT, "response", body), is_whole=is_whole
        )
    given = coerce.parse_json(body)
    error = _error(given)
    if error is not None or status >= 400:
        return ResponseContent(error=error or _said(body, status), is_whole=is_whole)
    found = _WHOLE[interface](given) if isinstance(given, dict) else None
    if found is not None and found.message is not None:
        return found
    message = raw_message(Role.ASSISTANT, "response", body) if body else None
    return ResponseContent(message=message, is_whole=is_whole)


def _error(given: object) -> str | None:
    """The message of an error, as all these interfaces write it."""
    found = coerce.record(given).get("error")
    if isinstance(found, str):
        return found or None
    if not isinstance(found, dict):
        return None
    return coerce.first_name(found.get("message"), found.get("type")) or "error"


def _said(body: bytes, status: int) -> str:
    text = " ".join(body[:2000].decode("utf-8", "replace").split())
    return text[:500] or f"status {status}"


def _events(body: bytes) -> Iterator[Json]:
    """The data of server-sent events, decoded; what is no object is left out."""
    for block in re.split(r"(?:\r\n|\r|\n){2,}", body.decode("utf-8", "replace")):
        lines = _ADDRESS.split(block)
        data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
        found = coerce.parse_json("\n".join(data)) if data else None
        if isinstance(found, dict):
            yield found


def _whole_chat(given: Json) -> ResponseContent:
    choices = coerce.records(given.get("choices"))
    if not choices:
        return ResponseContent()
    _, content = _chat_content({"role": "assistant", **coerce.record(choices[0].get("message"))})
    reason = coerce.name(choices[0].get("finish_reason"))
    # A client that asked for several answers continues at most one of them.
    others = {"other_choices": choices[1:]} if choices[1:] else {}
    return _response(given, content, reason, usage=coerce.record(given.get("usage")), extra=others)


def _whole_responses(given: Json) -> ResponseContent:
    content = Content()
    for item in coerce.records(given.get("output")):
        openai_items.add_item(content, item)
    status = coerce.text(given.get("status"))
    reason = coerce.record(given.get("incomplete_details")).get("reason")
    found = _response(
        given, content, coerce.name(reason) or status, usage=coerce.record(given.get("usage"))
    )
    if status in ("in_progress", "queued"):  # it is answered in the background
        return ResponseContent(message=None, id=found.id, model=found.model, is_whole=True)
    return found


def _whole_messages(given: Json) -> ResponseContent:
    content = Content()
    anthropic_blocks.add(content, given.get("content"))
    reason = coerce.name(given.get("stop_reason"))
    return _response(given, content, reason, usage=coerce.record(given.get("usage")))


def _response(
    given: Json,
    content: Content,
    reason: str | None,
    *,
    usage: Json,
    extra: Json | None = None,
    error: str | None = None,
) -> ResponseContent:
    model = coerce.name(given.get("model"))
    return ResponseContent(
        message=_message(
            "assistant", content, model=model, finish_reason=reason, extra=extra or {}
        ),
        files=tuple(content.blobs),
        model=model,
        id=coerce.name(given.get("id")),
        usage=usage,
        is_whole=reason is not None and error is None,
        error=error,
    )


def _streamed_chat(events: Iterator[Json]) -> ResponseContent:
    head: Json = {}
    usage: Json = {}
    said: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
    details: list[Any] = []
    calls: dict[int, Json] = {}
    reason, error, seen = None, None, False
    for event in events:
        error = error or _error(event)
        head = {name: event.get(name) or head.get(name) for name in ("id", "model")}
        usage = coerce.record(event.get("usage")) or usage
        for choice in coerce.records(event.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            seen = True
            reason = coerce.name(choice.get("finish_reason")) or reason
            delta = coerce.record(choice.get("delta"))
            for name, pieces in said.items():
                other = delta.get("reasoning") if name == "reasoning_content" else None
                pieces.append(coerce.text(delta.get(name)) or coerce.text(other))
            details += coerce.items(delta.get("reasoning_details"))
            for number, call in enumerate(coerce.records(delta.get("tool_calls"))):
                _merge_call(calls, call, number)
    if not seen and error is None:
        return ResponseContent()
    message: Json = {"role": "assistant", **{name: "".join(each) for name, each in said.items()}}
    message["tool_calls"] = [calls[index] for index in sorted(calls)]
    message["reasoning_details"] = details or None
    _, content = _chat_content(message)
    return _response(head, content, reason, usage=usage, error=error)


def _merge_call(calls: dict[int, Json], delta: Json, number: int) -> None:
    index = delta.get("index")
    call = calls.setdefault(
        index if isinstance(index, int) else number,
        {"id": "", "function": {"name": "", "arguments": ""}},
    )
    call["id"] = coerce.text(delta.get("id")) or call["id"]
    function = coerce.record(delta.get("function"))
    call["function"]["name"] += coerce.text(function.get("name"))
    call["function"]["arguments"] += coerce.text(function.get("arguments"))


_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def _streamed_responses(events: Iterator[Json]) -> ResponseContent:
    head: Json = {}
    items: dict[int, Json] = {}
    pieces: dict[int, list[str]] = {}
    error: str | None = None
    for event in events:
        kind = coerce.text(event.get("type"))
        index = event.get("output_index")
        at = index if isinstance(index, int) else 0
        if kind in _LAST:
            given = coerce.record(event.get("response"))
            failure = _error(given)
            found = _whole_responses(given)
            if failure is None:
                return found
            head, error = given, failure
        elif kind in ("response.created", "response.in_progress"):
            head = coerce.record(event.get("response")) or head
        elif kind in ("response.output_item.added", "response.output_item.done"):
            items[at] = coerce.record(event.get("item"))
            if kind.endswith("done"):
                pieces.pop(at, None)
        elif kind.endswith(".delta") and isinstance(event.get("delta"), str):
            pieces.setdefault(at, []).append(event["delta"])
        elif kind == "error":
            error = coerce.first_name(event.get("message"), _error(event)) or "error"
    if not (head or items or error):
        return ResponseContent()
    content = Content()
    for at in sorted(items):
        openai_items.add_item(content, _unfinished(items[at], "".join(pieces.get(at, ()))))
    return _response(head, content, None, usage=coerce.record(head.get("usage")), error=error)


def _unfinished(item: Json, text: str) -> Json:
    """An item with what was streamed of it before the stream broke off."""
    if not text:
        return item
    match item.get("type"):
        case "message":
            return {**item, "content": [{"type": "output_text", "text": text}]}
        case "reasoning":
            return {**item, "summary": [{"type": "summary_text", "text": text}]}
    return {**item, "arguments": text}


def _streamed_messages(events: Iterator[Json]) -> ResponseContent:
    head: Json = {}
    usage: Json = {}
    blocks: dict[int, Json] = {}
    reason, error = None, None
    for event in events:
        index = event.get("index")
        at = index if isinstance(index, int) else 0
        match event.get("type"):
            case "message_start":
                head = coerce.record(event.get("message"))
                usage = {**usage, **coerce.record(head.get("usage"))}
            case "content_block_start":
                blocks[at] = {**coerce.record(event.get("content_block"))}
            case "content_block_delta":
                _merge_delta(blocks.setdefault(at, {}), coerce.record(event.get("delta")))
            case "message_delta":
                reason = coerce.name(coerce.record(event.get("delta")).get("stop_reason")) or reason
                usage = {**usage, **_known(coerce.record(event.get("usage")))}
            case "error":
                error = _error(event)
    if not (head or blocks or error):
        return ResponseContent()
    content = Content()
    for number in sorted(blocks):
        anthropic_blocks.add_block(content, _finished(blocks[number]))
    return _response(head, content, reason, usage=usage, error=error)


def _known(given: Json) -> Json:
    return {name: value for name, value in given.items() if value is not None}


# The field of a block that each kind of delta continues; the field of the delta has the same name.
_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
_PIECES = "pieces"


def _merge_delta(block: Json, delta: Json) -> None:
    kind = coerce.text(delta.get("type"))
    if kind == "citations_delta":
        block["citations"] = [*coerce.items(block.get("citations")), delta.get("citation")]
    elif kind in _DELTAS:
        name = _DELTAS[kind]
        pieces: dict[str, list[str]] = block.setdefault(_PIECES, {})
        pieces.setdefault(name, []).append(coerce.text(delta.get(name)))


def _finished(block: Json) -> Json:
    """A block with the pieces that were streamed of it."""
    pieces: dict[str, list[str]] = block.pop(_PIECES, {})
    for name, found in pieces.items():
        text = coerce.text(block.get(name)) + "".join(found)
        if name == "partial_json":
            block["input"] = coerce.parse_json_or_keep(text or "{}")
        else:
            block[name] = text
    return block


_WHOLE: dict[Interface, Callable[[Json], ResponseContent]] = {
    Interface.CHAT: _whole_chat,
    Interface.RESPONSES: _whole_responses,
    Interface.MESSAGES: _whole_messages,
}
_STREAMS: dict[Interface, Callable[[Iterator[Json]], ResponseContent]] = {
    Interface.CHAT: _streamed_chat,
    Interface.RESPONSES: _streamed_responses,
    Interface.MESSAGES: _streamed_messages,
}


def usage_of(interface: Interface, given: Json, *, model: str | None) -> Usage | None:
    """The tokens and the cost that a response reports; cached tokens are counted apart. None if it reports none."""
    prompt = coerce.record(given.get("prompt_tokens_details") or given.get("input_tokens_details"))
    answer = coerce.record(
        given.get("completion_tokens_details") or given.get("output_tokens_details")
    )
    sent = coerce.count(given.get("prompt_tokens", given.get("input_tokens")))
    produced = coerce.count(given.get("completion_tokens", given.get("output_tokens")))
    if interface.is_anthropic:
        read = coerce.count(given.get("cache_read_input_tokens"))
        written = coerce.count(given.get("cache_creation_input_tokens"))
        kept = coerce.record(given.get("cache_creation"))
        for_an_hour = min(written, coerce.count(kept.get("ephemeral_1h_input_tokens")))
    else:
        read = min(sent, coerce.count(prompt.get("cached_tokens")))
        written = min(sent - read, coerce.count(prompt.get("cache_write_tokens")))
        sent -= read + written
        for_an_hour = 0
    if sent + produced + read + written == 0:
        return None
    cost = _cost(given.get("cost"))
    return Usage(
        model=model,
        input_tokens=sent,
        output_tokens=produced,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=for_an_hour,
        reasoning_tokens=min(produced, coerce.count(answer.get("reasoning_tokens"))),
        cost_microusd=cost,
        cost_status=CostStatus.UNKNOWN if cost is None else CostStatus.REPORTED,
    )


def _cost(given: object) -> int | None:
    """What a gateway such as OpenRouter says that the call costs, in US dollars."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        micros = int(Decimal(str(given)) * 1_000_000)
    except (InvalidOperation, OverflowError, ValueError):
        return None
    return micros if 0 <= micros <= MAX_COST_MICROUSD else None
