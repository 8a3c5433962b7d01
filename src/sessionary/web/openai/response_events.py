"""A response as a stream of typed events: what the agent writes as it comes, and in the end the whole response."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from sessionary.formats.coerce import Json
from sessionary.formats.openai_responses import (
    OWN_CALL,
    TurnItems,
    item_id,
    message_item,
    output_text,
    reasoning_item,
)
from sessionary.model.message import Message
from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.exchange import (
    ExchangeEvent,
    ExchangeResult,
    ReasoningDelta,
    StepWritten,
    TextDelta,
)
from sessionary.web.stream import event

_ENDINGS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.failed",
}


class ResponseEvents:
    """Turns what an agent writes into the events of a response, numbered in their order.

    Each item is announced, filled, and finished before the next one is announced, except for calls of the agent's own
    tools: they are finished when their results are there.
    """

    def __init__(
        self,
        items: TurnItems,
        begun: Json,
        finish: Callable[[ExchangeResult], Json],
    ) -> None:
        """`begun` is the response before anything was written; `finish` makes the whole one."""
        self._items = items
        self._begun = begun
        self._finish = finish
        self._number = 0
        # The places of the items that were announced.
        self._announced: dict[str, int] = {}
        self._open: str | None = None
        self._text = ""

    async def frames(self, events: AsyncIterator[ExchangeEvent]) -> AsyncIterator[bytes]:
        """Yield the events as the wire has them."""
        status = {"response": self._begun}
        yield self._frame("response.created", status)
        yield self._frame("response.in_progress", status)
        async for each in events:
            for frame in self._frames_of(each):
                yield frame

    def failure(self, error: ApiError) -> bytes:
        """The last event of a stream that cannot go on, though the turn may."""
        told = {"code": error.code, "message": str(error), "param": error.param}
        return self._frame("error", told | error.more)

    def _frames_of(self, each: ExchangeEvent) -> list[bytes]:
        match each:
            case ReasoningDelta(text=text) if text:
                return self._add(item_id("rs", self._items.base), text)
            case TextDelta(text=text) if text:
                return self._add(item_id("msg", self._items.base), text)
            case StepWritten(entry=entry):
                assert isinstance(entry.body, Message)
                return self._step(entry.body)
            case ExchangeResult():
                return self._end(each)
        return []

    def _frame(self, kind: str, data: Mapping[str, Any]) -> bytes:
        made = event(kind, {"type": kind, "sequence_number": self._number, **data})
        self._number += 1
        return made

    def _place(self, id: str) -> int:
        return self._announced[id]

    def _add(self, id: str, text: str) -> list[bytes]:
        """Add to what is thought or said."""
        made: list[bytes] = []
        if id in self._announced and id != self._open:
            return []  # it is finished: the whole response has the rest
        if self._open != id:
            made += [*self._close(), *self._announce(id)]
        self._text += text
        return [*made, self._delta(id, text)]

    def _announce(self, id: str) -> list[bytes]:
        self._announced[id] = len(self._announced)
        self._open, self._text = id, ""
        place = {"item_id": id, "output_index": self._place(id)}
        if id.startswith("rs_"):
            added = self._added(id, reasoning_item(id, []))
            part = {"type": "summary_text", "text": ""}
            return [
                added,
                self._frame(
                    "response.reasoning_summary_part.added",
                    place | {"summary_index": 0, "part": part},
                ),
            ]
        added = self._added(id, message_item(id, "", status="in_progress"))
        part = output_text("")
        return [
            added,
            self._frame("response.content_part.added", place | {"content_index": 0, "part": part}),
        ]

    def _added(self, id: str, item: Json) -> bytes:
        place = self._place(id)
        return self._frame("response.output_item.added", {"output_index": place, "item": item})

    def _delta(self, id: str, text: str) -> bytes:
        place = {"item_id": id, "output_index": self._place(id), "delta": text}
        if id.startswith("rs_"):
            return self._frame(
                "response.reasoning_summary_text.delta", place | {"summary_index": 0}
            )
        return self._frame(
            "response.output_text.delta", place | {"content_index": 0, "logprobs": []}
        )

    def _close(self, item: Json | None = None) -> list[bytes]:
        """Finish the item that is open: as it was stored, or as it was streamed."""
        id, self._open = self._open, None
        if id is None:
            return []
        place = {"item_id": id, "output_index": self._place(id)}
        if id.startswith("rs_"):
            whole = item or reasoning_item(id, [self._text])
            text = whole["summary"][0]["text"] if whole["summary"] else self._text
            place["summary_index"] = 0
            part = {"type": "summary_text", "text": text}
            made = [
                self._frame("response.reasoning_summary_text.done", place | {"text": text}),
                self._frame("response.reasoning_summary_part.done", place | {"part": part}),
            ]
        else:
            whole = item or message_item(id, self._text, status="incomplete")
            text = whole["content"][0]["text"] if whole["content"] else self._text
            place["content_index"] = 0
            made = [
                self._frame("response.output_text.done", place | {"text": text, "logprobs": []}),
                self._frame("response.content_part.done", place | {"part": output_text(text)}),
            ]
        return [*made, self._done(id, whole)]

    def _done(self, id: str, item: Json) -> bytes:
        return self._frame(
            "response.output_item.done", {"output_index": self._place(id), "item": item}
        )

    def _step(self, message: Message) -> list[bytes]:
        """Finish what was streamed of a message, and add what was not."""
        made: list[bytes] = []
        for place in self._items.add(message):
            item = self._items.output[place]
            kind = item["type"]
            if kind in ("message", "reasoning"):
                made += self._finish_words(item)
            elif kind == OWN_CALL:
                made += [*self._close(), *self._own_call(item)]
            else:
                made += [*self._close(), *self._function_call(item)]
        return [*made, *self._close()]

    def _finish_words(self, item: Json) -> list[bytes]:
        id = item["id"]
        if id in self._announced and id != self._open:
            return []
        content = item["content"] if item["type"] == "message" else item["summary"]
        text = content[0]["text"] if content else ""
        made = []
        if id != self._open:
            made += [*self._close(), *self._announce(id)]
        if text.startswith(self._text) and len(text) > len(self._text):
            made.append(self._delta(id, text[len(self._text) :]))
        return [*made, *self._close(item)]

    def _function_call(self, item: Json) -> list[bytes]:
        id, arguments = item["id"], item["arguments"]
        self._announced[id] = len(self._announced)
        place = {"item_id": id, "output_index": self._place(id)}
        kind = "response.function_call_arguments"
        return [
            self._added(id, {**item, "arguments": "", "status": "in_progress"}),
            self._frame(f"{kind}.delta", place | {"delta": arguments}),
            self._frame(f"{kind}.done", place | {"arguments": arguments, "name": item["name"]}),
            self._done(id, item),
        ]

    def _own_call(self, item: Json) -> list[bytes]:
        """Announce a call of the agent's, or finish it when its result is there."""
        id = item["id"]
        made = []
        if id not in self._announced:
            self._announced[id] = len(self._announced)
            place = {"item_id": id, "output_index": self._place(id)}
            arguments = {"arguments": item["arguments"]}
            made = [
                self._added(id, {**item, "arguments": ""}),
                self._frame("response.mcp_call.in_progress", place),
                self._frame("response.mcp_call_arguments.done", place | arguments),
            ]
        if item["status"] == "in_progress":
            return made
        place = {"item_id": id, "output_index": self._place(id)}
        if item["status"] in ("completed", "failed"):
            made.append(self._frame(f"response.mcp_call.{item['status']}", place))
        return [*made, self._done(id, item)]

    def _end(self, result: ExchangeResult) -> list[bytes]:
        whole = self._finish(result)
        made: list[bytes] = []
        for item in whole["output"]:
            id = item["id"]
            if id == self._open:
                made += self._finish_words(item)
            elif item["type"] == OWN_CALL and item["status"] == "incomplete":
                made += [*self._close(), *self._own_call(item)]
            elif id not in self._announced and item["type"] == "message":
                made += self._finish_words(item)
        made += self._close()
        kind = _ENDINGS.get(whole["status"], "response.completed")
        return [*made, self._frame(kind, {"response": whole})]
