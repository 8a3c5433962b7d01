"""The same commands on PostgreSQL."""

from pathlib import Path

from tests.cli.conftest import Program


def test_a_session_lives_on_postgresql_from_begin_to_end(
    sessionary: Program, postgres_url: str
) -> None:
    there = ["--database", postgres_url]

    missing = sessionary("sessions", "list", *there)
    made = sessionary("sessions", "append", "new", "hello", "--title", "Capitals", "--json", *there)
    sessionary("sessions", "append", "Capitals", "Lisbon", "--role", "assistant", *there)
    shown = sessionary("sessions", "show", "Capitals", "--json", *there)
    listed = sessionary("sessions", "list", *there)
    verified = sessionary("verify", *there)
    doctor = sessionary("doctor", "--json", *there)
    taken = sessionary("sessions", "append", "new", "x", "--title", "Capitals", *there)

    assert missing.code == 3
    assert made.json["seq"] == 1
    assert [item["text"] for item in shown.json["items"]] == ["hello", "Lisbon"]
    assert "Capitals" in listed.out
    assert verified.code == doctor.code == 0
    assert taken.code == 1
    assert "is taken by session" in taken.line
    assert not sessionary.home.exists()


def test_a_store_moves_to_postgresql_and_back(
    sessionary: Program, postgres_url: str, tmp_path: Path
) -> None:
    sessionary.append("new", "hello", "--title", "Capitals")
    before = sessionary("export", "--all").out
    back = f"sqlite:///{tmp_path / 'back.db'}"

    there = sessionary("migrate", "--to", postgres_url, "--json")
    again = sessionary("migrate", "--database", postgres_url, "--to", back)

    assert there.code == again.code == 0, there.err + again.err
    assert there.json["rows"]["entries"] == 1
    assert sessionary("export", "--all", "--database", postgres_url).out == before
    assert sessionary("export", "--all", "--database", back).out == before


def test_a_server_that_is_not_there_is_one_line_without_the_password(sessionary: Program) -> None:
    url = "postgresql://me:secret@127.0.0.1:1/none"

    answer = sessionary("sessions", "list", "--database", url)
    doctor = sessionary("doctor", "--database", url)

    assert answer.code == doctor.code == 1
    assert "PostgreSQL cannot be reached" in answer.line
    assert "secret" not in answer.err + doctor.out + doctor.err
