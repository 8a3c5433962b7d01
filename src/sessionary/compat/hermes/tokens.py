"""Tokens and costs as Hermes counts them, over the ledger of calls."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sessionary.actions import usage
from sessionary.actions.sessions import edit
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.messages import Json
from sessionary.compat.hermes.rows import BILLING, COSTS, KEPT, PRICING, TOKENS
from sessionary.model.session import SessionHead
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.database import Tx
from sessionary.store.tables import sessions
from sessionary.store.tables import usage as usage_table

_MILLION = 1_000_000


def update(
    tx: Tx, head: SessionHead, given: Mapping[str, Any], *, absolute: bool, moment: Moment
) -> None:
    """Add what was used, or with `absolute` let it be what the session has used in all."""
    tx.one("lock_session_no", no=head.no)
    head = sessions.get_by_no(tx, head.no)
    before = rows.kept_of(tx, head)
    after = edit.revise(tx, head, KEPT, lambda kept: _counted(kept, given, absolute=absolute))
    used = {name: int(given.get(name) or 0) for name in TOKENS}
    spent = {name: _difference(before, after, name) for name in COSTS}
    if absolute:
        used = {name: count - getattr(head.usage, name) for name, count in used.items()}
    if min(used.values()) < 0 or min(spent.values()) < 0:
        _forget_calls(tx, head)
        rest = sessions.get_by_no(tx, head.no).usage
        used = {name: max(0, int(given.get(name) or 0) - getattr(rest, name)) for name in TOKENS}
        spent = {name: float(after.get(name) or 0) for name in COSTS}
    _record(tx, head, given, used=used, spent=spent, moment=moment)


def _counted(kept: Json, given: Mapping[str, Any], *, absolute: bool) -> Json:
    """What Hermes keeps beside the tokens: costs and calls add up, names are the first or the last."""
    calls = int(given.get("api_call_count") or 0)
    kept["api_call_count"] = calls if absolute else int(kept.get("api_call_count", 0)) + calls
    for name in COSTS:
        if given.get(name) is not None:
            earlier = 0.0 if absolute else float(kept.get(name) or 0)
            kept[name] = earlier + float(given[name])
    for name in PRICING:
        if given.get(name) is not None:
            kept[name] = given[name]
    for name in BILLING:
        if given.get(name) is not None and kept.get(name) is None:
            kept[name] = given[name]
    return kept


def _difference(before: Json, after: Json, name: str) -> float:
    return float(after.get(name) or 0) - float(before.get(name) or 0)


def _record(
    tx: Tx,
    head: SessionHead,
    given: Mapping[str, Any],
    *,
    used: Mapping[str, int],
    spent: Mapping[str, float],
    moment: Moment,
) -> None:
    model = given.get("model")
    if not any(used.values()) and not any(spent.values()):
        if model is not None and head.model is None:
            tx.run("set_model", no=head.no, model=sessions.column(model))
        return
    estimated, actual = (spent[name] if given.get(name) is not None else None for name in COSTS)
    cost = actual if actual is not None else estimated
    status = CostStatus.ESTIMATED if actual is None else CostStatus.REPORTED
    call = Usage(
        model=model or head.model,
        cost_microusd=None if cost is None else round(max(0.0, cost) * _MILLION),
        cost_status=CostStatus.UNKNOWN if cost is None else status,
        provider=given.get("billing_provider"),
        base_url=given.get("billing_base_url"),
        billing_mode=given.get("billing_mode"),
        price_source=given.get("cost_source"),
        price_version=given.get("pricing_version"),
        # Twice the chance of one id: many calls may end in the same second.
        call_id=f"{_prefix(head)}{moment.new_id()}{moment.new_id()[-8:]}",
    )
    counted = replace(call, **dict(used))  # type: ignore[arg-type]
    usage.record(tx, head.no, _priced(counted, moment), profile=head.profile, moment=moment)


def _priced(call: Usage, moment: Moment) -> Usage:
    """Where the program knows no cost, the table of prices may. It is loaded by who needs it."""
    if call.cost_microusd is not None or call.model is None:
        return call
    return cast(Usage, importlib.import_module("sessionary.prices").priced(call, at=moment.now))


def _forget_calls(tx: Tx, head: SessionHead) -> None:
    first = _prefix(head)
    tx.run("delete_calls_from", no=head.no, first=first, beyond=first + "\U0010ffff")
    usage_table.set_total(tx, head.no, usage_table.total_of_session(tx, head.no))


def _prefix(head: SessionHead) -> str:
    return f"hermes/{head.id}/"
