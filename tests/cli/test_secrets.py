"""Keys that stand in messages are found, and can be left out of what is given away."""

from pathlib import Path

from tests.cli.conftest import Program
from tests.model.test_secret import SECRETS

KEY = SECRETS["GitHub token"]


def test_a_secret_is_found_and_shown_only_in_part(sessionary: Program) -> None:
    sessionary.append("new", f"my token is {KEY}", "--title", "Deploy")
    sessionary.append("new", "nothing here", "--title", "Other")

    answer, items = sessionary("scan-secrets"), sessionary("scan-secrets", "--json").json["items"]

    assert answer.code == 0
    assert "GitHub token" in answer.out
    assert KEY not in answer.out
    assert [(item["seq"], item["role"], item["kind"]) for item in items] == [
        (1, "user", "GitHub token")
    ]
    assert sessionary("scan-secrets", "Other").line == "Nothing that looks like a secret was found."


def test_an_export_can_leave_secrets_out(sessionary: Program) -> None:
    sessionary.append("new", f"my token is {KEY}", "--title", "Deploy")

    for form in ("jsonl", "md", "html"):
        plain = sessionary("export", "Deploy", "--format", form).out
        masked = sessionary("export", "Deploy", "--format", form, "--mask-secrets").out
        assert KEY in plain
        assert KEY not in masked
        assert "[secret]" in masked


def test_what_was_masked_can_be_imported(sessionary: Program, tmp_path: Path) -> None:
    sessionary.append("new", f"my token is {KEY}", "--title", "Deploy")
    given_away = sessionary("export", "Deploy", "--mask-secrets").out.encode()
    other = Program(tmp_path / "other")
    other.home.mkdir()

    assert other("import", "-", stdin=given_away).code == 0
    assert "my token is [secret]" in other("sessions", "show", "Deploy").out
