"""What Hermes wrote is read back: every version of its database, and all its files as one."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sessionary.importers.base.driver import ToolImportReport
from sessionary.importers.hermes import IMPORTER
from sessionary.model.message import (
    Attachment,
    Compaction,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import CostStatus
from sessionary.store.tables import transfer, usage
from sessionary.testing.importer_world import ImportedStore
from tests.importers import write_hermes as write
from tests.importers.write_hermes import NOON, StateDb, message

SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] They looked at a folder."


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / ".hermes"
    made.mkdir()
    return made


def take(archive: ImportedStore, place: Path) -> ToolImportReport:
    return archive.take(IMPORTER, list(IMPORTER.find(place)))


def texts(*words: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [message(roles[n % 2], each) for n, each in enumerate(words)]


def as_before(archive: ImportedStore, place: Path) -> None:
    """Reading everything again, even from its beginning, changes nothing."""
    before = archive.everything()
    units = list(IMPORTER.find(place))
    unread = archive.take(IMPORTER, units)
    report = archive.take(IMPORTER, [replace(each, stamp=f"{each.stamp}+") for each in units])
    assert (unread.unchanged_units, report.unchanged_units) == (len(units), 0)
    assert (report.added, report.extended, report.messages) == (0, 0, 0)
    assert archive.everything() == before
    archive.check()


def test_a_database_of_any_version_gives_back_its_conversation(
    archive: ImportedStore, home: Path
) -> None:
    for version in write.VERSIONS:
        database = StateDb(home / "profiles" / f"v{version}" / "state.db", version)
        more = write.rich() if version >= 13 else []
        database.session(f"v{version}", [*write.talk(), *more], title="Folders")
        database.close()

    report = take(archive, home)

    assert (report.added, report.skipped) == (len(write.VERSIONS), 0)
    for head, log in archive.everything():
        _is_the_talk([entry.body for entry in log], int(head.profile[1:]))
        assert head.title == ("Folders" if head.profile not in ("v1", "v2") else None)
        assert head.source.platform == "terminal"
        assert head.began_at == datetime.fromtimestamp(NOON, UTC)
    as_before(archive, home)


def _is_the_talk(messages: list[Any], version: int) -> None:
    found = [(str(each.role), list(each.parts)) for each in messages]
    assert found[:6] == [
        ("user", [Text("What is in this folder?")]),
        ("assistant", [Text("I look."), ToolCall("call_1", "shell", {"command": "ls"})]),
        ("tool", [ToolResult("call_1", "a.txt\nb.txt", "shell")]),
        ("assistant", [Text("Two files: a.txt and b.txt.")]),
        ("user", [Text("Thanks \U0001f600 ?")]),
        ("assistant", [Text("You are welcome.")]),
    ]
    assert [each.finish_reason for each in messages[:4]] == (
        [None, "tool_calls", None, "stop"] if version >= 2 else [None] * 4
    )
    if version >= 13:
        (_, asked), (_, answered) = found[6:]
        assert asked[0] == Text("And this picture?")
        assert isinstance(asked[1], Attachment)
        assert (asked[1].media_type, asked[1].size) == ("image/png", 8)
        assert isinstance(answered[0], Reasoning)
        assert answered[0].text == "It is one pixel."


def test_the_fields_that_hermes_stored_with_a_message_are_kept(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("s1", write.rich())
    database.close()

    take(archive, home)

    asked, answered = archive.messages("hermes", "s1")
    assert asked.extra["hermes"]["platform_message_id"] == "tg-77"
    assert answered.extra["hermes"]["codex_reasoning_items"] == [{"id": "rs_1"}]


def test_what_came_later_is_read_though_it_is_only_in_the_log(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("s1", texts("a", "b"))
    database.session("s2", texts("x", "y"))
    take(archive, home)

    database.say("s1", texts("c", "d"))
    report = take(archive, home)
    database.close()

    assert (report.extended, report.unchanged_units, report.messages) == (1, 1, 2)
    assert archive.texts("hermes", "s1") == ["a", "b", "c", "d"]
    as_before(archive, home)


def test_nothing_is_put_beside_the_database(archive: ImportedStore, home: Path) -> None:
    StateDb(home / "state.db", 22).close()

    take(archive, home)

    assert [each.name for each in home.iterdir()] == ["state.db"]


def chain(home: Path, *, version: int = 22) -> StateDb:
    """A conversation of three segments, as Hermes compresses it."""
    database = StateDb(home / "state.db", version)
    first = texts("one", "two", "three", "four")
    database.session("c1", first, title="Long talk")
    database.change("c1", ended_at=database.clock, end_reason="compression")
    second = [message("user", SUMMARY), *first[2:], *texts("five", "six")]
    database.session("c2", second, parent_session_id="c1", title="Long talk #2")
    database.change("c2", ended_at=database.clock, end_reason="compression")
    third = [first[0], message("user", f"{SUMMARY} And more."), *texts("five", "six", "seven")]
    database.session("c3", third, parent_session_id="c2", title="Long talk #3")
    return database


@pytest.mark.parametrize("version", [3, 22])
def test_a_compressed_chain_is_one_conversation(
    archive: ImportedStore, home: Path, version: int
) -> None:
    chain(home, version=version).close()

    report = take(archive, home)

    assert (report.added, archive.count()) == (1, 1)
    assert archive.texts("hermes", "c1") == ["one", "two", "three", "four", "five", "six", "seven"]
    bodies = [entry.body for entry in archive.log("hermes", "c1")]
    assert [b for b in bodies if isinstance(b, Compaction)] == [
        Compaction(SUMMARY, 2),
        Compaction(f"{SUMMARY} And more.", 5),
    ]
    head = archive.session("hermes", "c1")
    assert (head.title, head.message_count, head.is_open) == ("Long talk", 7, True)
    as_before(archive, home)


def test_a_chain_that_grows_goes_on_in_the_same_session(archive: ImportedStore, home: Path) -> None:
    database = chain(home)
    take(archive, home)
    database.change("c3", ended_at=database.clock, end_reason="cli_close")
    database.session("c4", texts("eight"), parent_session_id="c3")
    database.close()

    report = take(archive, home)

    assert (report.extended, report.messages, archive.count()) == (1, 1, 1)
    assert archive.texts("hermes", "c1")[-2:] == ["seven", "eight"]


def test_a_prompt_repeated_where_a_chain_goes_on_stands_once(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 5)
    database.session("c1", texts("first", "done", "do it"))
    database.say("c1", [message("assistant", "I begin")])
    database.change("c1", ended_at=database.clock, end_reason="compression")
    database.session("c2", texts("do it", "It is done"), parent_session_id="c1")
    database.close()

    take(archive, home)

    assert archive.texts("hermes", "c1") == ["first", "done", "do it", "I begin", "It is done"]


def test_cycles_and_missing_parents_lose_nothing(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 22)
    ended = {"ended_at": NOON, "end_reason": "compression"}
    database.session("a", texts("in a"), parent_session_id="b", **ended)
    database.session("b", texts("in b"), parent_session_id="a", **ended)
    database.session("self", texts("in self"), parent_session_id="self", **ended)
    database.session("orphan", texts("in orphan"), parent_session_id="gone")
    database.close()

    take(archive, home)

    words = [
        entry.body.text
        for _, log in archive.everything()
        for entry in log
        if isinstance(entry.body, Message)
    ]
    assert sorted(words) == ["in a", "in b", "in orphan", "in self"]
    as_before(archive, home)


def test_forks_and_subagents_come_from_their_parents(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("parent", texts("a", "b", "c"))
    database.session("helper", texts("look this up", "found"), parent_session_id="parent")
    database.change("parent", ended_at=database.clock, end_reason="branched")
    branch = {"model_config": json.dumps({"_branched_from": "parent"})}
    database.session("branch", texts("a", "b", "z"), parent_session_id="parent", **branch)
    database.close()

    take(archive, home)

    parent, helper, branch_head = (
        archive.session("hermes", each) for each in ("parent", "helper", "branch")
    )
    assert (branch_head.lineage, branch_head.parent_id) == (Lineage.FORK, parent.id)
    assert branch_head.base_seq == 2
    assert archive.texts("hermes", "branch") == ["a", "b", "z"]
    assert helper.parent_id == parent.id
    as_before(archive, home)


def test_a_compaction_in_place_is_read_as_one_conversation(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 22)
    first = texts("one", "two", "three", "four")
    database.session("s1", first)
    take(archive, home)
    database.run("UPDATE messages SET active = 0, compacted = 1")
    database.say("s1", [first[0], message("user", SUMMARY), *first[2:], *texts("five")])
    database.close()

    take(archive, home)

    assert archive.texts("hermes", "s1") == ["one", "two", "three", "four", "five"]
    bodies = [entry.body for entry in archive.log("hermes", "s1")]
    assert Compaction(SUMMARY, 2) in bodies
    as_before(archive, home)


def test_what_was_rewound_is_taken_back_and_stays_reachable(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("s1", texts("a", "b", "wrong", "answer"))
    take(archive, home)
    database.run("UPDATE messages SET active = 0 WHERE content IN ('wrong', 'answer')")
    take(archive, home)
    assert archive.texts("hermes", "s1") == ["a", "b"]
    database.say("s1", texts("right", "fine"))
    database.close()

    take(archive, home)

    assert archive.texts("hermes", "s1") == ["a", "b", "right", "fine"]
    log = [e.body.text for e in archive.log("hermes", "s1") if isinstance(e.body, Message)]
    assert log == ["a", "b", "wrong", "answer", "right", "fine"]
    as_before(archive, home)


def test_profiles_stay_apart_and_own_their_web_sessions(archive: ImportedStore, home: Path) -> None:
    StateDb(home / "state.db").session("s1", texts("usual"))
    StateDb(home / "profiles" / "work" / "state.db").session("s2", texts("at work"))
    write.web_session(home / "webui", "s2", [*texts("at work", "fine")], title="Work")
    write.web_session(home / "webui", "s3", texts("only web"), profile="work")

    take(archive, home)

    found = {head.preview: head.profile for head in archive.heads()}
    assert found == {"usual": "main", "at work": "work", "only web": "work"}
    assert {head.title for head in archive.heads()} == {None, "Work"}


def test_a_scheduled_job_is_called_as_its_schedule(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db")
    database.session("cron_ab12_20260301_120000", texts("report"), source="cron")
    database.close()
    (home / "cron").mkdir()
    jobs = {"jobs": [{"id": "ab12", "name": "Morning report"}, {"id": None}, 7]}
    (home / "cron" / "jobs.json").write_text(json.dumps(jobs))

    take(archive, home)

    head = archive.session("hermes", "cron_ab12_20260301_120000")
    assert (head.title, head.kind) == ("Morning report", Kind.JOB)
    assert head.source.platform == "schedule"


def test_sums_are_one_row_of_the_ledger_and_grow(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 5)
    sums = {"model": "no-such-model", "input_tokens": 100, "output_tokens": 20}
    unknown = {"estimated_cost_usd": 0.0, "cost_status": "unknown", "cache_read_tokens": 7}
    database.session("s1", texts("a", "b"), **sums, **unknown)
    known = {"estimated_cost_usd": 0.25, "cost_status": "estimated"}
    database.session("s2", texts("c", "d"), **sums, **known)
    billed = {"estimated_cost_usd": 0.25, "actual_cost_usd": 0.3, "cost_status": "actual"}
    database.session("s3", texts("e", "f"), **sums, **billed)
    database.session("s4", texts("g", "h"), **sums, cost_status="included")
    take(archive, home)
    assert _used(archive, "s1") == (100, 20, 7, None, CostStatus.UNKNOWN)
    assert _used(archive, "s2") == (100, 20, 0, 250_000, CostStatus.ESTIMATED)
    assert _used(archive, "s3") == (100, 20, 0, 300_000, CostStatus.REPORTED)
    assert _used(archive, "s4") == (100, 20, 0, 0, CostStatus.REPORTED)

    database.change("s1", output_tokens=50)
    database.close()
    take(archive, home)

    assert _used(archive, "s1") == (100, 50, 7, None, CostStatus.UNKNOWN)
    assert archive.session("hermes", "s1").usage.calls == 1
    archive.check()


def test_newer_versions_count_each_model_apart(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("s1", texts("a", "b"), input_tokens=30, output_tokens=30)
    for model, tokens in (("no-such-1", 10), ("no-such-2", 20)):
        database.used(session_id="s1", model=model, input_tokens=tokens, output_tokens=tokens)
    database.close()

    take(archive, home)

    rows = archive.store.read(_ledger, archive.session("hermes", "s1").no).result()
    assert sorted((used.model, used.input_tokens, used.call_id) for used in rows) == [
        ("no-such-1", 10, "hermes:s1:no-such-1"),
        ("no-such-2", 20, "hermes:s1:no-such-2"),
    ]


def test_the_prompt_of_a_session_comes_over_and_is_not_held(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 5)
    database.session("s1", texts("a"), system_prompt="Be brief. " * 20_000)
    database.close()

    units = list(IMPORTER.find(home))
    archive.take(IMPORTER, units)

    line = archive.store.read(_facts, archive.session("hermes", "s1").no).result()
    assert line.system_prompt == "Be brief. " * 20_000
    assert len(repr([row.facts for unit in units for row in unit.hint[1].rows])) < 2000


def test_a_prompt_that_is_kept_apart_is_found(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 26)
    database.session("s1", texts("a"), system_prompt_hash="h1", cwd="/code", git_branch="main")
    database.run("INSERT INTO system_prompts VALUES ('h1', 'Be kind.')")
    database.close()

    take(archive, home)

    line = archive.store.read(_facts, archive.session("hermes", "s1").no).result()
    assert line.system_prompt == "Be kind."
    assert line.workspace == {"path": "/code", "branch": "main"}


def _used(archive: ImportedStore, id: str) -> tuple[Any, ...]:
    total = archive.session("hermes", id).usage
    return (
        total.input_tokens,
        total.output_tokens,
        total.cache_read_tokens,
        total.cost_microusd,
        total.cost_status,
    )


def _ledger(tx: Any, no: int) -> Any:
    return [used for _, used in usage.of_session(tx, no)]


def _facts(tx: Any, no: int) -> Any:
    return transfer.facts(tx, no)[0]
