"""Questions as text: what people are shown, and which answer a typed reply is."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sessionary.model.question import (
    Decision,
    NewQuestion,
    Question,
    QuestionBody,
    QuestionKind,
    QuestionState,
    arguments_text,
    question_text,
    read_reply,
    split_code,
    visible,
)

AT = datetime(2026, 3, 2, tzinfo=UTC)
TRIP = {
    "type": "object",
    "properties": {
        "city_name": {"type": "string", "description": "Where to?"},
        "nights": {"type": "integer"},
        "class": {"type": "string", "enum": ["first", "second"]},
        "meals": {"type": "boolean"},
    },
    "required": ["city_name", "nights"],
}


def question(kind: QuestionKind, **fields: Any) -> Question:
    asked = NewQuestion(name="1", kind=kind, text=fields.pop("text", "?"), **fields)
    return Question(
        no=1,
        id="q",
        profile="main",
        session_no=1,
        session_id="s",
        turn_id="t",
        body=QuestionBody(asked=asked),
        state=QuestionState.OPEN,
        asked_at=AT,
        expires_at=AT,
        code="K7QF",
        token="0",
    )


APPROVAL = question(QuestionKind.APPROVAL, tool="send")


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("yes", Decision.APPROVE),
        ("Yes!", Decision.APPROVE),
        ("approve", Decision.APPROVE),
        ("1", Decision.APPROVE),
        ("no", Decision.DENY),
        ("Deny.", Decision.DENY),
        ("2", Decision.DENY),
    ],
)
def test_the_documented_words_answer_an_approval(typed: str, decision: Decision) -> None:
    answer = read_reply(APPROVAL, typed)
    assert answer is not None
    assert answer.decision is decision


@pytest.mark.parametrize("typed", ["ok", "okay", "y", "n", "k", "sure", "allow", "yes please", ""])
def test_what_people_say_by_the_way_does_not(typed: str) -> None:
    assert read_reply(APPROVAL, typed) is None


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("k7qf 1", ("K7QF", "1")),
        ("K7QF\ndeny: not today", ("K7QF", "deny: not today")),
        ("K7QF", None),
        ("next week", None),
        ("that 1", None),
    ],
)
def test_a_code_has_a_digit_so_no_word_is_taken_for_one(
    typed: str, expected: tuple[str, str] | None
) -> None:
    assert split_code(typed) == expected


def test_a_form_is_answered_with_a_line_for_each_value() -> None:
    answer = read_reply(
        question(QuestionKind.FORM, schema=TRIP),
        "city_name: Rome: Trastevere\nnights: 2\nmeals: no",
    )
    assert answer is not None
    assert answer.values == {"city_name": "Rome: Trastevere", "nights": 2, "meals": False}


@pytest.mark.parametrize(
    "typed",
    [
        "Rome",
        "city_name: Rome",  # the nights are missing
        "city_name: Rome\nnights: two",
        "city_name: Rome\nnights: NaN",
        "city_name: Rome\nnights: 1e999",
        "city_name: Rome\nnights: " + "[" * 10_000,
        "city_name: Rome\nnights: 2\nclass: third",
        "city_name: Rome\nnights: 2\nnights: 3",
        "city_name: Rome\nnights: 2\nmeals: perhaps",
        "city_name: Rome\nnights: 2\npets: 1",
    ],
)
def test_lines_that_are_no_answer_to_a_form_are_none(typed: str) -> None:
    assert read_reply(question(QuestionKind.FORM, schema=TRIP), typed) is None


def test_a_form_says_what_it_asks_for() -> None:
    text = question_text(question(QuestionKind.FORM, schema=TRIP, text="A trip?"))
    assert text.split("\n") == [
        "A trip?",
        "",
        "Answer with a line for each value:",
        "",
        "- `city_name`: Where to? · a text",
        "- `nights`: a whole number",
        "- `class`: one of first, second · may be left out",
        "- `meals`: yes or no · may be left out",
    ]


def test_a_text_that_looks_like_another_value_is_in_quotes() -> None:
    arguments = {"a": 5, "b": "5", "c": "null", "d": None, "e": "five", "f": '"5"', "g": "[1]"}
    assert arguments_text(arguments).split("\n") == [
        "a: 5",
        'b: "5"',
        'c: "null"',
        "d: null",
        "e: five",
        'f: "\\"5\\""',
        'g: "[1]"',
    ]


@pytest.mark.parametrize("char", ["\u2800", "\U0001d159", "\u3164", "\u00a0", "\u202e", "\ufe0f"])
def test_what_is_drawn_as_nothing_is_written_out(char: str) -> None:
    assert visible(f"a{char}b") in (f"a\\u{ord(char):04x}b", f"a\\U{ord(char):08x}b")
