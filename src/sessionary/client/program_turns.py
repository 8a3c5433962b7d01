"""Turns of programs that bring their own loop: how they begin to wait for people, and how they go on."""

from collections.abc import Callable, Sequence

from sessionary.actions import questions, turns
from sessionary.app.context import AppContext
from sessionary.client.operations import LEASE_SECONDS, SessionTarget, get_id
from sessionary.errors import BadInput
from sessionary.model.question import NewQuestion, Question
from sessionary.model.question_data import QuestionData, read_question
from sessionary.model.source import Source
from sessionary.model.turn import Lease, Turn
from sessionary.store.database import Tx


def read_questions(
    given: Sequence[QuestionData], *, known: Sequence[Question]
) -> tuple[NewQuestion, ...]:
    """Return new questions of a turn; one without a name is named by its number in the turn.

    Raise `BadInput` for what people cannot answer, and for a name that the turn has used: its answer would be taken
    for the answer to something else.
    """
    if not given:
        raise BadInput("A turn waits for the answers to at least one question.")
    used = {each.asked.name for each in known}
    asked = []
    for number, each in enumerate(given, len(known) + 1):
        new = read_question({**each, "name": each.get("name") or str(number)})
        if new.name in used:
            raise BadInput(f"The turn has a question {new.name!r} already; use another name.")
        used.add(new.name)
        asked.append(new)
    return tuple(asked)


def park_turn(
    app: AppContext,
    source: Source,
    lease: Lease,
    asked: Sequence[NewQuestion],
    *,
    state: str | None,
) -> Callable[[Tx], tuple[Question, ...]]:
    """Return the transaction that asks the questions of a turn and lets it wait; its result is all its questions."""
    # The engine has the rules of who is asked what, and where; it takes 0.2 s to load.
    from sessionary.app.engine import build_engine
    from sessionary.engine import questions as engine_questions
    from sessionary.engine.policy import Asking

    context, moment = build_engine(app).context, app.moment()

    def run(tx: Tx) -> tuple[Question, ...]:
        kept = turns.leave_to_program(tx, lease, state)
        agent = turns.get_agent(tx, lease, profile=app.profile)
        asking = Asking((source,), agent or "")
        engine_questions.park(tx, kept, asked, asking=asking, context=context, moment=moment)
        return tuple(questions.of_turn(tx, lease.turn_id))

    return run


def resume_turn(app: AppContext, target: SessionTarget) -> Callable[[Tx], turns.Begun | Turn]:
    """Return the transaction that goes on with the waiting turn of a session; one that it had to end is its result."""
    claim, moment = turns.Claim(app.holder, LEASE_SECONDS), app.moment()

    def run(tx: Tx) -> turns.Begun | Turn:
        id = get_id(tx, target, {})
        return turns.resume_in_program(tx, id, profile=app.profile, claim=claim, moment=moment)

    return run
