"""The checker names what broke: each kind of harm is done to a good history, and is found."""

from dataclasses import replace

import pytest

from tests.support.history import Attempt, Broken, History, Line, Outcome, Reading, judge


def good() -> tuple[list[Attempt], Reading]:
    """Two chats with two messages each, all answered and all there."""
    attempts = [
        Attempt(f"t{n}", f"chat{n // 2}", 10 * n, 10 * n + 5, Outcome.OK, f"s{n // 2}", n % 2 + 1)
        for n in range(4)
    ]
    lines = {
        f"s{chat}": [Line(1, "user", f"t{chat * 2} hello"), Line(2, "user", f"t{chat * 2 + 1} x")]
        for chat in range(2)
    }
    found = {"t0": frozenset({("s0", 1)})}
    return attempts, Reading(lines, {"s0": 2, "s1": 2}, ["k0", "k1"], found)


def broken(attempts: list[Attempt], reading: Reading) -> list[str]:
    return [each.invariant for each in judge(attempts, reading)]


def test_a_good_history_is_good() -> None:
    assert judge(*good()) == []


def test_a_lost_message_is_found() -> None:
    attempts, reading = good()
    lines = {**reading.lines, "s1": reading.lines["s1"][:1]}

    assert broken(attempts, replace(reading, lines=lines, counts={})) == ["no loss"]


def test_a_message_in_another_place_than_acknowledged_is_found() -> None:
    attempts, reading = good()
    attempts[0].seq = 2

    assert broken(attempts, reading) == ["no loss"]


def test_a_doubled_message_is_found() -> None:
    attempts, reading = good()
    lines = {**reading.lines, "s1": [*reading.lines["s1"], Line(3, "user", "t3 x")]}

    assert broken(attempts, replace(reading, lines=lines, counts={})) == ["no duplicate"]


def test_a_message_that_was_refused_and_is_there_is_found() -> None:
    attempts, reading = good()
    attempts[3].refused()

    assert broken(attempts, reading) == ["no phantom"]


def test_a_message_that_nobody_sent_is_found() -> None:
    attempts, reading = good()
    lines = {**reading.lines, "s2": [Line(1, "user", "who am I")]}

    assert broken(attempts, replace(reading, lines=lines)) == ["no phantom"]


def test_messages_in_the_wrong_order_are_found() -> None:
    attempts, reading = good()
    attempts[0].seq = attempts[1].seq = None
    lines = {**reading.lines, "s0": [Line(1, "user", "t1 x"), Line(2, "user", "t0 hello")]}

    assert broken(attempts, replace(reading, lines=lines, found={})) == ["order"]


def test_a_gap_is_found() -> None:
    attempts, reading = good()
    attempts[1].seq = None
    lines = {**reading.lines, "s0": [reading.lines["s0"][0], Line(3, "user", "t1 x")]}

    assert broken(attempts, replace(reading, lines=lines)) == ["sequence"]


def test_a_head_that_counts_wrongly_is_found() -> None:
    attempts, reading = good()

    assert broken(attempts, replace(reading, counts={"s0": 3, "s9": 1})) == [
        "counters",
        "readable",
    ]


def test_a_search_that_does_not_find_is_found() -> None:
    attempts, reading = good()

    assert broken(attempts, replace(reading, found={"t0": frozenset()})) == ["search"]


def test_two_open_sessions_of_one_key_are_found() -> None:
    attempts, reading = good()

    assert broken(attempts, replace(reading, open_keys=["k", "k"])) == ["one open"]


def test_two_chats_in_one_session_are_found() -> None:
    attempts, reading = good()
    attempts[1].place = "another chat"

    assert judge(attempts, reading) == [
        Broken("isolation", "s0 has messages of ['another chat', 'chat0']")
    ]


def test_an_attempt_without_an_answer_may_be_there_or_not() -> None:
    attempts, reading = good()
    attempts[3].outcome = Outcome.UNKNOWN
    without = {**reading.lines, "s1": reading.lines["s1"][:1]}

    assert judge(attempts, reading) == []
    assert judge(attempts, replace(reading, lines=without, counts={})) == []


def test_a_history_knows_what_is_left_to_settle() -> None:
    history = History()
    with history.attempt("a", "p"):
        pass
    with history.attempt("b", "p") as attempt:
        attempt.answered("s")
    with pytest.raises(OSError, match="gone"), history.attempt("c", "p"):
        raise OSError("gone")
    with history.attempt("a", "p") as attempt:
        attempt.answered("s")

    assert [each.token for each in history.unknown()] == ["c"]
    assert history.count(Outcome.OK) == 2
