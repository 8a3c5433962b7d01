"""Looking after a store from the command line."""

import csv
import io
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sessionary import Sessionary
from sessionary.model.source import Source
from sessionary.store.tables import access
from tests.cli.conftest import Program


@pytest.fixture
def filled(sessionary: Program) -> Program:
    sessionary.append("new", "hello", "--title", "Capitals")
    sessionary.append("Capitals", "hi", "--role", "assistant", "--model", "gpt-5-mini")
    return sessionary


def meddle(sessionary: Program, statement: str) -> None:
    """Change the file behind the program's back."""
    store = sqlite3.connect(sessionary.database)
    store.execute(statement)
    store.commit()
    store.close()


def test_verify_names_what_is_broken_and_rebuild_makes_it_right(filled: Program) -> None:
    assert filled("verify").code == 0
    meddle(filled, "UPDATE sessions SET message_count = 99")

    broken = filled("verify")
    program = filled("verify", "--json")

    assert broken.code == program.code == 1
    assert "counters" in broken.out
    assert "message_count says 99, the log 2" in broken.out
    assert program.json["ok"] is False
    assert program.json["broken"][0]["invariant"] == "counters"
    assert filled("rebuild", "--json").json == {"changed": 1}
    assert filled("verify", "--json").json["ok"] is True


def test_doctor_finds_a_healthy_store_healthy(filled: Program) -> None:
    answer = filled("doctor", "--json")

    assert answer.code == 0
    assert {each["name"] for each in answer.json["findings"]} >= {
        "program",
        "file",
        "permissions",
        "wal",
        "file system",
        "identity",
        "room",
        "schema",
        "integrity",
        "queues",
    }
    assert "SQLite 3." in filled("doctor").out


def test_doctor_tells_how_to_shut_others_out(filled: Program) -> None:
    filled.database.chmod(0o644)

    answer = filled("doctor")

    assert answer.code == 1
    assert f"bad   permissions: others can use {filled.database}" in answer.out
    assert f"Run: chmod 600 '{filled.database}'" in answer.out


def test_doctor_tells_of_turns_whose_lease_ran_out(filled: Program) -> None:
    meddle(
        filled,
        "INSERT INTO turns (id, session_no, state, epoch, holder, lease_until, began_at, first_seq)"
        " VALUES ('t', 1, 'running', 1, 'x', 1, 1, 1)",
    )

    assert "1 turn with an expired lease" in filled("doctor").out


def test_doctor_tells_of_exchanges_of_the_proxy_that_are_not_in_the_log(filled: Program) -> None:
    assert "proxy" not in filled("doctor").out
    for id, state in (("a", "done"), ("b", "failed"), ("c", "failed")):
        meddle(
            filled,
            "INSERT INTO proxy_exchanges"
            " (id, profile, state, holder, expires_at, began_at, done_at, facts, request, response)"
            f" VALUES ('{id}', 'main', '{state}', 'x', 1, 1, 1, '{{}}', x'', x'')",
        )

    told = filled("doctor")

    assert told.code == 0
    assert "ok    proxy: 1 exchange not in the log yet" in told.out
    assert "warn  proxy: 2 exchanges could not be recorded" in told.out


def test_prune_counts_first_and_never_takes_what_is_open_or_pinned(filled: Program) -> None:
    old = filled.append("new", "old")["session_id"]
    kept = filled.append("new", "kept")["session_id"]
    for each in (old, kept):
        filled("sessions", "end", each)
    filled("sessions", "pin", kept)
    meddle(filled, "UPDATE sessions SET ended_at = began_at WHERE ended_at IS NOT NULL")

    looked = filled("prune", "--older-than", "0d", "--json").json
    untouched = len(filled.ids())
    done = filled("prune", "--older-than", "0d", "--apply", "--json").json

    assert (looked["sessions"], looked["applied"], untouched) == (1, False, 3)
    assert looked["bytes"] > 0
    assert (done["sessions"], done["applied"]) == (1, True)
    assert old not in filled.ids()
    assert len(filled.ids()) == 2


def test_usage_is_csv_that_a_spreadsheet_does_not_run(filled: Program) -> None:
    filled.append(
        "Capitals", "x", "--role", "assistant", "--model", "=cmd()", "--input-tokens", "3"
    )

    rows = list(csv.DictReader(io.StringIO(filled("usage", "--by", "model", "--csv").out)))

    assert [row["group"] for row in rows] == ["'=cmd()", "gpt-5-mini"]
    assert rows[0]["cost_microusd"] == ""


