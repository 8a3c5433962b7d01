"""Who may reach the agent: people by permits and pairing codes, programs by tokens, browsers by logins; and budgets."""

from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

from msgspec import Struct


class Permit(Struct, frozen=True):
    """Someone who may write to the agent."""

    platform: str
    person_id: str
    name: str | None
    given_at: datetime
    given_by: str


class PairingRequest(NamedTuple):
    """A stranger who asked for access, and until when their code is valid."""

    platform: str
    person_id: str
    name: str | None
    asked_at: datetime
    expires_at: datetime


class BudgetUse(Struct, frozen=True):
    """What was used in a period, and what running turns have reserved beside it."""

    tokens: int = 0
    cost_microusd: int = 0
    reserved_tokens: int = 0
    reserved_microusd: int = 0


class BudgetStatus(Struct, frozen=True, kw_only=True):
    """A budget and what was used of it in the current day or month; a limit of None means that there is none.

    `scope` is what it counts, such as `person:telegram:42`; a kind alone, such as `person`, if nothing was used yet.
    """

    scope: str
    per: Literal["day", "month"]
    period: str
    resets_at: datetime
    limit_tokens: int | None
    limit_microusd: int | None
    used_tokens: int
    used_microusd: int
    reserved_tokens: int
    reserved_microusd: int
    warned: tuple[int, ...] = ()

    @property
    def percent(self) -> float:
        """How much is used of the tokens or of the money, whichever share is larger."""
        return max(
            0.0 if limit is None else used * 100 / limit
            for used, limit in (
                (self.used_tokens, self.limit_tokens),
                (self.used_microusd, self.limit_microusd),
            )
        )

    @property
    def is_used_up(self) -> bool:
        """Whether no turn may begin before `resets_at`."""
        return self.percent >= 100


class Scope(StrEnum):
    """What a caller may do: each includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, wanted: "Scope") -> bool:
        """Whether this scope is enough."""
        order = list(Scope)
        return order.index(self) >= order.index(wanted)


class Token(Struct, frozen=True):
    """A program's token, without its secret."""

    id: str
    profile: str
    name: str
    scope: Scope
    created_at: datetime
    revoked_at: datetime | None = None


class Login(Struct, frozen=True):
    """A browser that is logged in."""

    id: str
    profile: str
    began_at: datetime
    expires_at: datetime
