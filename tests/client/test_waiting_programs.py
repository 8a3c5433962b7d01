"""A program that brings its own loop asks people something, and goes on when they have answered."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary import (
    AsyncSessionary,
    BadInput,
    Conflict,
    NotFound,
    Question,
    Sessionary,
    Turn,
    TurnLost,
)
from sessionary.actions import turns
from sessionary.actions.verify import verify
from sessionary.app.context import open_app
from sessionary.clock import SystemClock
from sessionary.model.question import QuestionState
from sessionary.model.question_data import QuestionData, approved_arguments
from sessionary.model.turn import TurnState
from sessionary.store.tables import turns as turn_rows
from sessionary.testing.fakes import FakeClock

DELETE: QuestionData = {"tool": "delete", "arguments": {"path": "old.log"}}
# With characters that no column of PostgreSQL takes as they are.
STATE = '{"step": 3}\x00\ud83c'


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(url: str, clock: FakeClock) -> Iterator[Sessionary]:
    """A client with a clock of ours."""
    with open_app(url, clock=clock) as app:
        yield Sessionary._over(app)


def park(s: Sessionary, *questions: QuestionData, state: str | None = STATE) -> Question:
    """Take a turn in the session "logs" that asks people; return its first question."""
    with s.session("logs").turn("Delete the old logs.") as turn:
        turn.append("assistant", "I would like to delete old.log.")
        (first, *_) = turn.wait_for(questions or (DELETE,), state=state)
    return first


def last_turn(s: Sessionary) -> Turn:
    (newest, *_) = s.session("logs").turns()
    return newest.turn


def stored_state(s: Sessionary) -> str | None:
    """Return what is stored with the last turn, which a program has parked."""
    found = s.store.read(turn_rows.get_program_state, last_turn(s).id).result()
    assert found is not None
    return found[0]


def test_a_turn_waits_in_no_process_and_goes_on_with_the_answer_and_the_state(
    s: Sessionary,
) -> None:
    question = park(s)
    chat, waiting = s.session("logs"), last_turn(s)
    assert (waiting.state, waiting.holder) == (TurnState.WAITING, "")
    assert chat.head().waits_for_people
    assert [each.id for each in s.questions.list()] == [question.id]

    s.questions.answer(question.id, approve=True)
    answered_turn = last_turn(s)
    assert (answered_turn.state, answered_turn.holder) == (TurnState.RUNNING, "")
    assert not chat.head().waits_for_people
    with chat.resume_turn() as turn:
        (answered,) = turn.questions
        assert approved_arguments(answered) == {"path": "old.log"}
        assert (turn.id, turn.state) == (waiting.id, STATE)
        turn.append("assistant", "It is deleted.")

    done = last_turn(s)
    assert (done.state, done.resumed, stored_state(s)) == (TurnState.DONE, 1, None)
    assert [message.text for message in chat.messages() if message.role == "assistant"] == [
        "I would like to delete old.log.",
        "It is deleted.",
    ]
    assert not chat.head().running
    assert list(verify(s.store).broken) == []


async def test_the_same_asynchronously(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("logs")
        async with chat.turn("Delete the old logs.") as turn:
            (question,) = await turn.wait_for([{"text": "Which?", "options": ["a", "b"]}])
            assert turn.questions == (question,)
        await s.questions.answer(question.id, text="b")
        async with chat.resume_turn() as turn:
            (answered,) = turn.questions
            assert answered.answered is not None
            assert (answered.answered.answer.text, turn.state) == ("b", None)
        assert not (await chat.head()).running


def test_it_does_not_go_on_before_the_last_answer_and_the_error_names_what_is_open(
    s: Sessionary,
) -> None:
    first = park(s, DELETE, {"text": "Why at all?"})
    s.questions.answer(first.id, approve=True)
    (second,) = s.questions.list()

    with pytest.raises(Conflict, match=rf"{second.code} \(Why at all\?\)") as error:
        s.session("logs").resume_turn().__enter__()

    assert first.code not in str(error.value)
    assert last_turn(s).state is TurnState.WAITING


def test_a_program_can_wait_for_the_answer(url: str) -> None:
    async def main() -> None:
        async with AsyncSessionary(url) as s, AsyncSessionary(url) as other:
            chat = s.session("logs")
            async with chat.turn("Delete the old logs.") as turn:
                (question,) = await turn.wait_for([DELETE])
            resumed = asyncio.create_task(_outcome(s))
            await other.questions.answer(question.id, approve=False, reason="not today")
            assert await resumed == "not today"

    asyncio.run(main())


async def _outcome(s: AsyncSessionary) -> str:
    async with s.session("logs").resume_turn(wait=100) as turn:
        assert turn.questions[0].answered is not None
        return turn.questions[0].answered.answer.text


def test_a_turn_can_wait_again_and_a_name_is_used_once(s: Sessionary) -> None:
    park(s, DELETE, state="one")
    chat = s.session("logs")
    s.questions.answer(next(iter(s.questions.list())).id, approve=True)
    with chat.resume_turn() as turn:
        with pytest.raises(BadInput, match="has a question '1' already"):
            turn.wait_for([{**DELETE, "name": "1"}])
        turn.append("assistant", "The turn runs on after that.")
        (again,) = turn.wait_for([DELETE], state="two")
    assert (again.asked.name, last_turn(s).state) == ("2", TurnState.WAITING)

    s.questions.answer(again.id, approve=False)
    with chat.resume_turn() as turn:
        assert [each.is_approved for each in turn.questions] == [True, False]
        assert turn.state == "two"
    assert last_turn(s).state is TurnState.DONE


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [{"text": ""}],
        [{"text": "Which?", "options": ["one"]}],
        [{"arguments": {"path": "x"}}],
        [{"text": "A?", "name": "a"}, {"text": "B?", "name": "a"}],
    ],
)
def test_what_nobody_could_answer_is_refused_and_the_turn_runs_on(
    s: Sessionary, questions: list[QuestionData]
) -> None:
    with s.session("logs").turn("Delete the old logs.") as turn:
        with pytest.raises(BadInput):
            turn.wait_for(questions)
        turn.append("assistant", "Then I will not.")

    assert last_turn(s).state is TurnState.DONE
    assert list(s.questions.list(state="all")) == []


def test_nothing_is_written_to_a_turn_that_waits(s: Sessionary) -> None:
    chat = s.session("logs")
    with chat.turn("Delete the old logs.") as turn:
        turn.wait_for([DELETE])
        for write in (
            lambda: turn.append("assistant", "more"),
            lambda: turn.checkpoint("more"),
            lambda: turn.wait_for([DELETE]),
        ):
            with pytest.raises(BadInput, match="waits for people"):
                write()
        assert turn.session_id == chat.id
    with pytest.raises(Conflict):
        chat.append("user", "And me?")
    with pytest.raises(Conflict):
        chat.turn("And me?").__enter__()


def test_an_error_after_it_does_not_end_the_turn(s: Sessionary) -> None:
    def ask_and_fail() -> None:
        with s.session("logs").turn("Delete the old logs.") as turn:
            turn.wait_for([DELETE])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask_and_fail()

    assert last_turn(s).state is TurnState.WAITING


def test_a_renewal_that_comes_late_does_not_take_the_turn_back(s: Sessionary) -> None:
    """On PostgreSQL a renewal may be on its way in another connection while the turn is parked."""
    with s.session("logs").turn("Delete the old logs.") as turn:
        lease = turn._lease
        turn.wait_for([DELETE])
        late = s.store.write(turns.renew, lease, seconds=60, now=SystemClock().now())
        with pytest.raises(TurnLost):
            late.result()

    assert last_turn(s).state is TurnState.WAITING


def test_two_programs_cannot_both_go_on(s: Sessionary) -> None:
    s.questions.answer(park(s).id, approve=True)
    chat = s.session("logs")
    with chat.resume_turn() as turn:
        with pytest.raises(Conflict, match="A turn is running"):
            chat.resume_turn().__enter__()
        turn.append("assistant", "I am the only one.")
    with pytest.raises(NotFound, match="No turn of a program waits"):
        chat.resume_turn().__enter__()


def test_there_is_nothing_to_resume_in_another_session(s: Sessionary) -> None:
    with pytest.raises(NotFound):
        s.session("nobody").resume_turn().__enter__()
    with s.session("logs").turn("Hello") as turn:
        turn.append("assistant", "Hello")
        with pytest.raises(NotFound):
            s.session("logs").resume_turn().__enter__()


def test_a_turn_that_waits_can_be_stopped(s: Sessionary) -> None:
    question = park(s)
    chat = s.session("logs")

    assert chat.stop("it is too late")

    ended = last_turn(s)
    assert (ended.state, ended.reason) == (TurnState.INTERRUPTED, "it is too late")
    assert s.questions.get(question.id).state is QuestionState.WITHDRAWN
    assert stored_state(s) is None
    with pytest.raises(NotFound):
        chat.resume_turn().__enter__()
    with chat.turn("Go on with something else.") as turn:
        turn.append("assistant", "Gladly.")


def test_an_answered_turn_can_still_be_stopped(s: Sessionary) -> None:
    s.questions.answer(park(s).id, approve=True)

    assert s.session("logs").stop()

    assert last_turn(s).state is TurnState.INTERRUPTED


def test_the_turn_of_a_program_that_does_not_come_back_blocks_its_session_for_a_day(
    timed: Sessionary, clock: FakeClock
) -> None:
    chat = timed.session("logs")
    timed.questions.answer(park(timed).id, approve=True)
    clock.tick(hours=23)
    with pytest.raises(Conflict, match="running"):
        chat.turn("Something else.").__enter__()

    clock.tick(hours=2)
    with chat.turn("Something else.") as turn:
        turn.append("assistant", "Gladly.")

    newest, given_up = (each.turn for each in chat.turns())
    assert newest.state is TurnState.DONE
    assert (given_up.state, given_up.reason) == (TurnState.INTERRUPTED, turns.PROGRAM_GONE)


def test_a_program_that_comes_back_late_goes_on_if_nobody_has_ended_its_turn(
    timed: Sessionary, clock: FakeClock
) -> None:
    timed.questions.answer(park(timed).id, approve=True)
    clock.tick(days=3)

    with timed.session("logs").resume_turn() as turn:
        turn.append("assistant", "Deleted.")

    assert last_turn(timed).state is TurnState.DONE


def test_without_a_server_a_question_expires_when_the_program_goes_on(
    timed: Sessionary, clock: FakeClock
) -> None:
    park(timed)
    clock.tick(days=1)

    with timed.session("logs").resume_turn() as turn:
        (question,) = turn.questions

    assert (question.state, question.is_approved) == (QuestionState.EXPIRED, False)
    assert last_turn(timed).state is TurnState.DONE


def test_settings_may_end_the_turn_when_nobody_answers(
    home: Path, url: str, clock: FakeClock
) -> None:
    settings = '[questions]\nexpire_seconds = 60\nremind_seconds = 0\non_expiry = "end"\n'
    (home / "sessionary.toml").write_text(settings)
    with open_app(url, home=home, clock=clock) as app:
        s = Sessionary._over(app)
        question = park(s)
        clock.tick(60)

        with pytest.raises(Conflict, match="has ended: nobody answered its question in time"):
            s.session("logs").resume_turn().__enter__()

        assert last_turn(s).state is TurnState.INTERRUPTED
        assert s.questions.get(question.id).state is QuestionState.EXPIRED


def test_a_rule_may_answer_at_once(home: Path, url: str) -> None:
    rules = '[[policy]]\ndecision = "allow"\ntool = "del*"\n'
    (home / "sessionary.toml").write_text(rules)
    with Sessionary(url, home=str(home)) as s:
        assert park(s).is_approved
        assert last_turn(s).state is TurnState.RUNNING
        with s.session("logs").resume_turn() as turn:
            assert turn.questions[0].is_approved


PROGRAM = """
import os, signal, sys
from pathlib import Path
from sessionary import Sessionary
from sessionary.model.question_data import approved_arguments

