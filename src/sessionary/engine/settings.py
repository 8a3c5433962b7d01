"""How the engine runs: times, limits, access and budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Whoever writes here was authenticated by the machine or by the web server.
TRUSTED = frozenset({"terminal", "web", "schedule"})


class WhileRunning(StrEnum):
    """What happens to a message that arrives while a turn runs."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"


class Strangers(StrEnum):
    """What happens to a stranger's direct message."""

    IGNORE = "ignore"
    PAIR = "pair"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who may reach the agent on a platform."""

    everyone: bool = False
    allow: frozenset[str] = frozenset()
    strangers: Strangers = Strangers.IGNORE


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be used in a day or a month; None means without limit.

    `reserve_tokens` and `reserve_microusd`: how much each turn reserves when it begins; None means an estimate.
    """

    per: str = "day"
    tokens: int | None = None
    microusd: int | None = None
    reserve_tokens: int | None = None
    reserve_microusd: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The engine's own settings."""

    lease_seconds: float = 30.0
    poll_seconds: float = 1.0
    sweep_seconds: float = 5.0
    confirm_seconds: float = 3.0
    show_seconds: float = 0.5
    turn_seconds: float = 900.0
    longest_output: int = 2_000_000
    most_turns: int = 64
    while_running: WhileRunning = WhileRunning.QUEUE
    send_attempts: int = 12
    send_seconds: float = 45.0
    longest_backoff: float = 300.0
    compact_at_tokens: int | None = None
    access: Mapping[str, AccessPolicy] = field(default_factory=dict)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    finalizer: str | None = None

    def access_for(self, platform: str) -> AccessPolicy:
        """Return the policy of a platform; one that is not configured admits nobody."""
        return self.access.get(platform, AccessPolicy())
