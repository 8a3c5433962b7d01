"""Hermes keeps a session in several files: database, transcript, web session. Here it is one."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sessionary import Sessionary
from sessionary.app import imports
from sessionary.importers.base.events import UserEnvironment
from sessionary.importers.hermes import IMPORTER, Hermes
from sessionary.model.message import Compaction, Message
from sessionary.testing.importer_world import ImportedStore
from tests.importers import write_hermes as write
from tests.importers.rubbish import survives
from tests.importers.test_hermes import as_before, take, texts
from tests.importers.write_hermes import NOON, StateDb, message


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / ".hermes"
    made.mkdir()
    return made


def test_transcript_and_database_are_merged(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 22)
    both = texts("a", "b", "yes", "c", "yes", "d")
    database.session("s1", [*both[:4], *both[5:], message("user", "only in the database")])
    database.close()
    lines = [{"role": "session_meta", "model": "m"}, *both[:2], message("user", "only in the file")]
    path = write.transcript(home / "sessions" / "s1.jsonl", [*lines, *both[2:]])
    path.write_text(path.read_text() + '{"role": "user", "cont\n{"role": "user", "con')

    report = take(archive, home)

    assert archive.texts("hermes", "s1") == [
        "a",
        "b",
        "only in the file",
        "yes",
        "c",
        "yes",
        "d",
        "only in the database",
    ]
    assert [(fault.where, fault.why[:8]) for fault in report.faults] == [
        ("s1.jsonl line 9", "not JSON")
    ]
    assert report.left_out["session_meta lines"] == 1
    as_before(archive, home)


def test_a_chat_of_the_gateway_tells_where_it_was_held(archive: ImportedStore, home: Path) -> None:
    write.transcript(home / "sessions" / "20260301_1_aa.jsonl", texts("hello", "hi"))
    key = "agent:main:telegram:dm:12345"
    usage = {"input_tokens": 10, "output_tokens": 5}
    entries = {
        key: write.entry(key, "20260301_1_aa", **usage),
        "broken": "not an object",
        "agent:main:slack:channel:C1": {"session_id": 7},
    }
    write.index(home / "sessions" / "sessions.json", entries)

    report = take(archive, home)

    head = archive.session("hermes", "20260301_1_aa")
    assert (head.source.platform, head.source.chat_id) == ("telegram", "12345")
    assert (head.source.user_id, head.source.user_name) == ("777", "Anna")
    assert (head.usage.input_tokens, head.usage.cost_microusd) == (10, None)
    assert sorted(fault.where for fault in report.faults) == [
        "agent:main:slack:channel:C1",
        "broken",
    ]


def test_a_key_alone_tells_the_platform_and_the_chat(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 16)
    facts = {"source": "discord", "session_key": "agent:main:discord:group:99:7:u1"}
    database.session("s1", texts("hello"), **facts)
    database.close()

    take(archive, home)

    source = archive.session("hermes", "s1").source
    assert (source.platform, source.chat_type, source.chat_id) == ("discord", "group", "99")


def test_web_session_and_database_are_one_and_its_title_wins(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 22)
    prompt = message("user", "[Workspace: /home/anna/project]\nhello")
    database.session("s1", [prompt, *texts("hello", "hi")[1:]], title="From the terminal")
    database.close()
    projects = [{"project_id": "p1", "name": "Garden", "color": "#12ab34"}]
    (home / "webui" / "sessions").mkdir(parents=True)
    (home / "webui" / "projects.json").write_text(json.dumps(projects))
    facts = {"title": "From the web", "project_id": "p1", "pinned": True}
    more = [*texts("hello", "hi"), message("user", "only in the web", attachments=["a.pdf"])]
    write.web_session(home / "webui", "s1", more, **facts)
    (home / "webui" / "sessions" / "_index.json").write_text('[{"session_id": "ghost"}]')
    (home / "webui" / "sessions" / "s1.json.tmp.123").write_text("{")

    report = take(archive, home)

    assert (report.added, report.skipped) == (1, 0)
    head = archive.session("hermes", "s1")
    assert (head.title, head.project, head.pinned) == ("From the web", "Garden", True)
    words = archive.texts("hermes", "s1")
    assert [each.removeprefix("[Workspace: /home/anna/project]\n") for each in words] == [
        "hello",
        "hi",
        "only in the web",
    ]
    as_before(archive, home)


def test_the_copy_of_a_session_that_shrank_is_a_branch(archive: ImportedStore, home: Path) -> None:
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b", "c", "d"))
    path.rename(path.with_name(path.name + ".bak"))
    write.web_session(home / "webui", "0123456789ab", texts("a", "b", "x"))

    take(archive, home)

    assert archive.texts("hermes", "0123456789ab") == ["a", "b", "x"]
    log = archive.log("hermes", "0123456789ab")
    assert [e.body.text for e in log if isinstance(e.body, Message)] == ["a", "b", "c", "d", "x"]
    as_before(archive, home)


def test_a_message_that_was_never_answered_is_kept(archive: ImportedStore, home: Path) -> None:
    pending = {"pending_user_message": "are you there?", "pending_started_at": NOON}
    write.web_session(home / "webui", "0123456789ab", [], **pending)
    write.web_session(home / "webui", "ba9876543210", texts("a", "b"), **pending)

    take(archive, home)

    assert archive.texts("hermes", "0123456789ab") == ["are you there?"]
    assert archive.texts("hermes", "ba9876543210") == ["a", "b", "are you there?"]


def test_broken_records_are_reported_and_the_rest_is_read(
    archive: ImportedStore, home: Path
) -> None:
    (home / "state.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 4000)
    write.transcript(home / "sessions" / "s1.jsonl", texts("a", "b"), ends="")
    os.symlink("/etc/passwd", home / "sessions" / "s2.jsonl")
    web = write.web_session(home / "webui", "0123456789ab", texts("c"))
    web.write_text(web.read_text()[:-20])

    report = take(archive, home)

    assert archive.texts("hermes", "s1") == ["a", "b"]
    assert archive.count() == 1
    assert len(report.faults) == 2
    assert any("not JSON" in fault.why for fault in report.faults)


def test_a_web_session_elsewhere_is_read_with_its_home(
    archive: ImportedStore, tmp_path: Path
) -> None:
    home, web = tmp_path / ".hermes", tmp_path / "elsewhere"
    StateDb(home / "state.db").session("s1", texts("a", "b"))
    write.web_session(web, "s1", texts("a", "b", "c"))
    hermes = Hermes()

    places = hermes.places(UserEnvironment(tmp_path, {"HERMES_WEBUI_STATE_DIR": str(web)}))
    archive.take(hermes, [unit for place in places for unit in hermes.find(place)])

    assert places == [home]
    assert archive.texts("hermes", "s1") == ["a", "b", "c"]


def test_its_web_interface_is_found_also_from_a_home_that_is_a_link(
    tmp_path: Path,
) -> None:
    real = tmp_path / "disk" / "mia"
    StateDb(real / ".hermes" / "state.db", 22).close()
    write.web_session(tmp_path / "elsewhere", "0123456789ab", texts("a", "b"))
    (tmp_path / "mia").symlink_to(real)
    where = UserEnvironment(
        tmp_path / "mia", {"HERMES_WEBUI_STATE_DIR": str(tmp_path / "elsewhere")}
    )

    with Sessionary(home=str(tmp_path / "sessionary")) as client:
        [done] = imports.run(client.app, imports.default_requests(where, ["hermes"])).outcomes

    assert (done.added, done.messages) == (1, 2)


def test_each_of_its_files_is_recognised(tmp_path: Path) -> None:
    home = tmp_path / ".hermes"
    database = StateDb(home / "state.db", 1).close()
    web = write.web_session(home / "webui", "0123456789ab", [])
    index = write.index(home / "sessions" / "sessions.json", {"k": write.entry("k", "s")})
    lines = write.transcript(home / "sessions" / "s.jsonl", texts("a"))
    other = tmp_path / "other.json"
    other.write_text("{}")

    for path in (database, web, index, lines):
        assert IMPORTER.recognises(path), path
    for path in (tmp_path, other, tmp_path / "nowhere"):
        assert not IMPORTER.recognises(path), path


def test_rewritten_rows_are_recognised(archive: ImportedStore, home: Path) -> None:
    messages = [*write.talk(), *texts("ok", "ok", "ok", "ok")]
    database = StateDb(home / "state.db", 22)
    database.session("s1", messages)
    take(archive, home)
    before = archive.everything()[0][1]

    database.run("DELETE FROM messages")
    database.say("s1", [*messages, message("user", "and on")])
    database.close()
    report = take(archive, home)

    assert (report.extended, report.messages) == (1, 1)
    assert archive.everything()[0][1][:-1] == before
    as_before(archive, home)


def test_what_a_file_brought_stays_when_it_is_gone(archive: ImportedStore, home: Path) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("s1", texts("a", "b"))
    lines = [*texts("a"), message("assistant", "only in the file"), message("assistant", "b")]
    path = write.transcript(home / "sessions" / "s1.jsonl", lines)
    take(archive, home)
    path.unlink()
    take(archive, home)

    database.say("s1", texts("c"))
    database.close()
    take(archive, home)

    assert archive.texts("hermes", "s1") == ["a", "only in the file", "b", "c"]
    archive.check()


def test_a_session_that_turns_up_in_a_second_place_is_the_same(
    archive: ImportedStore, home: Path
) -> None:
    write.transcript(home / "sessions" / "s1.jsonl", texts("a", "b"))
    take(archive, home)
    database = StateDb(home / "state.db", 22)
    database.session("s1", texts("a", "b", "c"), title="Named")
    database.close()
    take(archive, home)
    write.web_session(home / "webui", "s1", texts("a", "b", "c", "d"), title="Web")

    take(archive, home)

    assert (archive.count(), archive.texts("hermes", "s1")) == (1, ["a", "b", "c", "d"])
    assert archive.session("hermes", "s1").title == "Web"
    assert len(archive.log("hermes", "s1")) == 4
    as_before(archive, home)


def test_an_export_of_its_own_is_read(archive: ImportedStore, tmp_path: Path) -> None:
    first = {"id": "c1", "source": "cli", "started_at": NOON, "title": "Long talk"}
    first |= {"ended_at": NOON + 5, "end_reason": "compression", "system_prompt": "x" * 9000}
    second = {"id": "c2", "source": "cli", "started_at": NOON + 6, "parent_session_id": "c1"}
    path = tmp_path / "backup.jsonl"
    lines = [first | {"messages": texts("a", "b")}, {"id": 7}, second | {"messages": texts("c")}]
    path.write_text("\n".join(json.dumps(each) for each in lines) + "\n{broken\n")

    report = take(archive, path)

    assert IMPORTER.recognises(path)
    assert (report.added, archive.texts("hermes", "c1")) == (1, ["a", "b", "c"])
    assert [fault.where for fault in report.faults] == ["line 2", "line 4"]
    before = archive.everything()
    path.write_text(path.read_text().replace("{broken", ""))
    assert take(archive, path).unchanged == 1
    assert archive.everything() == before


def test_damaged_files_break_nothing(tmp_path: Path) -> None:
    home = tmp_path / ".hermes"
    database = StateDb(home / "state.db", 22)
    database.session("s1", [*write.talk(), *write.rich()], title="Folders", input_tokens=5)
    database.session("s2", texts("a"), parent_session_id="s1")
    database.close()
    write.transcript(home / "sessions" / "s1.jsonl", write.talk()[:4])
    write.index(home / "sessions" / "sessions.json", {"k": write.entry("k", "s1")})
    path = write.web_session(home / "webui", "s1", write.talk(), title="Web")
    (path.parent / "s1.json.bak").write_text(json.dumps({"messages": write.talk() * 2}))
    (home / "cron").mkdir()
    (home / "cron" / "jobs.json").write_text('{"jobs": [{"id": "1", "name": "x"}]}')

    survives(IMPORTER, home, tmp_path)


def test_a_session_of_which_only_the_copy_is_left_is_read(
    archive: ImportedStore, home: Path
) -> None:
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b"), title="Kept")
    path.rename(path.with_name("0123456789ab.json.bak"))

    report = take(archive, home)

    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("hermes", "0123456789ab") == ["a", "b"]
    assert archive.session("hermes", "0123456789ab").title == "Kept"
    as_before(archive, home)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"\x00" * 99])
def test_of_a_session_that_is_damaged_the_copy_is_read(
    damage: Callable[[bytes], bytes], archive: ImportedStore, home: Path
) -> None:
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b"))
    path.with_name("0123456789ab.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(damage(path.read_bytes()))

    report = take(archive, home)

    assert archive.texts("hermes", "0123456789ab") == ["a", "b"]
    [fault] = report.faults
    assert fault.where == "0123456789ab.json"
    assert "its copy 0123456789ab.json.bak was read instead" in fault.why


def test_a_damaged_session_with_a_copy_is_read_from_a_home_and_from_a_folder(
    tmp_path: Path, home: Path
) -> None:
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b"))
    path.with_name("0123456789ab.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(b"\x00" * 99)

    results = [
        imports.preview(None, [imports.ImportRequest("hermes", home)]),
        imports.preview(None, [imports.ImportRequest(None, home, is_named=True)]),
    ]

    assert [(each.added, each.messages) for one in results for each in one.outcomes] == [(1, 2)] * 2


def test_a_copy_that_is_damaged_holds_up_nothing(archive: ImportedStore, home: Path) -> None:
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b"))
    path.with_name("0123456789ab.json.bak").write_bytes(b'{"session_id": "0123')

    report = take(archive, home)

    assert archive.texts("hermes", "0123456789ab") == ["a", "b"]
    assert [fault.where for fault in report.faults] == ["0123456789ab.json.bak"]


def test_a_queued_prompt_that_is_already_in_the_log_is_shown_once(
    archive: ImportedStore, home: Path
) -> None:
    waiting = "Where  is\n the mill? "
    messages = texts("Where is the mill?")
    write.web_session(home / "webui", "0123456789ab", messages, pending_user_message=waiting)
    write.web_session(home / "webui", "0123456789cd", [], pending_user_message=waiting)

    take(archive, home)

    assert archive.texts("hermes", "0123456789ab") == ["Where is the mill?"]
    assert archive.texts("hermes", "0123456789cd") == [waiting]


@pytest.mark.parametrize("draft", ["And the barn?", {"text": "And the barn?", "files": []}])
def test_a_draft_is_in_the_composer(draft: object, archive: ImportedStore, home: Path) -> None:
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b"))
    take(archive, home)
    assert archive.draft("hermes", "0123456789ab") is None

    write.web_session(home / "webui", "0123456789ab", texts("a", "b", "c"), composer_draft=draft)
    take(archive, home)
    assert archive.draft("hermes", "0123456789ab") == "And the barn?"

    # A draft that is here may be a person's: an import leaves it.
    more = {"composer_draft": {"text": "another"}}
    write.web_session(home / "webui", "0123456789ab", texts("a", "b", "c", "d"), **more)
    take(archive, home)
    assert archive.draft("hermes", "0123456789ab") == "And the barn?"
    assert path.exists()


def test_the_anchor_of_a_compression_is_a_compaction(archive: ImportedStore, home: Path) -> None:
    messages = [{**m, "timestamp": NOON + n} for n, m in enumerate(texts("a", "b", "c", "d", "b"))]
    key = {
        "role": messages[3]["role"],
        "ts": messages[3]["timestamp"],
        "text": "d",
        "attachments": 0,
    }
    summary = {"compression_anchor_summary": "What a and b said."}
    write.web_session(
        home / "webui",
        "0123456789ab",
        messages,
        compression_anchor_message_key=key,
        compression_anchor_visible_idx=0,
        **summary,
    )
    write.web_session(
        home / "webui", "0123456789cd", messages, compression_anchor_visible_idx=1, **summary
    )
    write.web_session(home / "webui", "0123456789ef", messages, **summary)

    take(archive, home)

    marks = {
        id: [
            (each.seq, each.body.through, each.body.summary)
            for each in archive.log("hermes", id)
            if isinstance(each.body, Compaction)
        ]
        for id in ("0123456789ab", "0123456789cd", "0123456789ef")
    }
    assert marks == {
        "0123456789ab": [(5, 4, "What a and b said.")],
        "0123456789cd": [(3, 2, "What a and b said.")],
        "0123456789ef": [],
    }
    assert archive.texts("hermes", "0123456789ab") == ["a", "b", "c", "d", "b"]
    as_before(archive, home)


def test_every_field_of_a_web_session_is_kept(archive: ImportedStore, home: Path) -> None:
    given = {
        "personality": "dry",
        "gateway_routing_history": [{"to": "x"}],
        "threshold_tokens": 0,
        "read_only": False,
        "invented_later": {"deep": [1, 2.5, None]},
    }
    path = write.web_session(home / "webui", "0123456789ab", texts("a", "b"), **given)

    take(archive, home)

    kept = archive.extra("hermes", "0123456789ab")["hermes"]
    data = json.loads(path.read_text())
    wanted = {name: value for name, value in data.items() if value is not None}
    del wanted["messages"], wanted["tool_calls"]
    assert {name: kept.get(name) for name in wanted} == wanted


def test_a_field_that_is_too_long_is_left_out_and_named(archive: ImportedStore, home: Path) -> None:
    long = {"blob": "x" * 300_000}
    write.web_session(home / "webui", "0123456789ab", texts("a", "b"), **long)

    report = take(archive, home)

    assert report.left_out["fields blob, longer than 262,144 bytes"] == 1
    assert "blob" not in archive.extra("hermes", "0123456789ab")["hermes"]


def test_a_log_of_the_agent_is_read_where_nothing_else_has_the_session(
    archive: ImportedStore, home: Path
) -> None:
    database = StateDb(home / "state.db", 22)
    database.session("s1", texts("a", "b"))
    database.close()
    for id, words in (("s1", ("a", "b", "other")), ("s2", ("c", "d"))):
        log = {
            "session_id": id,
            "model": "hermes-4",
            "session_start": "2026-02-01T09:00:00",
            "last_updated": "2026-02-01T09:10:00",
            "system_prompt": "You are Hermes. " * 1_000,
            "messages": texts(*words),
        }
        path = home / "sessions" / f"session_{id}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(log, indent=2))

    report = take(archive, home)
    folder = imports.preview(None, [imports.ImportRequest(None, home, is_named=True)])
    alone = imports.preview(
        None, [imports.ImportRequest("hermes", home / "sessions" / "session_s2.json")]
    )

    assert (report.added, report.units) == (2, 2)
    assert archive.texts("hermes", "s1") == ["a", "b"]
    assert archive.texts("hermes", "s2") == ["c", "d"]
    assert [(each.added, each.units) for each in folder.outcomes] == [(2, 2)]
    assert folder.unknown == ()
    assert [each.added for each in alone.outcomes] == [1]
    as_before(archive, home)


def test_a_transcript_that_names_no_time_has_that_of_its_file(
    archive: ImportedStore, home: Path
) -> None:
    path = write.transcript(home / "sessions" / "s1.jsonl", texts("a", "b"))
    os.utime(path, (NOON, NOON))

    take(archive, home)

    assert archive.session("hermes", "s1").began_at.timestamp() == NOON