def test_budgets_are_a_table_and_json(filled: Program) -> None:
    assert "There are no budgets" in filled("usage", "--budgets").err
    (filled.home / "sessionary.toml").write_text(
        '[budget."agent:helper"]\ntokens = 2000\nusd = 3\nper = "month"\n'
        "[budget.person]\ntokens = 10\n"
    )
    now = datetime.now(UTC)
    used: dict[str, Any] = {"profile": "main", "tokens": 1000, "cost_microusd": 1_200_000}
    with Sessionary(filled.database) as s:
        # A month may end during the test.
        for month in {f"{at:%Y-%m}" for at in (now, now + timedelta(days=1))}:
            s.store.write(access.add_spending, "agent:helper", month, **used).result()

    table = filled("usage", "--budgets").out.splitlines()
    items = filled("usage", "--budgets", "--json").json["items"]
    refused = filled("usage", "--budgets", "--since", "7d")

    assert table[0].split()[:3] == ["BUDGET", "PER", "USED"]
    assert table[1].split()[:6] == ["agent:helper", "month", "1,000", "2,000", "0", "50"]
    assert table[2].split()[:5] == ["agent:helper", "month", "$1.20", "$3.00", "$0.00"]
    assert table[3].split()[:5] == ["each", "person", "day", "0", "10"]
    assert [(each["scope"], each["used_tokens"]) for each in items] == [
        ("agent:helper", 1000),
        ("person", 0),
    ]
    assert "leave out --since" in refused.err


def test_a_route_is_explained_and_followed(filled: Program, tmp_path: Path) -> None:
    (filled.home / "sessionary.toml").write_text('[reset.platform.telegram]\nmode = "idle"\n')
    where = ["--platform", "telegram", "--type", "group", "--chat", "-100", "--person", "7"]

    value = filled("route", "explain", *where, "--json").json
    filled("bindings", "switch", value["key"], "Capitals")
    bound = filled("route", "explain", *where)
    filled("bindings", "reset", value["key"])
    after = filled("route", "explain", *where)

    assert value["key"] == "main/telegram/group/chat=-100/person=7"
    assert value["binding"] is None
    assert value["policy"]["mode"] == "idle"
    assert "set for the platform telegram" in bound.out
    assert "a message goes to session" in bound.out
    assert "has ended (new)" in after.out


def test_a_key_of_another_profile_is_not_touched(filled: Program) -> None:
    answer = filled("bindings", "reset", "other/web/dm/chat=5")

    assert answer.code == 3
    assert "add --profile other" in answer.line


