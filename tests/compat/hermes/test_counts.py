"""Tokens and costs: added or set, over the ledger that our reports come from."""

import pytest

from sessionary.actions import usage
from sessionary.compat.hermes.state import SessionDB
from tests.compat.hermes.test_sessions import row


def reported(db: SessionDB) -> list[tuple[object, ...]]:
    """What `sessionary usage` would say."""
    totals = db._store.read(usage.sum_usage, "session", profile="main")
    return [(one.input_tokens, one.output_tokens, one.cost_microusd) for one in totals]


def test_counts_are_added(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    for _ in range(2):
        db.update_token_counts(
            "s1",
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=3,
            cache_write_tokens=2,
            reasoning_tokens=1,
            api_call_count=1,
        )

    found = row(db, "s1")
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    assert [found[f"{name}_tokens"] for name in names] == [20, 10, 6, 4, 2]
    assert found["api_call_count"] == 2


def test_absolute_counts_are_set_up_and_down(db: SessionDB) -> None:
    db.update_token_counts("s1", input_tokens=10, output_tokens=5, api_call_count=3)
    db.update_token_counts(
        "s1", input_tokens=100, output_tokens=50, api_call_count=4, absolute=True
    )
    up = row(db, "s1")
    db.update_token_counts("s1", input_tokens=7, output_tokens=50, api_call_count=1, absolute=True)
    down = row(db, "s1")

    assert [up[name] for name in ("input_tokens", "output_tokens", "api_call_count")] == [
        100,
        50,
        4,
    ]
    assert [down[name] for name in ("input_tokens", "output_tokens", "api_call_count")] == [
        7,
        50,
        1,
    ]
    assert [(one[0], one[1]) for one in reported(db)] == [(7, 50)]


def test_costs_that_are_not_given_stay_as_they_are(db: SessionDB) -> None:
    db.update_token_counts("s1", input_tokens=1, estimated_cost_usd=0.25)
    db.update_token_counts("s1", input_tokens=1)
    db.update_token_counts("s1", input_tokens=1, estimated_cost_usd=0.5, actual_cost_usd=0.125)

    found = row(db, "s1")
    assert found["estimated_cost_usd"] == pytest.approx(0.75)
    assert found["actual_cost_usd"] == pytest.approx(0.125)
    assert reported(db) == [(3, 0, 375_000)]  # the actual cost of a call is the better one


def test_absolute_costs_are_set(db: SessionDB) -> None:
    db.update_token_counts("s1", input_tokens=10, estimated_cost_usd=0.25)
    db.update_token_counts("s1", input_tokens=20, estimated_cost_usd=0.75, absolute=True)
    raised = row(db, "s1")["estimated_cost_usd"]
    db.update_token_counts("s1", input_tokens=20, estimated_cost_usd=0.5, absolute=True)

    assert raised == pytest.approx(0.75)
    assert row(db, "s1")["estimated_cost_usd"] == pytest.approx(0.5)
    assert reported(db) == [(20, 0, 500_000)]


def test_pricing_is_the_newest_billing_and_model_are_the_first(db: SessionDB) -> None:
    db.update_token_counts(
        "s1", 1, model="m1", cost_status="estimated", cost_source="a", billing_provider="p1"
    )
    db.update_token_counts(
        "s1", 1, model="m2", cost_status="actual", billing_provider="p2", billing_mode="api"
    )

    found = row(db, "s1")
    assert [found["cost_status"], found["cost_source"]] == ["actual", "a"]
    assert [found["billing_provider"], found["billing_mode"]] == ["p1", "api"]
    assert found["model"] == "m1"


def test_an_unknown_id_gets_a_row(db: SessionDB) -> None:
    db.update_token_counts("new", input_tokens=3, model="m")

    assert (row(db, "new")["input_tokens"], row(db, "new")["source"]) == (3, "unknown")


def test_a_model_is_noted_without_any_tokens(db: SessionDB) -> None:
    db.update_token_counts("s1", model="m")

    assert row(db, "s1")["model"] == "m"
    assert reported(db) == []


def test_a_call_without_a_cost_is_priced_for_our_ledger_and_not_for_the_program(
    db: SessionDB,
) -> None:
    db.update_token_counts("s1", input_tokens=1_000_000, model="gpt-4o", billing_provider="openai")

    assert row(db, "s1")["estimated_cost_usd"] is None
    [(_, _, cost)] = reported(db)
    assert isinstance(cost, int)
    assert cost > 0
