"""The JSON lines that an agent's program reads and writes; pure, see `command`."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.errors import AgentFailed, BadInput, RetryLater
from sessionary.model import codec
from sessionary.model.message import Attachment, Message, Role, Text, message
from sessionary.model.terminal import one_line
from sessionary.model.usage import TOKEN_FIELDS, CostStatus, Usage

PROTOCOL = 1

_LONGEST_EXAMPLE = 80
_LONGEST_ERROR = 500
_MESSAGE_FIELDS = ("model", "finish_reason", "token_count", "extra")
_TOKENS = (*TOKEN_FIELDS, "cache_write_1h_tokens")
_USAGE_FIELDS = (*_TOKENS, "model", "provider", "base_url", "billing_mode", "task", "call_id")
_ROLES = {Role.ASSISTANT, Role.TOOL}


def request_line(request: TurnRequest) -> bytes:
    """What the program is told, on one line."""
    session = request.session
    told = {
        "sessionary": PROTOCOL,
        "turn_id": request.turn_id,
        "session": {
            "id": session.id,
            "title": session.title,
            "profile": session.profile,
            "key": session.key,
            "model": session.model,
        },
        "source": request.source.to_json(),
        "system_prompt": request.system_prompt,
        "context": list(request.context),
        "settings": dict(request.settings),
    }
    return codec.encode(told).encode() + b"\n"


def too_much(program: str, total: int) -> AgentFailed:
    """The error for a program that floods us."""
    return AgentFailed(f"The program {program} wrote too much ({total} bytes) and was stopped.")


class Answers:
    """Turns the program's lines into events; keeps what belongs to the end of the turn."""

    def __init__(self, program: str, *, most_rubbish: int) -> None:
        self.rubbish = 0
        self._program = program
        self._most_rubbish = most_rubbish
        self._example = ""
        self._said: list[str] = []
        self._reply: str | None = None
        self._usage: Usage | None = None
        self._files: list[tuple[Attachment, bytes]] = []
        self._is_silent = True

    def read(self, line: bytes) -> Iterator[Event]:
        """The events of one line."""
        if not line.strip():
            return
        try:
            given = codec.decode(line)
            yield from self._understood(given)
        except (ValueError, RecursionError, BadInput):
            self._count_rubbish(line)

    def end(self, last_words: str) -> Iterator[Event]:
        """What is left when the program has ended well."""
        text = "".join(self._said) if self._reply is None else self._reply
        if text or self._reply is not None or self._files:
            words = (Text(text),) if text or not self._files else ()
            said = Message(Role.ASSISTANT, words, finish_reason="stop", extra=self._rubbish_mark())
            yield self._step(said)
        elif self._is_silent:
            raise AgentFailed(
                f"The program {self._program} ended without an answer."
                f"{self.rubbish_note()}{last_words}"
            )

    def rubbish_note(self) -> str:
        """A sentence about the lines that were not understood, or nothing."""
        if not self.rubbish:
            return ""
        return f" {self.rubbish} of its lines were not understood, the first: {self._example!r}."

    def _understood(self, given: Any) -> Iterator[Event]:
        match given:
            case {"delta": str(text)}:
                yield self._delta(text, thinking=given.get("thinking") is True)
            case {"delta": {"text": str(text), **rest}}:
                yield self._delta(text, thinking=rest.get("thinking") is True)
            case {"step": dict(said)}:
                step = _message(said)
                self._take_usage(given.get("usage"))
                yield self._step(step)
            case {"reply": str(text)}:
                self._take_usage(given.get("usage"))
                self._reply = text
            case {"file": dict(file)}:
                self._files.append(_file(file))
            case {"usage": dict(used)}:
                self._take_usage(used)
            case {"error": str(text)}:
                raise _failure(text, given.get("retry_after"))
            case {"error": {"message": str(text), **rest}}:
                raise _failure(text, rest.get("retry_after"))
            case _:
                raise BadInput("not a line of ours")

    def _delta(self, text: str, *, thinking: bool) -> Delta:
        if not thinking:
            self._said.append(text)
        return Delta(text, thinking=thinking)

    def _step(self, said: Message) -> Step:
        usage, self._usage = self._usage, None
        self._said.clear()
        self._is_silent = False
        files, self._files = self._files, []
        attached = tuple(attachment for attachment, _ in files)
        with_files = replace(said, parts=(*said.parts, *attached)) if files else said
        return Step(with_files, usage, tuple(data for _, data in files))

    def _take_usage(self, given: Any) -> None:
        if isinstance(given, Mapping):
            new = _usage(given)
            self._usage = new if self._usage is None else _sum(self._usage, new)

    def _count_rubbish(self, line: bytes) -> None:
        self.rubbish += 1
        if self.rubbish == 1:
            self._example = one_line(line[:_CUT].decode(errors="replace"), _LONGEST_EXAMPLE)
        if self.rubbish > self._most_rubbish:
            raise AgentFailed(
                f"The program {self._program} wrote rubbish and was stopped.{self.rubbish_note()}"
            )

    def _rubbish_mark(self) -> dict[str, Any]:
        return {"rubbish_lines": self.rubbish} if self.rubbish else {}


_CUT = 4 * _LONGEST_EXAMPLE


def _message(said: dict[str, Any]) -> Message:
    content = said.get("parts", said.get("content"))
    fields = {name: said[name] for name in _MESSAGE_FIELDS if said.get(name) is not None}
    made = message(said.get("role", "assistant"), content, **fields)
    if made.role not in _ROLES:
        raise BadInput("an agent speaks as assistant or tool")
    return made


def _file(given: Mapping[str, Any]) -> tuple[Attachment, bytes]:
    name, kind = given.get("name"), given.get("media_type", "application/octet-stream")
    if not isinstance(kind, str) or not isinstance(name, str | None):
        raise BadInput("a file's name and media_type are texts")
    try:
        data = base64.b64decode(given.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadInput("the data of a file is base64") from error
    return Attachment(hashlib.sha256(data).hexdigest(), kind, name, len(data)), data


def _usage(given: Mapping[str, Any]) -> Usage:
    known = {name: given[name] for name in _USAGE_FIELDS if given.get(name) is not None}
    cost = given.get("cost_microusd")
    status = CostStatus.UNKNOWN if cost is None else CostStatus.REPORTED
    return Usage(**known, cost_microusd=cost, cost_status=status)


def _sum(one: Usage, other: Usage) -> Usage:
    """Two calls for one step; the cost is known when both are."""
    tokens = {name: getattr(one, name) + getattr(other, name) for name in _TOKENS}
    known = one.cost_microusd is not None and other.cost_microusd is not None
    cost = (one.cost_microusd or 0) + (other.cost_microusd or 0) if known else None
    status = CostStatus.REPORTED if known else CostStatus.UNKNOWN
    return replace(one, **tokens, cost_microusd=cost, cost_status=status)


def _failure(text: str, retry_after: Any) -> AgentFailed | RetryLater:
    line = one_line(re.sub(r"\s+", " ", text), _LONGEST_ERROR) or "The program failed."
    if isinstance(retry_after, int | float) and not isinstance(retry_after, bool):
        return RetryLater(line, max(0.0, float(retry_after)))
    return AgentFailed(line)