def test_what_is_exported_can_be_imported_and_exported_again(
    filled: Program, tmp_path: Path
) -> None:
    other = Program(tmp_path / "other")
    file = tmp_path / "all.jsonl"
    filled("export", "--all", "-o", str(file))

    looked = other("import", str(file), "--dry-run")
    assert not other.home.exists()
    first = other("import", "sessionary", str(file), "--json").json
    again = other("import", "-", "--json", stdin=file.read_bytes()).json

    assert "1 session would be added" in looked.out
    assert (first["added"], first["entries"]) == (1, 2)
    assert (again["added"], again["unchanged"]) == (0, 1)
    assert other("export", "--all").out.encode() == file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_export_does_not_write_over_a_file_unless_it_must(
    filled: Program, tmp_path: Path
) -> None:
    file = tmp_path / "mine.md"
    file.write_text("mine")

    refused = filled("export", "Capitals", "--format", "md", "-o", str(file))
    kept = file.read_text()
    filled("export", "Capitals", "--format", "md", "-o", str(file), "--force")

    assert refused.code == 1
    assert "was not changed. Add --force to overwrite it." in refused.line
    assert kept == "mine"
    assert file.read_text().startswith("# Capitals\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_a_page_of_html_has_no_script_and_fetches_nothing(filled: Program) -> None:
    filled.append("Capitals", '<script>alert(1)</script><img src="http://x/y">')

    page = filled("export", "--all", "--format", "html").out

    assert "<script" not in page
    assert "<img" not in page
    assert "default-src 'none'" in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_store_itself_cannot_be_imported(filled: Program) -> None:
    answer = filled("import", str(filled.database))

    assert answer.code == 1
    assert "belongs to the store itself" in answer.line


def test_a_backup_is_restored_after_a_yes_and_the_old_store_is_kept(
    filled: Program, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    made = filled("backup", str(file))
    before = filled("export", "--all").out
    filled.append("Capitals", "after the backup")

    asked = filled("restore", str(file))
    done = filled("restore", str(file), "--yes", "--json")

    assert made.code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert asked.code == 1
    assert "would be replaced by one with 1 session. Nothing was changed." in asked.line
    assert done.code == 0
    assert Path(done.json["kept"]).exists()
    assert filled("export", "--all").out == before
    assert filled("verify").code == 0


def test_a_backup_can_be_restored_into_a_fresh_home(filled: Program, tmp_path: Path) -> None:
    filled("backup", str(tmp_path / "backup.db"))
    fresh = Program(tmp_path / "fresh")

    answer = fresh("restore", str(tmp_path / "backup.db"), "--json")

    assert answer.json["kept"] is None
    assert fresh.home.stat().st_mode & 0o777 == 0o700
    assert fresh("export", "--all").out == filled("export", "--all").out


def test_what_is_no_backup_is_not_restored(filled: Program, tmp_path: Path) -> None:
    before = filled("export", "--all").out
    (tmp_path / "notes.txt").write_text("my notes\n" * 500)

    missing = filled("restore", str(tmp_path / "none.db"), "--yes")
    wrong = filled("restore", str(tmp_path / "notes.txt"), "--yes")
    written_over = filled("backup", str(tmp_path / "notes.txt"))

    assert (missing.code, wrong.code, written_over.code) == (3, 1, 1)
    assert "not a Sessionary store" in wrong.line
    assert "already; it was left as it is" in written_over.line
    assert filled("export", "--all").out == before


def test_a_store_is_not_copied_to_itself(filled: Program) -> None:
    answer = filled("migrate", "--to", f"sqlite:///{filled.database}")

    assert answer.code == 1
    assert "cannot be copied to itself" in answer.line


def test_pack_counts_first_and_then_takes_less_room(filled: Program) -> None:
    for number in range(20):
        filled.append("Capitals", f"line {number} " + "of a long story " * 200)
    before, export = filled.database.stat().st_size, filled("export", "--all").out

    plan = filled("pack", "--older-than", "0d")
    done = filled("pack", "--older-than", "0d", "--apply", "--shrink", "--json").json

    assert "1 session would be packed" in plan.out
    assert done["messages"] == 22
    assert filled.database.stat().st_size < before
    assert filled("export", "--all").out == export
    assert filled("verify").code == 0


def test_pack_names_a_session_that_lacks_words_and_packs_the_others(filled: Program) -> None:
    long = filled.append("new", "a long story " * 4000, "--title", "Long")
    meddle(filled, "DELETE FROM blobs WHERE size > 40000")

    done = filled("pack", "--older-than", "0d", "--apply", "--json")
    packed = filled("pack", "--older-than", "0d", "--apply")

    assert (done.code, done.json["sessions"], packed.code) == (1, 1, 1)
    assert [each["session_id"] for each in done.json["damaged"]] == [long["session_id"]]
    assert f"Session {long['session_id']} was not packed: A large text is missing" in packed.err
    assert "Long" in filled("sessions", "list").out


def test_erase_counts_first_and_gives_a_receipt(filled: Program) -> None:
    with Sessionary(filled.database, home=str(filled.home)) as client:
        mei = Source(platform="telegram", chat_id="5", user_id="5", user_name="Mei")
        client.session(mei).append("user", "my address is Elm Street")

    erased = filled("erase", "telegram", "5")
    assert "1 session would be purged" in erased.out
    assert "Nothing was changed" in erased.out
    assert "Elm" in filled("search", "elm").out

    receipt = filled("erase", "telegram", "5", "--apply", "--json").json
    assert (receipt["sessions_purged"], receipt["messages_erased"]) == (1, 1)
    assert receipt["person"] != "5"
    assert "Elm" not in filled("search", "elm").out


def test_receipts_of_erasures_are_shown_again(filled: Program) -> None:
    """They say what went and when, and of whom nothing but a hash."""
    assert "Nobody was erased." in filled("erasures").err
    given = filled("erase", "telegram", "5", "--apply", "--json").json
    assert filled("erasures", "--json").json["items"] == [given]
    shown = filled("erasures").out
    assert given["id"] in shown
    assert given["person"] in shown


def test_erase_says_that_a_name_is_no_id(filled: Program) -> None:
    erased = filled("erase", "telegram", "Mei")

    assert "0 sessions would be purged" in erased.out
    assert "'Mei' has written nothing on 'telegram'" in erased.line


def test_stats_tell_counts_and_room_apart(filled: Program) -> None:
    counts, room = filled("stats").out.split("\n\n")

    assert "entries" in counts
    assert room.startswith("LARGEST")
    assert "sqlite_schema" in room


def test_the_demo_says_where_else_it_could_go(filled: Program) -> None:
    assert "sessionary --home DIR demo" in filled("demo").line


def test_the_demo_says_how_to_look_at_what_it_made(sessionary: Program) -> None:
    output = sessionary("demo", "--sessions", "1").out

    assert f"sessionary --home {sessionary.home} serve" in output


def test_backups_by_the_clock_keep_the_newest_and_touch_no_other_file(
    filled: Program, tmp_path: Path
) -> None:
    for name in ("sessionary-20250101T000000Z.db", "sessionary-20250102T000000Z.db", "notes.db"):
        (tmp_path / name).write_bytes(b"")

    made = filled("backup", "--into", str(tmp_path), "--keep", "2", "--json").json

    assert made["deleted"] == ["sessionary-20250101T000000Z.db"]
    assert len(list(tmp_path.glob("sessionary-*.db"))) == 2
    assert (tmp_path / "notes.db").exists()
    assert filled("sessions", "list", "--database", f"sqlite:///{made['file']}").code == 0
    assert filled("backup").code == filled("backup", "x.db", "--keep", "1").code == 2
