"""A runner that does what a test tells it, event by event."""

from collections.abc import AsyncIterator, Callable, Sequence

from sessionary.agents.registry import Agent
from sessionary.agents.summaries import ExtractiveSummarizer, Titler
from sessionary.engine.ports import Delta, Event, Runner, Step, TurnRequest
from sessionary.model.message import message
from sessionary.model.usage import Usage

Answer = Callable[[TurnRequest], Sequence[Event]]


class ScriptedRunner:
    """Gives the events that a function makes of the request; remembers every request."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer: Answer = answer or reply_to
        self.requests: list[TurnRequest] = []
        self.between: Callable[[], None] = lambda: None

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Answer with what was scripted."""
        self.requests.append(request)
        for event in self.answer(request):
            self.between()
            yield event
        self.between()

    async def close(self) -> None:
        """Nothing is held."""


def reply_to(request: TurnRequest) -> Sequence[Event]:
    """A turn with everything in it: words as they come, a tool, its answer, the reply."""
    asked = str(request.context[-1]["content"])
    call = {"type": "tool_call", "id": f"call-{request.turn_id}", "name": "look", "arguments": {}}
    found = {
        "type": "tool_result",
        "call_id": f"call-{request.turn_id}",
        "name": "look",
        "content": "42",
    }
    return [
        Delta("looking"),
        Step(
            message("assistant", [call]), Usage(model="scripted", input_tokens=3, output_tokens=1)
        ),
        Step(message("tool", [found])),
        Delta("re: "),
        Delta(asked),
        Step(
            message("assistant", f"re: {asked}"),
            Usage(model="scripted", input_tokens=5, output_tokens=2),
        ),
    ]


def scripted_agent(runner: Runner) -> Agent:
    """An agent around a runner of a test that needs nothing from outside."""
    return Agent("scripted", None, runner, ExtractiveSummarizer(), Titler())
