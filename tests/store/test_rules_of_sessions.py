"""What a row of a session must be for every writer: the schema refuses the rest on both databases."""

import pytest

from sessionary.errors import Conflict
from sessionary.store.database import Store, Tx
from tests.support.world import World

BROKEN = (
    "kind = 'talk'",
    "folder = 'floor'",
    "title_by = 'nobody'",
    "pinned = 2",
    "archived = -1",
    "read_only = 7",
    "read_through = -1",
    "base_seq = -1",
    "epoch = -1",
    "calls = -1",
    "unknown_cost_calls = -1",
    "estimated_calls = -1",
    "input_tokens = -1",
    "output_tokens = -1",
    "cache_read_tokens = -1",
    "cache_write_tokens = -1",
    "reasoning_tokens = -1",
    "cost_microusd = -1",
    "message_count = -1",
    "tool_call_count = -1",
    "last_seq = -1",
    "end_reason = 'because'",
    "ended_at = 1, end_reason = 'too early'",
    "lineage = 'fork'",
    "parent_no = no, lineage = 'fork'",
    "parent_no = 1, lineage = 'cousin'",
)


def changed(tx: Tx, change: str) -> None:
    tx.script(f"UPDATE sessions SET {change}")


def test_a_row_that_breaks_a_rule_is_refused(store: Store) -> None:
    world = World(store)
    session = world.session("a")
    before = world.head(session)

    for change in BROKEN:
        with pytest.raises(Conflict, match="nothing was changed"):
            store.write(changed, change).result()

    assert world.head(session) == before
