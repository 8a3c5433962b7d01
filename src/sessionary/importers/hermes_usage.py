"""What a Hermes session used: sums, one for each session and model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sessionary.formats import shape
from sessionary.importers import calls, times
from sessionary.importers.base import Json
from sessionary.importers.hermes_state import Row
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.sqlite.foreign import ForeignDatabase

TABLE = "session_model_usage"
_COLUMNS = (
    "model",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "task",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
    "cost_source",
    "first_seen",
)


def of_rows(database: ForeignDatabase, rows: Sequence[Row]) -> list[Usage]:
    """The ledger's rows of a conversation."""
    found: list[Usage] = []
    for row in rows:
        by_model = [
            dict(zip(_COLUMNS, values, strict=True))
            for values in database.rows(TABLE, _COLUMNS, where=("session_id", row.id))
        ]
        if not by_model:
            by_model = [row.facts]
        for facts in by_model:
            found += of_facts(row.id, {"started_at": row.facts.get("started_at"), **facts})
    return found


def of_facts(session_id: str, facts: Json) -> tuple[Usage, ...]:
    """One row of the ledger, if anything was counted."""
    named = [facts.get(n) for n in ("model", "billing_provider", "billing_mode", "task")]
    id = ":".join([session_id, *(each for each in named if isinstance(each, str) and each)])
    dollars, is_reported = _cost(facts)
    made = calls.one(
        "hermes",
        id,
        model=shape.name(facts.get("model")),
        provider=shape.name(facts.get("billing_provider")),
        at=times.first(facts.get("first_seen"), facts.get("started_at")),
        dollars=dollars,
        is_reported=is_reported,
        input=facts.get("input_tokens"),
        output=facts.get("output_tokens"),
        cache_read=facts.get("cache_read_tokens"),
        cache_write=facts.get("cache_write_tokens"),
        reasoning=facts.get("reasoning_tokens"),
    )
    return tuple(_billed(used, facts) for used in made)


def _billed(used: Usage, facts: Json) -> Usage:
    """The call with how it was paid for; what a subscription includes costs nothing."""
    more: dict[str, Any] = {
        "base_url": shape.name(facts.get("billing_base_url")),
        "billing_mode": shape.name(facts.get("billing_mode")),
        "task": shape.name(facts.get("task")),
    }
    if facts.get("cost_status") == "included" and used.cost_microusd is None:
        more |= {"cost_microusd": 0, "cost_status": CostStatus.INCLUDED, "price_source": "hermes"}
    return replace(used, **more)


def _cost(facts: Json) -> tuple[object, bool]:
    """Dollars, and whether they were billed; 0 with an unknown status is unknown."""
    actual = facts.get("actual_cost_usd")
    if isinstance(actual, int | float) and actual > 0:
        return actual, True
    return facts.get("estimated_cost_usd", facts.get("estimated_cost")), False
