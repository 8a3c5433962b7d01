"""`sessionary questions` and `policy`: what turns ask is shown and answered; rules are explained and revoked."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, Program
from tests.support import asking_agent
from tests.support.asking_agent import SETTINGS, park_question

# What is refused before the store is written needs no second database.
ON_ONE_DATABASE = pytest.mark.parametrize("asking", ["sqlite"], indirect=True)
FILE = f'agent = "send"\n{SETTINGS}'


@pytest.fixture(params=["sqlite", "postgres"])
def asking(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Program:
    """The program, with agents that ask, on each database."""
    asking_agent.install(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("LOGNAME", "ada")
    if request.param == "postgres":
        monkeypatch.setenv("SESSIONARY_DATABASE", request.getfixturevalue("migrated_url"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "sessionary.toml").write_text(FILE)
    return Program(home)


def ask(program: Program, agent: str = "send", *more: str) -> dict[str, Any]:
    """Let an agent ask; the question."""
    waiting = program("chat", "go", "--agent", agent, "--json", *more)
    assert waiting.json["state"] == "waiting", waiting.out
    question: dict[str, Any] = waiting.json["questions"][0]
    return question


def show(program: Program, question: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = program("questions", "show", question["id"], "--json").json
    return found


def answer(program: Program, question: dict[str, Any], *words: str) -> Answer:
    return program("questions", "answer", question["code"], *words)


def test_a_question_is_listed_with_where_it_was_asked_and_how_long_it_waits(
    asking: Program,
) -> None:
    question = ask(asking)

    heading, row = asking("questions", "list").out.splitlines()
    (item,) = asking("questions", "list", "--json").json["items"]

    assert heading.split() == ["CODE", "LEFT", "AGENT", "WHERE", "QUESTION"]
    assert row.split() == [
        *(question["code"], "23", "h", "send", "terminal"),
        *[
            "may",
            "send",
            "be",
            "called?",
            "to:",
            "Ann",
            "text:",
            "|",
            "See",
            "you",
            "at",
            "9.",
            "|",
            "Bring",
            "cake.",
        ],
    ]
    assert item == question


def test_a_question_is_shown_whole(asking: Program) -> None:
    question = ask(asking)

    shown = asking("questions", "show", question["code"]).out

    assert f"question    {question['id']}\n" in shown
    assert f"code        {question['code']}\n" in shown
    assert "state       open. Waits for an answer. After " in shown
    assert "left) it counts as denied." in shown
    assert "why         the tool may change something\n" in shown
    assert "may answer  the owners\n" in shown
    assert f"turn        {question['turn_id']}\n" in shown
    assert shown.endswith(
        "May the tool send be called?\n\nto: Ann\ntext:\n| See you at 9.\n| Bring cake.\n\n"
        "1. Approve\n2. Deny\n3. Always in this session\n"
    )


def test_nothing_in_the_arguments_is_hidden_and_a_change_is_shown_as_a_diff(
    asking: Program,
) -> None:
    question = ask(asking, "edit")

    shown = asking("questions", "show", question["code"]).out
    listed = asking("questions", "list").out

    assert "path: /tmp/\\u202etxt.exe\n" in shown
    assert "\n-a = 1\n+a = 2\n" in shown
    assert "/tmp/\\u202etxt.exe" in listed
    assert "\u202e" not in shown + listed


@pytest.mark.parametrize(
    ("agent", "words", "outcome"),
    [
        ("send", ["approve"], "Approved by ada."),
        ("send", ["Yes"], "Approved by ada."),
        ("send", ["--option", "1"], "Approved by ada."),
        ("send", ["deny"], "Denied by ada."),
        ("send", ["deny", "--reason", "not today"], "Denied by ada: not today."),
        (
            "send",
            ["approve", "--arguments", '{"to": "Bob"}'],
            "Approved by ada, with other arguments.",
        ),
        (
            "send",
            ["approve", "--always", "session"],
            "Approved by ada; the tool may run in this session from now on.",
        ),
        (
            "send",
            ["--option", "3"],
            "Approved by ada; the tool may run in this session from now on.",
        ),
        ("choice", ["Blue"], "Answered by ada: Blue."),
        ("choice", ["green"], "Answered by ada: Green."),
        ("choice", ["3"], "Answered by ada: Blue."),
        ("choice", ["--option", "1"], "Answered by ada: Red."),
        ("choice", ["deny"], "Denied by ada."),
        ("text", ["tomorrow", "at", "nine"], "Answered by ada: tomorrow at nine."),
        ("form", ["--values", '{"city": "Paris", "days": 3}'], "Answered by ada: the form."),
    ],
)
def test_a_question_is_answered_and_its_turn_goes_on(
    asking: Program, agent: str, words: list[str], outcome: str
) -> None:
    question = ask(asking, agent)

    answered = answer(asking, question, *words)
    next_one = asking("chat", "something plain")

    assert answered.code == 0, answered.err
    assert answered.out == (
        f"{outcome} The turn goes on in a running server, or in `sessionary chat` if it began there.\n"
    )
    assert next_one.out == "Nothing to ask.\n"
    (head,) = asking("sessions", "list", "--json").json["items"]
    texts = [each["text"] for each in asking("show", head["id"], "--json").json["items"]]
    assert f"Done: {outcome}" in texts
    assert asking("questions", "list").err == "No question waits for an answer.\n"


def test_an_answer_has_who_gave_it_and_what_they_changed(asking: Program, tmp_path: Path) -> None:
    question = ask(asking)
    changed = tmp_path / "arguments.json"
    changed.write_text('{"to": "Bob"}')

    given = answer(asking, question, "approve", "--arguments", f"@{changed}", "--json").json
    shown = asking("questions", "show", question["id"])
    by_code = asking("questions", "show", question["code"].lower())

    assert given["state"] == "answered"
    assert {**given["answer"], "at": ""} == {
        "decision": "approve",
        "text": "",
        "arguments": {"to": "Bob"},
        "values": None,
        "always": None,
        "by": "ada",
        "platform": "terminal",
        "at": "",
    }
    assert shown.out.endswith("It was called with:\n\nto: Bob\n")
    assert by_code.out == shown.out


def test_a_text_is_read_from_standard_input(asking: Program) -> None:
    question = ask(asking, "text")

    given = asking("questions", "answer", question["id"], "-", "--json", stdin=b"At nine.\nOr ten.")

    assert given.json["answer"]["text"] == "At nine.\nOr ten."


def test_the_other_questions_of_the_turn_are_counted(asking: Program) -> None:
    question = ask(asking, "two")

    assert answer(asking, question, "approve").out == (
        "Approved by ada. 1 other question of this turn waits for an answer.\n"
    )
    (left,) = asking("questions", "list", "--json").json["items"]
    assert left["tool"] == "pay"


@ON_ONE_DATABASE
@pytest.mark.parametrize(
    ("agent", "words", "code", "says"),
    [
        ("send", [], 2, "Say what the answer is"),
        ("send", ["maybe"], 1, "Write approve or deny"),
        ("send", ["--always", "session"], 1, "Write approve or deny"),
        ("send", ["approve", "--always", "ever"], 2, "'ever' is not one of"),
        ("send", ["approve", "--always", "person"], 1, "nobody for whom there could be a rule"),
        ("send", ["approve", "--reason", "why not"], 1, "--reason is for a denial"),
        ("send", ["deny", "--always", "session"], 1, "A denial has a reason, and nothing else."),
        ("send", ["approve", "--arguments", "{to"], 1, "--arguments is not JSON"),
        ("send", ["approve", "--arguments", "[1]"], 1, "--arguments must be a JSON object"),
        ("send", ["approve", "--arguments", "@/no/such"], 1, "/no/such: No such file"),
        ("send", ["approve", "--option", "1"], 1, "--option or an answer, not both"),
        ("send", ["--option", "9"], 1, "There is no option 9: the question has 3."),
        ("text", ["--option", "1"], 1, "There is no option 1: the question has none."),
        ("text", ["now", "--always", "session"], 1, "Only the approval of a tool call"),
        ("text", ["x" * 20_001], 1, "20,000 characters"),
        ("choice", ["Pink"], 1, "Choose one of: Red, Green, Blue."),
        ("form", ["Paris"], 1, "Give the values of this form with --values."),
        ("form", ["--values", '{"days": 1}'], 1, "city is missing."),
        ("form", ["--values", '{"city": "Paris", "days": "x"}'], 1, "days is of type integer."),
    ],
)
def test_what_is_no_answer_is_refused_and_changes_nothing(
    asking: Program, agent: str, words: list[str], code: int, says: str
) -> None:
    question = ask(asking, agent)

    refused = answer(asking, question, *words)

    assert (refused.code, refused.out) == (code, "")
    assert says in refused.line
    assert show(asking, question)["state"] == "open"


def test_a_decided_question_is_answered_once(asking: Program) -> None:
    question = ask(asking)
    answer(asking, question, "deny")

    by_id = asking("questions", "answer", question["id"], "approve")
    by_code = answer(asking, question, "approve", "--json")

    assert by_id.code == by_code.code == 1
    assert by_id.line == "sessionary: Denied by ada. Nothing was changed."
    assert by_code.json["error"]["type"] == "conflict"
    assert show(asking, question)["answer"]["decision"] == "deny"


def test_an_answer_that_comes_too_late_is_refused(asking: Program) -> None:
    late = "[questions]\nexpire_seconds = 0.05\n"
    slow = FILE.replace("sweep_seconds = 0.05", "sweep_seconds = 300")
    (asking.home / "sessionary.toml").write_text(f"{slow}{late}")
    question = ask(asking)
    while datetime.now(UTC) < datetime.fromisoformat(question["expires_at"]):
        pass

    refused = answer(asking, question, "approve")

    assert refused.code == 1
    assert refused.line == "sessionary: The time for an answer was over. Nobody answered in time."
    assert show(asking, question)["state"] == "expired"


@pytest.mark.parametrize("command", [["show"], ["answer", "approve"]])
def test_an_unknown_or_ambiguous_question_is_one_line_of_error(
    asking: Program, command: list[str]
) -> None:
    question = ask(asking, "two")
    name, *words = command

    unknown = asking("questions", name, "ZZZZZ", *words)
    ambiguous = asking("questions", name, question["id"][:8], *words)

    assert (unknown.code, ambiguous.code) == (3, 4)
    assert unknown.line == "sessionary: There is no question ZZZZZ."
    assert question["id"] in ambiguous.line


class SameCode(random.Random):
    """Gives every question the same code, and its own token."""

    def getrandbits(self, k: int, /) -> int:
        return 7 if k == 64 else super().getrandbits(k)


def test_a_code_that_two_open_questions_have_is_ambiguous(asking: Program) -> None:
    asking.append("new", "hello")
    found = [park_question(asking.home, rng=SameCode(seed)) for seed in (1, 2)]
    code = found[0].code

    refused = asking("questions", "answer", code, "approve")
    answered = asking("questions", "answer", found[0].id, "approve")
    alone = asking("questions", "answer", code, "approve")

    assert refused.code == 4
    assert all(each.id in refused.line for each in found)
    assert (answered.code, alone.code) == (0, 0)


def test_an_approval_may_count_for_the_person_who_asked(asking: Program) -> None:
    asking.append("new", "hello")
    question = park_question(asking.home)

    shown = asking("questions", "show", question.code).out
    answered = asking("questions", "answer", question.code, "approve", "--always", "person")
    (rule,) = asking("policy", "list", "--json").json["items"]

    assert "where       DM with Eva\n" in shown
    assert "for         telegram:5\n" in shown
    assert "4. Always for this person\n" in shown
    assert "; the tool may run for this person from now on." in answered.out
    assert (rule["person"], rule["tool"], rule["session_id"]) == ("telegram:5", "send", None)


def test_all_questions_are_listed_by_page_and_by_session(asking: Program) -> None:
    first = ask(asking)
    answer(asking, first, "deny")
    second = ask(asking, "text", "--new") if _go_on(asking) else {}

    everything = asking("questions", "list", "--all", "--json").json["items"]
    page = asking("questions", "list", "--all", "--limit", "1", "--json").json
    rest = asking("questions", "list", "--all", "--cursor", page["next"], "--json").json
    of_first = asking("questions", "list", "--all", "--session", first["session_id"], "--json")
    open_of_first = asking("questions", "list", "--session", first["session_id"], "--json")
    open_of_second = asking("questions", "list", "--session", second["session_id"], "--json")
    table = asking("questions", "list", "--all").out.splitlines()

    assert [each["id"] for each in everything] == [second["id"], first["id"]]
    assert [each["id"] for each in (*page["items"], *rest["items"])] == [second["id"], first["id"]]
    assert [each["id"] for each in of_first.json["items"]] == [first["id"]]
    assert open_of_first.json == {"items": [], "next": None}
    assert [each["id"] for each in open_of_second.json["items"]] == [second["id"]]
    assert [row.split()[2] for row in table] == ["STATE", "open", "answered"]
    assert asking("questions", "list", "--session", "Nobody").code == 3


def _go_on(program: Program) -> bool:
    """The turn whose question was decided goes on to its end."""
    return program("chat", "something plain").code == 0


def test_a_session_and_its_turn_are_shown_as_waiting_for_an_answer(asking: Program) -> None:
    question = ask(asking)

    row = asking("sessions", "list").out.splitlines()[-1]
    shown = asking("sessions", "show", "(waiting for an answer) go").out
    turns = asking("turns", "list", "go").out.splitlines()
    doctor = asking("doctor")

    assert row.endswith("  (waiting for an answer) go")
    assert f"turn waiting for an answer\nquestion {question['code']}: may send be called?" in shown
    assert "waiting for an answer" in turns[-1]
    assert "waiting to go on" not in row + shown + turns[-1]
    assert "questions: 1 question waits for an answer\n" in doctor.out


def test_stop_ends_a_turn_that_waits_for_an_answer(asking: Program) -> None:
    question = ask(asking)

    stopped = asking("sessions", "stop", question["session_id"])
    late = answer(asking, question, "approve")

    assert stopped.out == f"The turn in session {question['session_id']} was stopped.\n"
    assert late.line == "sessionary: No answer is needed any more. Nothing was changed."
    (turn,) = asking("turns", "list", question["session_id"], "--json").json["items"]
    assert (turn["state"], show(asking, question)["state"]) == ("interrupted", "withdrawn")


def test_a_script_is_told_how_to_answer(asking: Program) -> None:
    told = asking("chat", "go")
    (question,) = asking("questions", "list", "--json").json["items"]

    assert (told.code, told.out) == (1, "I must ask first.\n")
    assert "May the tool send be called?\n\nto: Ann\n" in told.err
    assert told.err.splitlines()[-1] == (
        f"The question {question['code']} stays open. Answer it with: sessionary questions answer "
        f"{question['code']} approve; or come back with: sessionary chat"
    )


POLICY = """
[[policy]]
decision = "deny"
tool = "rm*"