url, ran, die = sys.argv[1:]

def reach(point):
    if point == die:
        os.kill(os.getpid(), signal.SIGKILL)

with Sessionary(url) as client:
    chat = client.session("logs")
    if not chat.exists():
        with chat.turn("Delete the old logs.") as turn:
            turn.append("assistant", "I would like to delete old.log.")
            reach("before it asks")
            turn.wait_for([{"tool": "delete", "arguments": {"path": "old.log"}}], state="kept")
            reach("while it waits")
    else:
        with chat.resume_turn() as turn:
            assert turn.state == "kept"
            reach("before the tool")
            if (arguments := approved_arguments(turn.questions[0])) is not None:
                with Path(ran).open("a") as lines:
                    lines.write(arguments["path"] + "\\n")
            reach("after the tool")
            turn.append("assistant", "Done.")
"""


class Programs:
    """Starts the program above, and kills it where it is told to."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._ran = url, folder / "ran.txt"

    def run(self, *, die: str = "") -> bool:
        """Return whether it came to its end."""
        command = [sys.executable, "-c", PROGRAM, self._url, str(self._ran), die]
        code = subprocess.run(command, check=False, timeout=100).returncode
        assert code in (0, -9)
        return code == 0

    @property
    def ran(self) -> list[str]:
        """What the tool has deleted."""
        return self._ran.read_text().split() if self._ran.exists() else []


