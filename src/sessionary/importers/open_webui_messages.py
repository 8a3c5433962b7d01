"""Open WebUI's messages: thoughts and calls of tools stand in their text, as `<details>`."""

import html
import re
from collections.abc import Iterator
from datetime import datetime

from sessionary.formats import openai_items, parts, shape
from sessionary.importers import calls
from sessionary.importers.base import Json, Said
from sessionary.importers.content import Content, Turn
from sessionary.model.usage import Usage

_OPEN, _CLOSE = "<details type=", "</details>"
_MAX_TAG = 1024 * 1024
_FIELD = re.compile(r'([a-z_]+)="([^"]*)"')
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>")


def said(message: Json, id: str, at: datetime, *, chat_id: str) -> Iterator[Said]:
    """A message, and what its tools answered."""
    role = openai_items.role_of(message.get("role"))
    turn = Turn()
    given = message.get("content")
    if role == "assistant" and isinstance(given, str):
        _add_answer(turn, given)
    elif given:
        openai_items.add(turn.words, given)
    for file in shape.records(message.get("files")):
        _add_file(turn.words, file)
    error = message.get("error")
    model = shape.name(message.get("model")) if role == "assistant" else None
    usage = _usage(message, at, call_id=f"{chat_id}:{id}", model=model)
    extra = {"error": error} if error else None
    made = list(turn.said(role, at, id=id, model=model, extra=extra, usage=usage))
    if not made and error:
        made = [Content().said(role, at, id=id, model=model, extra=extra, usage=usage)]
    yield from made


def _add_answer(turn: Turn, text: str) -> None:
    """The text with its details apart; one that does not end is text."""
    here = 0
    while (start := text.find(_OPEN, here)) >= 0:
        tag_end = text.find(">", start, start + _MAX_TAG)
        end = text.find(_CLOSE, start)
        if tag_end < 0 or end < tag_end:
            break
        turn.words.say(text[here:start].strip("\n"))
        _add_details(turn, text[start:tag_end], text[tag_end + 1 : end])
        here = end + len(_CLOSE)
    turn.words.say(text[here:].strip("\n") if here else text)


def _add_details(turn: Turn, tag: str, inside: str) -> None:
    fields = {name: html.unescape(value) for name, value in _FIELD.findall(tag)}
    if fields.get("type") == "reasoning":
        told = _SUMMARY.sub("", inside, count=1).strip("\n")
        quoted = [line.removeprefix(">").removeprefix(" ") for line in told.split("\n")]
        turn.words.think(html.unescape("\n".join(quoted)))
    elif fields.get("type") == "tool_calls" and fields.get("name"):
        content, results = turn.tools
        id = fields.get("id", "")
        given = shape.parsed(fields.get("arguments"))
        arguments = shape.parsed(given) if isinstance(given, str) else given
        content.add(parts.tool_call(id, fields["name"], arguments or given))
        if fields.get("result"):
            told = shape.parsed(fields["result"])
            answer = fields["result"] if told is None else told
            results.add(parts.tool_result(id, answer, name=fields["name"]))
    else:
        turn.words.say(f"{tag}>{inside}{_CLOSE}")


def _add_file(content: Content, file: Json) -> None:
    name = shape.name(file.get("name"))
    if not content.attach_url(file.get("url"), name):
        kept = {key: file[key] for key in ("type", "id", "name", "url") if key in file}
        content.keep({"type": "open_webui_file", "native": kept})


def _usage(message: Json, at: datetime, *, call_id: str, model: str | None) -> tuple[Usage, ...]:
    used = shape.record(message.get("usage")) or shape.record(message.get("info"))
    sent = used.get("prompt_tokens") or used.get("prompt_eval_count") or used.get("input_tokens")
    made = used.get("completion_tokens") or used.get("eval_count") or used.get("output_tokens")
    cached = shape.count(shape.record(used.get("prompt_tokens_details")).get("cached_tokens"))
    thought = shape.record(used.get("completion_tokens_details")).get("reasoning_tokens")
    return calls.one(
        "open-webui",
        call_id,
        model=model,
        at=at,
        input=max(0, shape.count(sent) - cached),
        output=made,
        cache_read=cached,
        reasoning=thought,
    )