[[policy]]
decision = "ask"
tool = "mail*"
by = "asker"

[[policy]]
decision = "allow"
tool = "write"
arguments = { path = "/tmp/*" }

[access.webhook]
allow = ["5", "6"]
owners = ["5"]

[channels.webhook]
url = "http://127.0.0.1:9/never"
secret_env = "NO_SECRET"
"""


@pytest.fixture
def ruled(asking: Program) -> Program:
    (asking.home / "sessionary.toml").write_text(f"{FILE}{POLICY}")
    asking.append("new", "hello")
    return asking


@ON_ONE_DATABASE
@pytest.mark.parametrize(
    ("words", "decision", "because", "may_answer", "asked_in"),
    [
        (["rm_all", "--source", "terminal"], "deny", "rule 1 of", [], []),
        (
            ["mail", "--source", "webhook:7", "--type", "group", "--person", "6"],
            "ask",
            "rule 2 of",
            ["webhook:6"],
            ["webhook:7"],
        ),
        (
            [
                "write",
                "--source",
                "webhook:6",
                "--person",
                "6",
                "--arguments",
                '{"path": "/tmp/a"}',
            ],
            "allow",
            "rule 3 of",
            [],
            [],
        ),
        (
            ["write", "--source", "webhook:6", "--person", "6", "--arguments", '{"path": "/etc"}'],
            "ask",
            "this person is not an owner",
            [],
            [],
        ),
        (
            ["write", "--source", "webhook:7", "--type", "group", "--person", "5"],
            "ask",
            "this is a group",
            [],
            ["webhook:7"],
        ),
        (["write", "--source", "webhook:5", "--person", "5"], "allow", "an owner asked", [], []),
        (
            ["write", "--source", "terminal", "--needs-approval"],
            "ask",
            "the agent asks for an approval",
            [],
            [],
        ),
        (["look", "--source", "webhook:9", "--class", "safe"], "allow", "is safe", [], []),
    ],
)
def test_it_is_explained_what_happens_to_a_call_and_who_is_asked(
    ruled: Program,
    words: list[str],
    decision: str,
    because: str,
    may_answer: list[str],
    asked_in: list[str],
) -> None:
    value = ruled("policy", "explain", *words, "--json").json
    text = ruled("policy", "explain", *words).out

    assert value["decision"] == decision
    assert because in value["rule"]
    assert (value["may_answer"], value["asked_in"]) == (may_answer, asked_in)
    assert value["rule_number"] == (int(because[5]) if because.startswith("rule ") else None)
    assert text.splitlines()[:2] == [f"decision:  {decision}", f"because:   {value['rule']}"]
    assert ("approval:  by the owners" in text) is (decision == "ask")


@ON_ONE_DATABASE
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["mail"], 2, "Missing option '--source'"),
        (["mail", "--source", "webhook:"], 1, "a channel is written platform:chat"),
        (["mail", "--source", "terminal", "--arguments", "x"], 1, "--arguments is not JSON"),
        (["mail", "--source", "terminal", "--session", "Nobody"], 3, "No session is called"),
    ],
)
def test_a_call_that_cannot_be_explained_is_one_line_of_error(
    ruled: Program, words: list[str], code: int, says: str
) -> None:
    refused = ruled("policy", "explain", *words)

    assert refused.code == code
    assert says in refused.line


def test_a_standing_approval_is_explained_listed_and_revoked(asking: Program) -> None:
    question = ask(asking)
    answer(asking, question, "approve", "--always", "session")
    (asking.home / "sessionary.toml").write_text(f"{FILE}{POLICY}")
    explain = ["policy", "explain", "send", "--source", "terminal", "--needs-approval", "--json"]

    explained = asking(*explain).json
    listed = asking("policy", "list").out.splitlines()
    items = asking("policy", "list", "--json").json["items"]
    revoked = asking("policy", "revoke", items[-1]["id"][:12])
    after = asking(*explain).json

    assert [each["kind"] for each in items] == ["rule", "rule", "rule", "approval"]
    assert listed[1] == "rule 1" + " " * 22 + "deny if tool = 'rm*'"
    assert listed[2].endswith("; the person who asked may approve it")
    assert listed[4].startswith(
        f"{items[-1]['id']}  allow: ada approved send of the agent send in this session on "
    )
    assert explained["decision"] == "allow"
    assert explained["approval_id"] == items[-1]["id"]
    assert explained["session_id"] == question["session_id"]
    assert revoked.out.startswith(
        "Revoked: ada approved send of the agent send in this session on "
    )
    assert (after["decision"], after["approval_id"]) == ("ask", None)
    assert asking("policy", "revoke", items[-1]["id"]).code == 3
    assert asking("policy", "revoke", "").code == 3


def test_the_rules_are_listed_without_a_standing_approval(ruled: Program) -> None:
    listed = ruled("policy", "list")

    assert len(listed.out.splitlines()) == 4
    assert "What no rule is about: a safe tool may run." in listed.err
    assert json.loads(ruled("policy", "list", "--json").out)["next"] is None


def test_a_home_without_a_store_is_not_created(sessionary: Program) -> None:
    for words in (["questions", "list"], ["policy", "list"], ["questions", "show", "K7QM"]):
        assert sessionary(*words).code == 3
    assert not sessionary.home.exists()