@pytest.mark.parametrize(
    ("die", "state", "runs"),
    [
        ("while it waits", TurnState.DONE, 1),
        ("before the tool", TurnState.INTERRUPTED, 0),
        ("after the tool", TurnState.INTERRUPTED, 1),
    ],
)
def test_a_program_that_is_killed_runs_an_approved_tool_at_most_once(
    s: Sessionary, url: str, tmp_path: Path, die: str, state: TurnState, runs: int
) -> None:
    programs = Programs(url, tmp_path)
    assert programs.run(die=die) is (die != "while it waits")
    assert (last_turn(s).state, programs.ran) == (TurnState.WAITING, [])
    s.questions.answer(next(iter(s.questions.list())).id, approve=True)

    if die == "while it waits":
        assert programs.run()
    else:
        assert not programs.run(die=die)
        # It is not known whether the tool ran: nobody runs it again.
        with pytest.raises(Conflict, match="has ended: the agent stopped responding"):
            s.session("logs").resume_turn().__enter__()

    assert (last_turn(s).state, len(programs.ran)) == (state, runs)
    assert stored_state(s) is None
    assert list(verify(s.store).broken) == []


def test_a_program_that_is_killed_before_it_asks_has_asked_nothing(
    s: Sessionary, url: str, tmp_path: Path
) -> None:
    assert not Programs(url, tmp_path).run(die="before it asks")

    assert list(s.questions.list(state="all")) == []
    with s.session("logs").turn("Again.") as turn:
        turn.append("assistant", "Hello again.")


def test_a_denied_tool_never_runs(s: Sessionary, url: str, tmp_path: Path) -> None:
    programs = Programs(url, tmp_path)
    assert not programs.run(die="while it waits")
    s.questions.answer(next(iter(s.questions.list())).id, approve=False, reason="keep it")

    assert programs.run()

    assert (last_turn(s).state, programs.ran) == (TurnState.DONE, [])
