"""Who may reach the agent: people by permits and pairing codes, programs by tokens, browsers by logins; and budgets."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

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
