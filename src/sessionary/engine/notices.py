"""The notices that Sessionary itself sends to people."""

from sessionary.actions import outbox
from sessionary.clock import Moment
from sessionary.engine.context import EngineContext
from sessionary.model.message import Text
from sessionary.model.source import Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx

NEWER_MESSAGE = "a newer message came"
NOTHING_SAID = "(The agent said nothing.)"


def send(tx: Tx, context: EngineContext, source: Source, text: str, *, moment: Moment) -> None:
    """Enqueue a notice for the channel of a source, if this installation delivers to its platform."""
    channel = source.channel
    if channel is not None and channel.platform in context.deliverable:
        outbox.enqueue(tx, channel, (Text(text),), profile=context.profile, moment=moment)


def unfinished(state: TurnState, reason: str | None) -> str:
    """Why there is no answer, and what to do."""
    why = f": {_short(reason)}" if reason else ""
    if state is TurnState.INTERRUPTED:
        return f"Interrupted{why}. Your message is kept. Send /retry to try again."
    return f"Something went wrong{why}. Your message is kept. Send /retry to try again."


def reset(reason: str | None) -> str:
    """A new session has begun by itself; how to go back."""
    words = {"idle": "nothing was said for a while", "daily": "a new day has begun"}
    why = words.get(reason or "", reason or "the last one had ended")
    return f"New session: {why}. Send /resume to go on with an earlier one."


def budget_used_up(scope: str, per: str) -> str:
    """Why a message was not answered."""
    kind = scope.split(":", 1)[0]
    return f"The budget of this {kind} for the {per} is used up; your message was not answered."


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
