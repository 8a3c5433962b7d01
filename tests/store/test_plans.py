"""What is asked all the time looks at what it is about, however much else there is."""

import re
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg
import pytest

from sessionary.store import queries
from tests.store.conftest import opened

# For each query what it may be found by; anything else would be a walk through a whole profile.
STEPS = {
    "ids_by_prefix": {"sessions USING INDEX sqlite_autoindex_sessions_1 (id>? AND id<?)"},
    "list_pinned": {
        "s USING INDEX sessions_by_pin (profile=? AND last_active_at>? AND last_active_at<?)",
        "p USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "parent USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "t USING INDEX sqlite_autoindex_turns_1 (id=?)",
    },
    "highest_titles": {
        "sessions USING COVERING INDEX sessions_by_number (profile=? AND <expr>=? AND title>? AND title<?)"
    },
    "models_of_profile": {
        "sessions USING INDEX sessions_by_model (profile=? AND model>?)",
        "s USING INDEX sessions_by_model (profile=? AND model>?)",
    },
    "list_done_deliveries_of_channel": {
        "d USING INDEX deliveries_done_by_channel (profile=? AND channel=? AND no<?)",
        "s USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    },
    "list_done_deliveries_of_platform": {
        "d USING INDEX deliveries_done_by_platform (profile=? AND platform=? AND no<?)",
        "s USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    },
    "platforms_of_deliveries": {
        "deliveries USING INDEX deliveries_done_by_platform (profile=?)",
        "d USING INDEX deliveries_done_by_platform (profile=? AND platform>?)",
    },
    "count_rounds": {
        "entries USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        "e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    },
    "read_retractions": {"entries USING INDEX retractions (entry_no>? AND entry_no<?)"},
    "read_last_compaction": {"entries USING INDEX marks (entry_no>? AND entry_no<?)"},
    "count_waiting": {
        "arrivals USING COVERING INDEX arrivals_waiting (profile=?)",
        "t USING INDEX turns_by_lease (lease_until<?)",
        "s USING INTEGER PRIMARY KEY (rowid=?)",
    },
    # What runs in each round of a loop finds nothing of the turns that wait for people.
    "due_questions": {"q USING INDEX questions_due (profile=? AND due_at<?)"},
    "expired_turns": {
        "t USING INDEX turns_by_lease (lease_until<?)",
        "s USING INTEGER PRIMARY KEY (rowid=?)",
    },
}


@pytest.mark.parametrize(("name", "steps"), STEPS.items(), ids=STEPS.keys())
def test_sqlite_looks_at_no_more_than_it_must(tmp_path: Path, name: str, steps: set[str]) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    file = apsw.Connection(f"{tmp_path}/x.db")
    text = queries.load("sqlite")[name]
    nothing = dict.fromkeys(queries.parameters(text))
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {text}", nothing)]
    file.close()

    assert {line.removeprefix("SEARCH ") for line in plan if line.startswith("SEARCH")} == steps
    assert not [line for line in plan if "TEMP B-TREE" in line]
    assert not [line for line in plan if re.match(r"SCAN sessions|SCAN s\b", line)]


MANY = 3000
SESSIONS = """
INSERT INTO sessions (id, profile, key, source, platform, chat_type, kind, folder, began_at, last_active_at)
SELECT 'id' || x, 'main', 'main/telegram/dm/chat=' || x, '{"platform":"telegram"}',
    CASE WHEN x % 50 = 0 THEN 'discord' ELSE 'telegram' END, 'dm', 'chat', 'chats', x, x
FROM generate_series(1, 3000) x
"""
MODELS = "UPDATE sessions SET model = 'model ' || no % 5"
TITLES = "UPDATE sessions SET title = 'hello #' || no WHERE no > 1"
ARRIVALS = """
INSERT INTO arrivals (id, profile, idem, key, source, message, received_at, state, session_no)
SELECT 'a' || no, 'main', 'i' || no, key, '{}', '{}', 1, 'taken', no FROM sessions
"""
DELIVERIES = """
INSERT INTO deliveries (id, profile, platform, chat_id, channel, parts, state, not_before, created_at, sent_at)
SELECT 'd' || x, 'main', platform, 'c', platform || ':c', '[]', 'sent', x, x, x
FROM (SELECT x, CASE WHEN x = 1 THEN 'slack' ELSE 'telegram' END AS platform FROM generate_series(1, 3000) x) made
"""
LISTED = {"profile": "main", "before": 2**62, "state": None, "limit": 50}
ASKED = {
    "list_done_deliveries_of_channel": {**LISTED, "channel": "slack:c", "platform": None},
    "list_done_deliveries_of_platform": {**LISTED, "channel": None, "platform": "slack"},
    "platforms_of_deliveries": {"profile": "main", "limit": 21},
    "places_with_open_sessions": {},
    "highest_titles": {"profile": "main", "beginning": "hello #", "fewest": 1, "most": 9},
    "models_of_profile": {"profile": "main", "limit": 500},
    "page_of_platform": {
        "profile": "main",
        "platform": "telegram",
        "first_key": "main/telegram/",
        "last_key": "main/telegram0",
        "after": MANY // 2,
        "limit": 200,
    },
}


@pytest.mark.parametrize(("name", "asked"), ASKED.items(), ids=ASKED.keys())
def test_postgres_walks_through_no_sessions_no_inbox_and_no_outbox(
    emptied: Callable[[], str], name: str, asked: dict[str, object]
) -> None:
    with psycopg.connect(emptied(), autocommit=True) as server:
        analyze = ("ANALYZE sessions", "ANALYZE arrivals", "ANALYZE deliveries")
        for statement in (SESSIONS, MODELS, TITLES, ARRIVALS, DELIVERIES, *analyze):
            server.execute(statement)
        server.execute("SET enable_seqscan = off")
        text = f"EXPLAIN (ANALYZE, TIMING OFF) {queries.load_for_psycopg()[name]}".encode()
        plan = "\n".join(row[0] for row in server.execute(text, asked))

    passed_over = [int(rows) for rows in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
    read = [float(rows) for rows in re.findall(r"actual rows=([\d.]+)", plan)]
    assert max(passed_over + read, default=0) < MANY // 10, plan
