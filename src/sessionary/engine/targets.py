"""Where a scheduled task's output goes."""

from dataclasses import dataclass

from sessionary.actions import access, deliver
from sessionary.actions.schedule import Due
from sessionary.clock import Moment
from sessionary.engine.settings import TRUSTED
from sessionary.model.part import Text
from sessionary.model.source import Channel
from sessionary.store.database import Tx


@dataclass(frozen=True, slots=True)
class Target:
    """A channel, or why there is none; neither means that the output stays here, as wished."""

    channel: Channel | None = None
    problem: str | None = None


def target_of(tx: Tx, due: Due) -> Target:
    """Where the output of an occurrence goes.

    A platform that no adapter serves here may be served by another process: the outbox keeps it.
    """
    found = due.schedule
    match found.deliver_to:
        case "local":
            return Target()
        case "origin":
            channel = None if found.origin is None else found.origin.channel
            # Places without an outbox: what is said there is read there.
            is_here = channel is None or channel.platform in TRUSTED
            return Target() if is_here else Target(channel)
        case name if ":" not in name:
            homes = {home.platform: home for home in access.homes(tx, profile=found.profile)}
            home = homes.get(name)
            if home is None:
                return Target(problem=f"not delivered: {name} has no home channel; send /sethome")
            return Target(Channel(home.platform, home.chat_id, home.thread_id))
        case explicit:
            return Target(Channel.parse(explicit))


def tell(tx: Tx, due: Due, text: str, *, moment: Moment) -> None:
    """Deliver a word of the house about an occurrence."""
    channel = target_of(tx, due).channel
    if channel is not None:
        deliver.enqueue(tx, channel, (Text(text),), profile=due.schedule.profile, moment=moment)
