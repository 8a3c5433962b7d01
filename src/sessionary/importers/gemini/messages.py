"""The messages of Gemini CLI, and the parts of Google's interface in them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sessionary.formats import coerce, parts
from sessionary.importers.base.content import MessageContent, call_usage
from sessionary.importers.base.events import Json, MessageEvent
from sessionary.model.usage import Usage

_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant"}
# How the program begins what it tells the model of its surroundings, in the person's name.
CONTEXT = (
    "<session_context>",
    "This is the Gemini CLI. We are setting up the context for our chat.",
)


def to_messages(message: Json, at: datetime, *, session_id: str) -> Iterator[MessageEvent]:
    """A message, and behind it what its tools answered."""
    id = coerce.text(message.get("id"))
    kind = message.get("type")
    context, words = split_context(message.get("content")) if kind == "user" else ([], None)
    if context:
        surroundings = MessageContent()
        add(surroundings, context)
        yield surroundings.to_message("system", at, id=f"{id}:context" if words else id)
        if not words:
            return
        message = {**message, "content": words}
    content = MessageContent()
    for thought in coerce.records(message.get("thoughts")):
        texts = (coerce.text(thought.get("subject")), coerce.text(thought.get("description")))
        content.add_reasoning("\n".join(filter(None, texts)))
    called = {coerce.text(call.get("id")) for call in coerce.records(message.get("toolCalls"))}
    add(content, [part for part in _parts(message.get("content")) if _call_id(part) not in called])
    results = MessageContent()
    for call in coerce.records(message.get("toolCalls")):
        _add_call(content, results, call)
    role = _ROLES.get(kind, "system") if isinstance(kind, str) else "system"
    if answers_in(message):
        role = "tool"
    yield content.to_message(
        role,
        at,
        id=id,
        model=coerce.name(message.get("model")),
        extra={"level": kind} if role == "system" else _shown(message),
        usage=_usage(message, at, call_id=f"{session_id}:{id}"),
    )
    if results:
        yield results.to_message("tool", at, id=f"{id}:results")


def text_of(message: Json) -> str:
    """The words of a message."""
    content = MessageContent()
    add(content, message.get("content"))
    return content.text


def answers_in(message: Json) -> set[str]:
    """The calls that a message answers, when it says nothing else."""
    given = _parts(message.get("content"))
    found = [coerce.record(coerce.record(part).get("functionResponse")) for part in given]
    return {coerce.text(each.get("id")) for each in found} if all(found) else set()


def answered_calls(message: Json) -> set[str]:
    """The calls whose answers stand with the message that made them."""
    calls = coerce.records(message.get("toolCalls"))
    return {coerce.text(call.get("id")) for call in calls if _is_answered(call)}


def is_context(message: Json) -> bool:
    """Whether the program alone speaks in a message of the person's."""
    context, words = split_context(message.get("content"))
    return bool(context) and not words


def split_context(given: object) -> tuple[list[Any], list[Any]]:
    """What the program says in the person's name, and what the person says."""
    context: list[Any] = []
    words: list[Any] = []
    for part in _parts(given):
        text = part if isinstance(part, str) else coerce.record(part).get("text")
        is_context = isinstance(text, str) and text.lstrip().startswith(CONTEXT)
        (context if is_context else words).append(part)
    return context, words


def add(content: MessageContent, given: object) -> None:
    """Add a text, a part, or a list of them."""
    for part in _parts(given):
        _add_part(content, part)


def _parts(given: object) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _call_id(part: object) -> str | None:
    call = coerce.record(part).get("functionCall")
    return None if call is None else coerce.text(coerce.record(call).get("id"))


def _add_part(content: MessageContent, part: object) -> None:
    match part:
        case None:
            return
        case str():
            content.add_text(part)
        case {"text": str(words), "thought": True}:
            content.add_reasoning(words)
        case {"text": str(words)}:
            content.add_text(words)
        case {"inlineData": {"data": str(data), **rest}} if content.attach_base64(
            data, rest.get("mimeType"), rest.get("displayName")
        ):
            return
        case {"functionCall": {"name": str(name), **rest}}:
            content.add_call(rest.get("id"), name, rest.get("args"))
        case {"functionResponse": {**response}}:
            id, tool = coerce.text(response.get("id")), coerce.name(response.get("name"))
            content.add_result(id, _answer(response.get("response")), name=tool)
        case _:
            content.add_unknown({"type": "gemini", "native": part})


def _add_call(content: MessageContent, results: MessageContent, call: Json) -> None:
    id, name = coerce.text(call.get("id")), coerce.text(call.get("name"))
    content.add_call(id, name, call.get("args"))
    if not _is_answered(call):
        return
    answer = MessageContent()
    add(answer, call.get("result"))
    texts = [part for part in answer.parts if part["type"] != "attachment"]
    files = [part for part in answer.parts if part["type"] == "attachment"]
    is_error = call.get("status") in ("error", "cancelled")
    results.add(
        parts.tool_result(id, _result_text(texts), name=name or None, is_error=is_error), *files
    )
    results.blobs.extend(answer.blobs)


def _is_answered(call: Json) -> bool:
    return call.get("result") is not None or call.get("status") in (
        "success",
        "error",
        "cancelled",
    )


def _result_text(answers: list[Json]) -> Any:
    """Return the texts of a tool's parts as one, or the parts if one of them is no text."""
    texts: list[Any] = [each.get("content", each.get("text", "")) for each in answers]
    if len(texts) == 1:
        return texts[0]
    return "\n".join(texts) if all(isinstance(each, str) for each in texts) else answers


def _answer(response: object) -> Any:
    if isinstance(response, dict):
        for name in ("output", "error"):
            if isinstance(response.get(name), str):
                return response[name]
    return "" if response is None else response


def _shown(message: Json) -> Json | None:
    """What the person saw of a message, where it was something else."""
    shown = message.get("displayContent")
    return None if shown is None or shown == message.get("content") else {"shown": shown}


def _usage(message: Json, at: datetime, *, call_id: str) -> tuple[Usage, ...]:
    """Cached tokens are a part of the input here, and thoughts stand apart from the output."""
    tokens = coerce.record(message.get("tokens"))
    cached, thoughts = coerce.count(tokens.get("cached")), coerce.count(tokens.get("thoughts"))
    sent = coerce.count(tokens.get("input")) + coerce.count(tokens.get("tool"))
    return call_usage(
        "gemini-cli",
        call_id,
        model=coerce.name(message.get("model")),
        at=at,
        input=max(0, sent - cached),
        cache_read=cached,
        output=coerce.count(tokens.get("output")) + thoughts,
        reasoning=thoughts,
    )
