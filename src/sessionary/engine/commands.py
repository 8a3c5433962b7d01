"""Commands: what a person asks of the house and not of the agent. One registry for all."""

from collections.abc import Callable
from dataclasses import dataclass

from sessionary.clock import Moment
from sessionary.engine.context import EngineContext
from sessionary.model.key import SessionKey
from sessionary.model.source import Source
from sessionary.store.database import Tx


@dataclass(frozen=True, slots=True)
class Asked:
    """A command as a person gave it, and where."""

    name: str
    words: str
    key: SessionKey
    source: Source
    context: EngineContext
    moment: Moment


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Something that takes longer than a transaction, to be done after it."""

    kind: str
    session_id: str
    text: str | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What the person is told."""

    text: str
    follow_up: FollowUp | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the registry."""

    name: str
    usage: str
    help: str
    run: Callable[[Tx, Asked], Result]


@dataclass(frozen=True, slots=True)
class Call:
    """A command that was found in a message."""

    name: str
    words: str
    command: Command


REGISTRY: dict[str, Command] = {}


def command(
    name: str, usage: str, help: str
) -> Callable[[Callable[[Tx, Asked], Result]], Callable[[Tx, Asked], Result]]:
    """Enter a function into the registry."""

    def enter(run: Callable[[Tx, Asked], Result]) -> Callable[[Tx, Asked], Result]:
        REGISTRY[name] = Command(name, usage, help, run)
        return run

    return enter
