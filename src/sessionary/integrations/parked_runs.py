"""Runs of an SDK that stop for approvals: a turn of a program keeps them until people have answered."""

import inspect
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sessionary.errors import BadInput, Conflict
from sessionary.model import codec
from sessionary.model.question import Question
from sessionary.model.question_data import QuestionData


class ProgramTurn(Protocol):
    """A turn that a program has begun or resumed, with a synchronous or an asynchronous client."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the turn has asked people, with their answers."""

    @property
    def state(self) -> str | None:
        """What was stored with the turn when it began to wait."""

    def wait_for(
        self, questions: Sequence[QuestionData], *, state: str | None = None
    ) -> tuple[Question, ...] | Awaitable[tuple[Question, ...]]:
        """Ask people something, and let the turn wait for the answers."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A tool call that a run asks an approval for."""

    id: str
    tool: str
    arguments: dict[str, Any]

    def is_asked_by(self, question: Question) -> bool:
        """Whether a question is about exactly this call."""
        asked = question.asked
        return asked.tool == self.tool and asked.arguments == codec.decode(
            codec.encode(self.arguments)
        )


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """A run as it was stored with its turn, and the questions that it has asked, each with the id of its call."""

    run: Any
    asked: tuple[tuple[str, Question], ...]

    def question_about(self, call: PendingCall) -> Question:
        """Return the question about a call; raise `Conflict` if nobody was asked about exactly this one."""
        for id, question in self.asked:
            if id == call.id and call.is_asked_by(question):
                return question
        raise Conflict(
            f"The run wants to call {call.tool}, and nobody was asked about this call; nothing was run."
        )


async def park(
    turn: ProgramTurn, sdk: str, calls: Sequence[PendingCall], run: Any
) -> tuple[Question, ...]:
    """Ask whether calls may run, and store the run with the turn, in one transaction."""
    if not calls:
        raise BadInput("The run waits for no approval, so there is nothing to ask.")
    if len({call.id for call in calls}) < len(calls):
        raise BadInput("Two calls of the run have the same id, so nobody can tell them apart.")
    # Each round has names of its own: a model may use the id of an earlier call again.
    names = [str(number) for number, _ in enumerate(calls, len(turn.questions) + 1)]
    questions: list[QuestionData] = [
        {"name": name, "tool": call.tool, "arguments": call.arguments}
        for name, call in zip(names, calls, strict=True)
    ]
    ids = [[name, call.id] for name, call in zip(names, calls, strict=True)]
    asking = turn.wait_for(questions, state=json.dumps({"sdk": sdk, "asked": ids, "run": run}))
    return await asking if inspect.isawaitable(asking) else asking


def load(turn: ProgramTurn, sdk: str) -> ParkedRun:
    """Return the run that was stored with a turn by `park`."""
    try:
        stored = json.loads(turn.state or "")
        if stored["sdk"] != sdk:
            raise BadInput(f"This turn has a run of {stored['sdk']}, not of {sdk}.")
        by_name = {each.asked.name: each for each in turn.questions}
        asked = tuple((id, by_name[name]) for name, id in stored["asked"])
        return ParkedRun(stored["run"], asked)
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"This turn has no run of {sdk}; use it in `resume_turn`.") from error
