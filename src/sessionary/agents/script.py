"""The demo agent: plays scripted scenes at a set pace, offline and always alike."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sessionary.agents.chats import cut, last_user_text
from sessionary.agents.scenes import SIGNATURE, Says, Thinks, Uses, scene_for
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.model.message import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from sessionary.model.usage import CostStatus, Usage

MODEL = "demo"
DEFAULT_PACE_SECONDS = 0.02

_LONGEST_QUOTE = 300
_PIECES = re.compile(r"\s*\S+\s*")
_CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class _Reply:
    """What the agent has said since its last finished step."""

    turn_id: str
    read: int
    calls: int = 0
    parts: list[Part] = field(default_factory=list)

    def finished(self, reason: str) -> Step:
        """The parts as a step, with what a model would have used; the next begins empty."""
        self.calls += 1
        written = sum(len(getattr(part, "text", "")) for part in self.parts)
        thought = sum(len(part.text) for part in self.parts if isinstance(part, Reasoning))
        usage = Usage(
            model=MODEL,
            input_tokens=self.read // _CHARACTERS_PER_TOKEN,
            output_tokens=written // _CHARACTERS_PER_TOKEN,
            reasoning_tokens=thought // _CHARACTERS_PER_TOKEN,
            cost_microusd=0,
            cost_status=CostStatus.INCLUDED,
            provider=MODEL,
            call_id=f"{MODEL}-{self.turn_id}-{self.calls}",
        )
        message = Message(Role.ASSISTANT, tuple(self.parts), model=MODEL, finish_reason=reason)
        self.read += written
        self.parts = []
        return Step(message, usage)


class ScriptRunner:
    """Plays the scene that fits what the person said; a delta every `pace` seconds."""

    def __init__(self, *, pace: float = DEFAULT_PACE_SECONDS) -> None:
        self._pace = pace

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Stream the scene: each tool call and its answer are steps, the last words too."""
        said = last_user_text(request.context)
        read = len(request.system_prompt) + sum(len(str(chat)) for chat in request.context)
        reply = _Reply(request.turn_id, read)
        for act in (*scene_for(said).acts, Says(SIGNATURE)):
            match act:
                case Thinks(text):
                    reply.parts.append(Reasoning(text))
                    async for piece in self._streamed(text):
                        yield Delta(piece, thinking=True)
                case Says(text):
                    words = text.replace("{said}", cut(said, _LONGEST_QUOTE))
                    async for piece in self._streamed(_appended(reply.parts, words)):
                        yield Delta(piece)
                case Uses():
                    call_id = f"demo-{request.turn_id}-{reply.calls + 1}"
                    for step in _used(act, call_id, reply):
                        await asyncio.sleep(self._pace)
                        yield step
        yield reply.finished("stop")

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def _streamed(self, text: str) -> AsyncIterator[str]:
        for piece in _PIECES.findall(text):
            await asyncio.sleep(self._pace)
            yield piece


def _appended(parts: list[Part], words: str) -> str:
    """Add words to what is being said; what of it is new on the screen."""
    if parts and isinstance(parts[-1], Text):
        new = f"\n\n{words}"
        parts[-1] = Text(parts[-1].text + new)
        return new
    parts.append(Text(words))
    return words


def _used(act: Uses, call_id: str, reply: _Reply) -> tuple[Step, Step]:
    reply.parts.append(ToolCall(call_id, act.tool, dict(act.arguments)))
    answer = ToolResult(call_id, act.answer, act.tool, is_error=act.fails)
    return reply.finished("tool_calls"), Step(Message(Role.TOOL, (answer,)))
