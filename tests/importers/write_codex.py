"""Writes rollouts as Codex does, from a conversation that the test knows."""

import itertools
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
LONG_AGO = datetime(2026, 2, 4, 12, tzinfo=UTC).timestamp()
MODEL = "gpt-5-codex"
# Dollars for a million tokens, as the provider's page has them: input, cached input, output.
RATES = tuple(map(Decimal, ("1.25", "0.125", "10")))
_numbers = itertools.count(1)


def uuid7(at: datetime) -> str:
    """A name that begins with its time."""
    text = f"{int(at.timestamp() * 1000):012x}"
    return f"{text[:8]}-{text[8:]}-7abc-8def-{next(_numbers):012x}"


@dataclass
class Ledger:
    """What was really used: input, of it cached, output, of it reasoning."""

    calls: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def microdollars(self) -> int:
        return sum(map(_microdollars, self.calls))


def _microdollars(call: tuple[int, int, int, int]) -> int:
    sent, cached, output, _ = call
    exact = RATES[0] * (sent - cached) + RATES[1] * cached + RATES[2] * output
    return int(exact.to_integral_value(ROUND_HALF_UP))


class Rollout:
    """One file that grows."""

    def __init__(
        self,
        home: Path,
        *,
        at: datetime = NOON,
        ledger: Ledger | None = None,
        is_named: bool = True,
        folder: str = "sessions/2026/02/03",
        **meta: Any,
    ) -> None:
        self.at = at
        self.id = uuid7(at)
        self.path = home / folder / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{self.id}.jsonl"
        self.ledger = ledger if ledger is not None else Ledger()
        # Whether turns have names, as they have in newer releases.
        self.is_named = is_named
        self.lines: list[Json] = []
        self.total = [0, 0, 0, 0]
        self._written = 0
        payload = {
            "id": self.id,
            "timestamp": _iso(at),
            "cwd": "/home/mia/garden",
            "originator": "codex_cli_rs",
            "cli_version": "0.80.0",
            "source": "cli",
            "model_provider": "openai",
            "base_instructions": {"text": "You are a gardener."},
            "git": {"branch": "main", "commit_hash": "abc"},
        }
        self.line("session_meta", **(payload | meta))

    def line(self, kind: str, **payload: Any) -> Json:
        made = {"timestamp": _iso(self.at), "type": kind, "payload": payload}
        self.lines.append(made)
        return made

    def tick(self, seconds: float = 3) -> None:
        self.at += timedelta(seconds=seconds)

    def item(self, kind: str, **more: Any) -> None:
        self.line("response_item", type=kind, **more)

    def event(self, kind: str, **more: Any) -> None:
        self.line("event_msg", type=kind, **more)

    def turn(self, words: str, *images: str, model: str = MODEL) -> None:
        """A person's prompt, and what the program writes with it."""
        self.tick()
        named = {"turn_id": uuid7(self.at)} if self.is_named else {}
        self.line("turn_context", cwd="/home/mia/garden", model=model, **named)
        content: list[Json] = [{"type": "input_text", "text": words}]
        content += [{"type": "input_image", "image_url": url} for url in images]
        self.item("message", role="user", content=content)
        self.event("user_message", message=words)

    def think(self, words: str) -> None:
        summary = [{"type": "summary_text", "text": words}]
        self.item("reasoning", summary=summary, encrypted_content="secret==")
        self.event("agent_reasoning", text=words)

    def answer(self, words: str) -> None:
        self.item("message", role="assistant", content=[{"type": "output_text", "text": words}])
        self.event("agent_message", message=words)

    def call(self, id: str, name: str, **arguments: Any) -> None:
        self.item("function_call", name=name, arguments=json.dumps(arguments), call_id=id)

    def output(self, id: str, output: Any) -> None:
        self.item("function_call_output", call_id=id, output=output)

    def count(self, *tokens: int, repeats: int = 1) -> None:
        """The tokens of a call, reported as often as the program likes."""
        sent, cached, output, reasoning = tokens
        self.ledger.calls.append((sent, cached, output, reasoning))
        self.total = [a + b for a, b in zip(self.total, tokens, strict=True)]
        for _ in range(repeats):
            self.event(
                "token_count",
                info={
                    "total_token_usage": _tokens(self.total),
                    "last_token_usage": _tokens(tokens),
                    "model_context_window": 272_000,
                },
                rate_limits={"primary": {"used_percent": 1.0}},
            )

    def copy(self, home: Path, *, seconds: float = 600, **meta: Any) -> "Rollout":
        """A thread that begins with all lines of this one, with new timestamps."""
        at = self.at + timedelta(seconds=seconds)
        other = Rollout(home, at=at, ledger=self.ledger, is_named=self.is_named, **meta)
        for line in self.lines:
            other.lines.append(line | {"timestamp": _iso(other.at + timedelta(milliseconds=4))})
        other.total = list(self.total)
        return other

    def write(self, *, at: float = LONG_AGO) -> Path:
        """Append what is new."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            for line in self.lines[self._written :]:
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._written = len(self.lines)
        os.utime(self.path, (at, at))
        return self.path


def _tokens(counts: Any) -> Json:
    sent, cached, output, reasoning = counts
    return {
        "input_tokens": sent,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "reasoning_output_tokens": reasoning,
        "total_tokens": sent + output,
    }


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
