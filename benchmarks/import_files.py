"""Files of Claude Code as a benchmark reads them: seeded, of any size, made of everyday words."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.corpus import Language

_BEGAN = datetime(2026, 1, 5, 9, tzinfo=UTC)
_MODEL = "claude-sonnet-4-5-20250929"
STEPS = 12


@dataclass(frozen=True, slots=True)
class Written:
    """What a directory holds: bytes, lines, and the messages that they are."""

    place: Path
    bytes: int
    lines: int
    messages: int


def write(place: Path, *, size: int, session_size: int) -> Written:
    """Fill a directory with so many bytes: half of them in one file, the rest in many."""
    place.mkdir(parents=True)
    language = Language()
    done = lines = messages = number = 0
    while done < size:
        tape = _Tape(number, language)
        path = place / f"{tape.session_id}.jsonl"
        with path.open("wb") as file:
            wanted = size // 2 if number == 0 else session_size
            while file.tell() < min(wanted, size - done):
                for line in tape.turn():
                    file.write(line)
            done += file.tell()
        lines, messages, number = lines + tape.lines, messages + tape.messages, number + 1
    return Written(place, done, lines, messages)


class _Tape:
    """One session that goes on and on: prompts, answers in one line or several, tools."""

    def __init__(self, number: int, language: Language) -> None:
        self.session_id = f"{number:08x}-0000-4000-8000-000000000000"
        self.lines = self.messages = 0
        self._chance = random.Random(number)
        self._language = language
        self._last: str | None = None
        self._at = _BEGAN + timedelta(hours=number)

    def turn(self) -> Iterator[bytes]:
        """A prompt, some steps with tools, a last answer."""
        yield self._user(self._words(30))
        for _ in range(self._chance.randrange(STEPS)):
            call = f"toolu_{self._chance.getrandbits(96):024x}"
            yield from self._answer(self._blocks(call), "tool_use")
            yield self._result(call, self._words(self._chance.choice((20, 80, 250))))
        yield from self._answer([{"type": "text", "text": self._words(90)}], "end_turn")

    def _blocks(self, call: str) -> list[dict[str, Any]]:
        given = {"file_path": f"/home/mia/{self._words(2)}.py", "pattern": self._words(4)}
        blocks: list[dict[str, Any]] = [
            {"type": "tool_use", "id": call, "name": "Grep", "input": given}
        ]
        if self._chance.random() < 0.4:
            blocks.insert(0, {"type": "text", "text": self._words(25)})
        if self._chance.random() < 0.1:
            thought = {"type": "thinking", "thinking": self._words(60), "signature": "c2ln" * 60}
            blocks.insert(0, thought)
        return blocks

    def _words(self, count: int) -> str:
        return self._language.sentence(count)

    def _answer(self, blocks: list[dict[str, Any]], stop: str) -> Iterator[bytes]:
        self.messages += 1
        name = f"msg_{self._chance.getrandbits(96):024x}"
        usage = {
            "input_tokens": 5,
            "cache_creation_input_tokens": self._chance.randrange(4000),
            "cache_read_input_tokens": self._chance.randrange(90_000),
            "output_tokens": self._chance.randrange(900),
            "service_tier": "standard",
        }
        for number, block in enumerate(blocks, 1):
            message = {
                "model": _MODEL,
                "id": name,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop if number == len(blocks) else None,
                "stop_sequence": None,
                "usage": usage,
            }
            yield self._line("assistant", message=message, requestId=f"req_{name[4:]}")

    def _user(self, content: Any, **more: Any) -> bytes:
        self.messages += 1
        return self._line("user", message={"role": "user", "content": content}, **more)

    def _result(self, call: str, text: str) -> bytes:
        block = {"tool_use_id": call, "type": "tool_result", "content": text}
        return self._user([block], toolUseResult={"stdout": text, "stderr": "", "code": 0})

    def _line(self, kind: str, **more: Any) -> bytes:
        self.lines += 1
        self._at += timedelta(seconds=4)
        name = f"{self._chance.getrandbits(32):08x}-0000-4000-8000-{self.lines:012x}"
        line = {
            "parentUuid": self._last,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/mia/garden",
            "sessionId": self.session_id,
            "version": "2.1.0",
            "gitBranch": "main",
            "type": kind,
            **more,
            "uuid": name,
            "timestamp": self._at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        self._last = name
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
