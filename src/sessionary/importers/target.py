"""Where imports go."""

from dataclasses import dataclass

from sessionary.clock import Moment
from sessionary.store.database import Store


@dataclass(frozen=True, slots=True)
class Target:
    """A profile of a store, and by which tool's names sessions are known there."""

    store: Store
    profile: str
    tool: str
    title: str
    moment: Moment
    # Whether a person named the profile: then even what its tool keeps in another goes there.
    is_asked_for: bool = False
    # Which version reads: what an older one could make nothing of is read again.
    version: str = ""
