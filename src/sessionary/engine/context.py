"""What the composition root gives to an engine."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sessionary.clock import Clock, Ids, Moment
from sessionary.engine.events import EventBus
from sessionary.engine.ports import Adapter, Agent
from sessionary.engine.settings import Settings
from sessionary.model.key import Isolation, SessionKey, key_for
from sessionary.model.prompt import PromptContext
from sessionary.model.reset import Policies
from sessionary.model.source import Source
from sessionary.model.usage import Usage
from sessionary.store.database import Store


@dataclass(frozen=True, slots=True)
class EngineContext:
    """The store, clock, agents, adapters and settings that all loops of an engine share."""

    store: Store
    clock: Clock
    ids: Ids
    holder: str
    agent_for: Callable[[Source, str | None], Agent]
    system_prompt: Callable[[str | None, PromptContext], str]
    priced: Callable[[Usage], Usage]
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    deliverable: frozenset[str] = frozenset()
    policies: Policies = field(default_factory=Policies)
    isolation: Isolation = field(default_factory=Isolation)
    settings: Settings = field(default_factory=Settings)
    profile: str = "main"
    redact_people: bool = False
    bus: EventBus = field(default_factory=EventBus)
    rng: random.Random = field(default_factory=random.SystemRandom)

    def moment(self) -> Moment:
        """Return the current time, with the source of new ids."""
        return Moment(self.clock.now(), self.ids)

    def key(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a source belongs to."""
        return key_for(source, profile=self.profile, isolation=self.isolation)
