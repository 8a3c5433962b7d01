"""Agents without a model: the demo agent, which plays scripted scenes, and an echo."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from sessionary.agents.registry import AgentKind
from sessionary.config.setting import MAX_SECONDS, Setting
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.model.message import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from sessionary.model.transcript import cut_middle, last_user_text
from sessionary.model.usage import CostStatus, Usage

SIGNATURE = "*Demo agent: this answer is scripted, no model was asked.*"


@dataclass(frozen=True, slots=True)
class Thinks:
    """Reasoning that the agent shows."""

    text: str


@dataclass(frozen=True, slots=True)
class Uses:
    """A tool call with a scripted result; nothing is run."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answer: str = ""
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Says:
    """A text; `{said}` is replaced by the person's message."""

    text: str


Act = Thinks | Uses | Says


@dataclass(frozen=True, slots=True)
class Scene:
    """One scripted reply, and the words that select it."""

    name: str
    words: re.Pattern[str]
    acts: tuple[Act, ...]


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


FAILING = Scene(
    "a failing tool",
    _words("fail(?:s|ed|ing|ure)?", "break", "broken", "crash", "errors?"),
    (
        Thinks(
            "They want to see what happens when a tool fails. I will read a file that is not there."
        ),
        Says("Let me read that file."),
        Uses(
            "read_file",
            {"path": "notes/missing.md"},
            "notes/missing.md: no such file or directory",
            fails=True,
        ),
        Says(
            "The tool failed: `notes/missing.md` does not exist. Nothing was changed. "
            "In a real conversation I would now ask you for the right path."
        ),
    ),
)
EDITING = Scene(
    "an edit",
    _words("edit", "change", "fix", "rename", "refactor", "patch", "diff"),
    (
        Thinks("First read the file, then make the smallest change that does it."),
        Uses(
            "read_file",
            {"path": "greeting.py"},
            'def greet(name):\n    print("Hello " + name)\n',
        ),
        Says("I see it: the name is joined to the text by hand, and nothing is returned."),
        Uses(
            "edit_file",
            {
                "path": "greeting.py",
                "old": 'print("Hello " + name)',
                "new": 'return f"Hello {name}!"',
            },
            "--- a/greeting.py\n+++ b/greeting.py\n@@ -1,2 +1,2 @@\n-def greet(name):\n"
            '-    print("Hello " + name)\n+def greet(name: str) -> str:\n'
            '+    return f"Hello {name}!"\n',
        ),
        Says("Done. `greet` now **returns** the greeting, so that a test can look at it."),
    ),
)
LONG = Scene(
    "a long answer",
    _words("long", "markdown", "explain", "table", "code", "essay", "document"),
    (
        Thinks("A long answer shows headings, lists, a table and code."),
        Says(
            "## How a message becomes a reply\n\n"
            "1. It is **stored** before it is acknowledged.\n"
            "2. A *turn* begins, one at a time per conversation.\n"
            "3. Every step is stored as it finishes.\n"
            "4. The reply is a row in the outbox before it is sent.\n\n"
            "| what | where | since |\n|---|---|---|\n"
            "| inbox | `arrivals` | the first message |\n"
            "| log | `entries` | the first turn |\n"
            "| outbox | `deliveries` | the first reply |\n\n"
            "### In code\n\n"
            "```python\nimport sessionary\n\n"
            "with sessionary.Sessionary() as client:\n"
            '    source = sessionary.Source(platform="web", chat_id="notes")\n'
            '    client.session(source).append("user", "hello")\n```\n\n'
            "> A message never changes. A retracted one stays readable.\n\n"
            "- Searching finds every word, in any script: 会話, разговор, συνομιλία.\n"
            "- Nothing here needed the network.\n"
        ),
    ),
)
TOOL = Scene(
    "a tool",
    _words("files?", "list", "ls", "show", "what", "which", "where", "how many", "run", "search"),
    (
        Thinks("I should look before I answer."),
        Uses(
            "list_files",
            {"path": ".", "depth": 1},
            "README.md     4.1 kB\ngreeting.py   0.1 kB\nnotes/        3 files",
        ),
        Says(
            "There are two files and a folder: `README.md`, `greeting.py` and `notes/` "
            "(with three files)."
        ),
    ),
)
GREETING = Scene(
    "a greeting",
    _words(
        "hi", "hello", "hey", "hallo", "hola", "salut", "servus", "good (?:morning|evening|day)"
    ),
    (
        Says(
            "Hello! I am the demo agent, here so that everything can be tried without a model. "
            "Ask me to **list files**, to **fix** something, to **fail**, or for a **long** answer."
        ),
    ),
)
OTHERWISE = Scene(
    "anything else",
    re.compile(""),
    (
        Thinks("No scene fits these words, so I say what I can play."),
        Says(
            "You said: {said}\n\nI am the demo agent and know five scenes. Say *hello*, ask me to "
            "*list files*, to *fix* something, to *fail*, or for a *long* answer."
        ),
    ),
)
SCENES = (FAILING, EDITING, LONG, TOOL, GREETING, OTHERWISE)


