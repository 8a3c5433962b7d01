"""The notices that Sessionary itself sends to people."""

from collections.abc import Sequence

from sessionary.actions import outbox
from sessionary.clock import Moment
from sessionary.engine.context import EngineContext
from sessionary.model.access import BudgetStatus
from sessionary.model.message import Text
from sessionary.model.question import Question
from sessionary.model.source import Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import TurnState
from sessionary.model.turn_options import awaited_by
from sessionary.store.database import Tx

NEWER_MESSAGE = "a newer message came"
NOTHING_SAID = "(The agent said nothing.)"
# How every reason begins that names a budget: it says what is safe and when to try again.
_BUDGET = "The budget of"


def can_reach(context: EngineContext, source: Source) -> bool:
    """Whether a source has a channel to which this installation delivers.

    To a program that waits for the answer to its request, nothing else is delivered.
    """
    if source.channel is None or source.platform not in context.deliverable:
        return False
    return awaited_by(source) is None


def send(tx: Tx, context: EngineContext, source: Source, text: str, *, moment: Moment) -> None:
    """Enqueue a notice for the channel of a source, if this installation delivers to its platform."""
    channel = source.channel
    if channel is not None and can_reach(context, source):
        outbox.enqueue(tx, channel, (Text(text),), profile=context.profile, moment=moment)


def unfinished(state: TurnState, reason: str | None) -> str:
    """Why there is no answer, and what to do."""
    if reason and reason.startswith(_BUDGET):
        return reason
    why = f": {_short(reason)}" if reason else ""
    if state is TurnState.INTERRUPTED:
        return f"Interrupted{why}. Your message is kept. Send /retry to try again."
    return f"Something went wrong{why}. Your message is kept. Send /retry to try again."


def unknown_calls(names: Sequence[str]) -> str:
    """Which tools may or may not have run before the process of a turn ended."""
    tools = ", ".join(dict.fromkeys(one_line(name, 60) for name in names))
    return (
        f"The server stopped while a tool was running: it is not known whether {tools} had an effect. "
        "It was not run again."
    )


def reset(reason: str | None) -> str:
    """A new session has begun by itself; how to go back."""
    words = {"idle": "nothing was said for a while", "daily": "a new day has begun"}
    why = words.get(reason or "", reason or "the last one had ended")
    return f"New session: {why}. Send /resume to go on with an earlier one."


def budget_used_up(status: BudgetStatus, *, outcome: str = "your message was not answered") -> str:
    """Why a message was not answered, or a command was not carried out."""
    return (
        f"{_BUDGET} {_whose(status.scope)} for the {status.per} is used up; {outcome}. "
        f"{_begins_again(status)}"
    )


def run_budget_used_up(status: BudgetStatus) -> str:
    """Why a scheduled task did not begin: a budget is used up."""
    return f"{_run_budget(status)} is used up. {_begins_again(status)}"


def run_budget_reserved(status: BudgetStatus) -> str:
    """Why a scheduled task did not begin: running turns have reserved the rest of a budget."""
    return f"runs that have not ended need {_run_budget(status)}"


def _run_budget(status: BudgetStatus) -> str:
    if status.scope.startswith("schedule:"):
        return f"its budget for the {status.per}"
    return f"the budget of {_whose(status.scope)} for the {status.per}"


def budget_stop(status: BudgetStatus) -> str:
    """Why a turn ended before its next model call."""
    return (
        f"{_BUDGET} {_whose(status.scope)} for the {status.per} is used up; the steps so far are "
        f"kept. {_begins_again(status)}"
    )


def budget_warning(status: BudgetStatus, threshold: int, *, names_scope: bool = False) -> str:
    """How much of a budget is used; with `names_scope` for the owner, who has to know whose it is."""
    return (
        f"{threshold} % of the budget of {_whose(status.scope, by_name=names_scope)} for the "
        f"{status.per} is used: {amounts(status)}. {_begins_again(status)}"
    )


def budget_left(status: BudgetStatus) -> str:
    """One line about a budget for the person who asks."""
    return (
        f"Budget of {_whose(status.scope)} for the {status.per}: {amounts(status)} used "
        f"({int(status.percent)} %). {_begins_again(status)}"
    )


def amounts(status: BudgetStatus) -> str:
    """What is used of the limits of a budget: `8,000 of 10,000 tokens and $1.20 of $5.00`."""
    found = []
    if status.limit_tokens is not None:
        found.append(f"{status.used_tokens:,} of {status.limit_tokens:,} tokens")
    if status.limit_microusd is not None:
        found.append(f"{_dollars(status.used_microusd)} of {_dollars(status.limit_microusd)}")
    return " and ".join(found)


def _dollars(microusd: int) -> str:
    return (
        f"${microusd / 1e6:,.2f}"
        if microusd >= 10_000 or microusd == 0
        else f"${microusd / 1e6:.6f}"
    )


def _begins_again(status: BudgetStatus) -> str:
    return f"It begins again on {status.resets_at:%Y-%m-%d} at 00:00 UTC."


def _whose(scope: str, *, by_name: bool = False) -> str:
    kind, _, name = scope.partition(":")
    if kind == "profile":
        return "the whole profile"
    if by_name or kind in ("agent", "model"):
        return f"the {kind} {one_line(name, 80)}"
    return f"this {kind}"


def unanswerable(reason: str) -> str:
    """Why a message could not even be given to the agent."""
    return f"Your message could not be answered: {_short(reason)}."


def run_failed(name: str, reason: str | None) -> str:
    """A scheduled task has not done what it was for."""
    why = f": {_short(reason)}" if reason else ""
    return f"The scheduled task “{one_line(name, 60)}” did not finish{why}."


def pairing(code: str) -> str:
    """What a stranger may be told when pairing is on."""
    return f"This assistant does not know you yet. If its owner does, give them this code: {code}"


def _short(reason: str) -> str:
    line = " ".join(reason.split()).rstrip(".")
    return line[:200] + ("…" if len(line) > 200 else "")


REMINDER = "This still waits for an answer:"


def waits_for_owner(question: Question, *, is_anybody_asked: bool) -> str:
    """What the person reads whose turn waits for an owner."""
    asked = question.asked
    what = f"the tool {one_line(asked.tool or '', 60)}" if asked.tool else "it"
    if not is_anybody_asked:
        return f"An owner must approve {what} first. They see it in the workbench: no owner can be asked in a chat."
    return f"An owner must approve {what} first. You get the answer when they have decided."


def too_long_to_approve(question: Question, length: int) -> str:
    """What is shown of a call whose arguments are too long to be read in a chat."""
    tool = one_line(question.asked.tool or "", 60)
    return (
        f"May the tool {tool} be called? Its arguments have about {length:,} characters, too many to "
        f"read here: answer in the workbench, or with `sessionary questions show {question.id}`."
    )


def wait_for_answer() -> str:
    """What a person reads whose message waits because a question is open."""
    return "Your message waits until an open question is answered. /stop gives the turn up."
