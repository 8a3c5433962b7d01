"""Writes files as Claude Code does, from a conversation that the test knows."""

import itertools
import json
import os
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
LONG_AGO = datetime(2026, 2, 4, 12, tzinfo=UTC).timestamp()
SONNET, OPUS = "claude-sonnet-4-5-20250929", "claude-opus-4-1-20250805"
# Dollars for a million tokens, as the provider's page has them: input, output, cache read, write.
RATES = {SONNET: ("3", "15", "0.30", "3.75"), OPUS: ("15", "75", "1.50", "18.75")}
_numbers = itertools.count(1)


def new_uuid() -> str:
    return str(uuid.UUID(int=0x5E55_0000_4000_8000 << 64 | next(_numbers), version=4))


@dataclass
class Ledger:
    """What was really used: one call for each answer, however often it is written down."""

    calls: dict[str, tuple[str, int, int, int, int]] = field(default_factory=dict)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Input, output, cache read and cache write of all calls."""
        return tuple(map(sum, zip(*(call[1:] for call in self.calls.values()), strict=True)))

    @property
    def microdollars(self) -> int:
        return sum(map(_microdollars, self.calls.values()))


def _microdollars(call: tuple[str, int, int, int, int]) -> int:
    model, *tokens = call
    exact = sum(
        (Decimal(rate) * count for rate, count in zip(RATES[model], tokens, strict=True)),
        Decimal(0),
    )
    return int(exact.to_integral_value(ROUND_HALF_UP))


class Tape:
    """One file that grows."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        *,
        ledger: Ledger | None = None,
        version: str = "2.1.0",
        agent: str | None = None,
    ) -> None:
        self.path, self.session_id, self.agent = path, session_id, agent
        self.ledger = ledger if ledger is not None else Ledger()
        self.version = version
        self.lines: list[Json] = []
        self.last: str | None = None
        self.at = NOON
        self._written = 0

    def line(self, kind: str, *, parent: Any = ..., chained: bool = True, **more: Any) -> Json:
        """Any line, behind the last one unless another is named."""
        self.at += timedelta(seconds=1)
        made: Json = {
            "parentUuid": self.last if parent is ... else parent,
            "isSidechain": self.agent is not None,
            "userType": "external",
            "cwd": "/home/mia/garden",
            "sessionId": self.session_id,
            "version": self.version,
            "gitBranch": "main",
            "type": kind,
            "uuid": new_uuid(),
            "timestamp": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **({} if self.agent is None else {"agentId": self.agent}),
            **more,
        }
        self.lines.append(made)
        if chained:
            self.last = made["uuid"]
        return made

    def bare(self, **fields: Any) -> None:
        """A line that is no part of the chain."""
        self.lines.append(fields)

    def prompt(self, content: Any, **more: Any) -> Json:
        return self.line("user", message={"role": "user", "content": content}, **more)

    def answer(
        self,
        *blocks: Json,
        model: str = SONNET,
        tokens: tuple[int, int, int, int] = (10, 50, 1000, 200),
        snapshots: bool = False,
        stop: str | None = None,
    ) -> list[Json]:
        """One answer: a line for each block, or ever longer copies of all of it."""
        name, request = f"msg_{next(_numbers):06d}", f"req_{next(_numbers):06d}"
        self.ledger.calls[name] = (model, *tokens)
        lines = []
        for number, block in enumerate(blocks, 1):
            is_last = number == len(blocks)
            content = list(blocks[:number]) if snapshots else [block]
            lines.append(
                self.line(
                    "assistant",
                    requestId=request,
                    message={
                        "id": name,
                        "type": "message",
                        "role": "assistant",
                        "model": model,
                        "content": content,
                        "stop_reason": stop if is_last else None,
                        "usage": _usage(tokens, is_last=is_last),
                    },
                )
            )
        return lines

    def result(self, call_id: str, content: Any, *, parent: Any = ..., **block: Any) -> Json:
        given = {"type": "tool_result", "tool_use_id": call_id, "content": content, **block}
        return self.line(
            "user",
            parent=parent,
            message={"role": "user", "content": [given]},
            toolUseResult={"stdout": content, "interrupted": False},
        )

    def compact(self, summary: str) -> None:
        before = self.last
        self.line(
            "system",
            parent=None,
            subtype="compact_boundary",
            content="Conversation compacted",
            level="info",
            logicalParentUuid=before,
            compactMetadata={"trigger": "auto", "preTokens": 155_000},
        )
        self.prompt(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def copy(self, path: Path, session_id: str, *, renamed: bool = False) -> "Tape":
        """What `--resume` and `--fork-session` write: all lines again, in another file."""
        other = Tape(path, session_id, ledger=self.ledger, version=self.version)
        other.lines = [
            line | ({"sessionId": session_id} if renamed and "sessionId" in line else {})
            for line in self.lines
        ]
        other.last, other.at = self.last, self.at
        return other

    def write(self, *, at: float = LONG_AGO) -> Path:
        """Append what is new.

        A new file gets its name when it is complete and has its time: a program that watches the
        folder must not take it for one that is still written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        path = self.path if self.path.exists() else self.path.with_suffix(".unfinished")
        with path.open("ab") as file:
            for line in self.lines[self._written :]:
                file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode())
                file.write(b"\n")
        self._written = len(self.lines)
        os.utime(path, (at, at))
        path.rename(self.path)
        return self.path


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def thinking(words: str) -> Json:
    return {"type": "thinking", "thinking": words, "signature": "sig=="}


def call(id: str, name: str, **given: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def _usage(tokens: tuple[int, int, int, int], *, is_last: bool) -> Json:
    given, output, read, written = tokens
    return {
        "input_tokens": given,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        # While an answer comes in, only its first tokens have been counted.
        "output_tokens": output if is_last else min(3, output),
        "service_tier": "standard",
    }