def scene_for(text: str) -> Scene:
    """Return the first scene whose words are in the text."""
    return next(scene for scene in SCENES if scene.words.search(text))


MODEL = "demo"
DEFAULT_PACE_SECONDS = 0.02
_LONGEST_QUOTE = 300
_PIECES = re.compile(r"\s*\S+\s*")
_CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class _Reply:
    """The parts of the reply since the last finished step."""

    turn_id: str
    read: int
    calls: int = 0
    parts: list[Part] = field(default_factory=list)

    def finished(self, reason: str) -> Step:
        """Return the parts as a step, with the usage that a model would report, and start an empty step."""
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
    """Plays the scene that fits the person's message, one delta every `pace` seconds."""

    model = MODEL

    def __init__(self, *, pace: float = DEFAULT_PACE_SECONDS) -> None:
        self._pace = pace

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Stream the scene: each tool call, its result and the last text are steps."""
        prompt = last_user_text(request.context)
        read = len(request.system_prompt) + sum(len(str(chat)) for chat in request.context)
        reply = _Reply(request.turn_id, read)
        for act in (*scene_for(prompt).acts, Says(SIGNATURE)):
            match act:
                case Thinks(text):
                    reply.parts.append(Reasoning(text))
                    async for piece in self._streamed(text):
                        yield Delta(piece, thinking=True)
                case Says(text):
                    words = text.replace("{said}", cut_middle(prompt, _LONGEST_QUOTE))
                    async for piece in self._streamed(_appended(reply.parts, words)):
                        yield Delta(piece)
                case Uses():
                    call_id = f"demo-{request.turn_id}-{reply.calls + 1}"
                    for step in _used(act, call_id, reply):
                        await asyncio.sleep(self._pace)
                        yield step
        yield reply.finished("stop")

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    async def _streamed(self, text: str) -> AsyncIterator[str]:
        for piece in _PIECES.findall(text):
            await asyncio.sleep(self._pace)
            yield piece


def _appended(parts: list[Part], words: str) -> str:
    """Append text to the reply; return the delta to stream."""
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


class EchoRunner:
    """Answers with the last user text."""

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield the text as one delta and one step."""
        text = last_user_text(request.context)
        yield Delta(text)
        yield Step(Message(Role.ASSISTANT, (Text(text),), finish_reason="stop"))

    async def close(self) -> None:
        """Do nothing: there are no resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """The settings of the demo agent."""

    pace_seconds: Annotated[
        float, Setting("the pause after each word of the demo", ge=0, le=MAX_SECONDS)
    ] = DEFAULT_PACE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoSettings:
    """An agent that repeats the message has no settings of its own."""


SCRIPT = AgentKind(
    name="script",
    title="The demo, offline",
    settings=ScriptSettings,
    create=lambda settings, _: ScriptRunner(pace=settings.pace_seconds),
    documentation="docs/agents.md",
)
ECHO = AgentKind(
    name="echo",
    title="Repeats the message",
    settings=EchoSettings,
    create=lambda _, __: EchoRunner(),
    documentation="docs/agents.md",
)
