"""What one model call used and cost."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from sessionary.errors import BadInput
from sessionary.model.codec import unchecked


class CostStatus(StrEnum):
    """How well a cost is known."""

    ESTIMATED = "estimated"
    REPORTED = "reported"
    INCLUDED = "included"
    UNKNOWN = "unknown"
    PARTIAL = "partial"  # of a sum only: some of its calls have no known price


TOKEN_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


_NUMBERS = (*TOKEN_FIELDS, "cache_write_1h_tokens", "cost_microusd")
# What one call may use and cost: far above any real call, also one that stands for the total of a long session.
MAX_TOKENS = 10_000_000_000
MAX_COST_MICROUSD = 10_000_000_000_000


class Usage(Struct, frozen=True):
    """One model call's tokens and cost. A cost of None is unknown, never free.

    Each kind of tokens is at most `MAX_TOKENS`, the cost at most `MAX_COST_MICROUSD`; more is refused.
    """

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_microusd: int | None = None
    cost_status: CostStatus = CostStatus.UNKNOWN
    provider: str | None = None
    base_url: str | None = None
    billing_mode: str | None = None
    task: str | None = None
    price_source: str | None = None
    price_version: str | None = None
    call_id: str | None = None
    at: datetime | None = None
    # How many of `cache_write_tokens` were written to be kept for an hour, at a higher price. It counts when
    # the call is priced; the ledger keeps the cost and the sum.
    cache_write_1h_tokens: int = 0

    def __post_init__(self) -> None:
        known = self.cost_microusd is not None
        # By name: many are made, and a loop over the fields takes longer than the rest.
        if not (
            _is_whole(self.input_tokens)
            and _is_whole(self.output_tokens)
            and _is_whole(self.cache_read_tokens)
            and _is_whole(self.cache_write_tokens)
            and _is_whole(self.reasoning_tokens)
            and _is_whole(self.cache_write_1h_tokens)
            and (not known or _is_whole(self.cost_microusd, MAX_COST_MICROUSD))
        ):
            raise BadInput(self._fault())
        if self.cache_write_1h_tokens > self.cache_write_tokens:
            raise BadInput(
                "cache_write_1h_tokens is a part of cache_write_tokens and cannot be more: "
                f"{self.cache_write_1h_tokens} of {self.cache_write_tokens}."
            )
        if not known and self.cost_status is not CostStatus.UNKNOWN:
            raise BadInput(f"A cost that is {self.cost_status} needs cost_microusd.")
        if known and self.cost_status in (CostStatus.UNKNOWN, CostStatus.PARTIAL):
            force_setattr(self, "cost_status", CostStatus.REPORTED)

    @property
    def total_tokens(self) -> int:
        """All tokens that were sent and received; reasoning is a part of the output."""
        sent = self.input_tokens + self.cache_read_tokens + self.cache_write_tokens
        return sent + self.output_tokens

    def _fault(self) -> str:
        for name in _NUMBERS:
            value = getattr(self, name)
            most = MAX_COST_MICROUSD if name == "cost_microusd" else MAX_TOKENS
            if not _is_whole(value, most) and (name, value) != ("cost_microusd", None):
                return f"{name} of a model call must be a whole number from 0 to {most:,}, not {value!r}."
        return "A model call's tokens and cost must be whole numbers."


def add_calls(one: Usage, other: Usage) -> Usage:
    """Return the sum of two calls as one; its cost is known if both costs are."""
    tokens = {
        name: getattr(one, name) + getattr(other, name)
        for name in (*TOKEN_FIELDS, "cache_write_1h_tokens")
    }
    known = one.cost_microusd is not None and other.cost_microusd is not None
    cost = (one.cost_microusd or 0) + (other.cost_microusd or 0) if known else None
    status = CostStatus.REPORTED if known else CostStatus.UNKNOWN
    return replace(one, **tokens, cost_microusd=cost, cost_status=status)


def _is_whole(value: object, most: int = MAX_TOKENS) -> bool:
    return value.__class__ is int and 0 <= value <= most


def as_stored(**facts: Any) -> Usage:
    """A call as the record has it, not checked again: earlier versions took larger numbers."""
    return unchecked(_NOTHING, facts)


_NOTHING = Usage()


class UsageTotal(Struct, frozen=True):
    """A sum over the ledger."""

    group: str | None = None
    calls: int = 0
    unknown_cost_calls: int = 0
    estimated_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    known_cost_microusd: int = 0

    @property
    def cost_microusd(self) -> int | None:
        """The sum of the known costs; None when no call has one."""
        return self.known_cost_microusd if self.calls > self.unknown_cost_calls else None

    @property
    def cost_status(self) -> CostStatus | None:
        """How well the sum is known; None when there was no call."""
        if self.calls == 0:
            return None
        if self.unknown_cost_calls == self.calls:
            return CostStatus.UNKNOWN
        if self.unknown_cost_calls:
            return CostStatus.PARTIAL
        return CostStatus.ESTIMATED if self.estimated_calls else CostStatus.REPORTED
