"""`sessionary acp`: what a turn asks people is asked in the editor."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    ClientCapabilities,
    DeclineElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
)

from sessionary import Sessionary
from tests.support import asking_agent
from tests.support.acp_editor import Editor, editor, eventually, make_home

FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    asking_agent.install(tmp_path / "site", monkeypatch)
    return make_home(tmp_path / "home", f'agent = "send"\n{asking_agent.SETTINGS}')


async def begin(ed: Editor, home: Path, *, agent: str = "send") -> str:
    """Begin a session with an agent that asks; return its id."""
    made = await ed.connection.new_session(cwd=str(home))
    if agent != "send":
        await ed.connection.set_session_mode(made.session_id, agent)
    return str(made.session_id)


def answer(home: Path, **given: Any) -> None:
    """Answer the open question elsewhere."""
    with Sessionary(home=str(home)) as client:
        (question,) = client.questions.list()
        client.questions.answer(question.id, **given)


def has_question(home: Path) -> bool:
    """Whether a question is open."""
    with Sessionary(home=str(home)) as client:
        return bool(list(client.questions.list()))


async def test_an_approval_is_asked_with_its_arguments_and_the_answer_goes_to_the_agent(
    home: Path,
) -> None:
    async with editor(home) as ed:
        id = await begin(ed, home)
        answered = await ed.say(id, "write to Ann")

        assert answered.stop_reason == "end_turn"
        assert ed.text(id).startswith("I must ask first.Done: Approved by ada.")
        (asked,) = ed.permissions
    assert asked["session"] == id
    assert asked["call"]["title"] == "send"
    assert asked["call"]["rawInput"] == {"to": "Ann", "text": "See you at 9.\nBring cake."}
    kinds = [(each["name"], each["kind"]) for each in asked["options"]]
    assert kinds == [
        ("Approve", "allow_once"),
        ("Deny", "reject_once"),
        ("Always in this session", "allow_always"),
    ]


async def test_a_denial_in_the_editor_is_told_to_the_agent(home: Path) -> None:
    async with editor(home) as ed:
        ed.decide = lambda asked: "2"
        id = await begin(ed, home)
        await ed.say(id, "write to Ann")
        assert "Done: Denied by ada." in ed.text(id)


async def test_a_change_of_a_file_is_shown_as_a_diff_before_it_is_approved(home: Path) -> None:
    async with editor(home) as ed:
        id = await begin(ed, home, agent="edit")
        await ed.say(id, "edit it")
        (asked,) = ed.permissions
    shown = "".join(
        str(each.get("content", {}).get("text", "")) for each in asked["call"]["content"]
    )
    assert "\\u202etxt.exe" in shown  # what reverses text is visible


async def test_a_question_that_is_decided_elsewhere_is_taken_back_and_the_turn_goes_on(
    home: Path,
) -> None:
    async with editor(home) as ed:
        ed.decide = lambda asked: None
        cancelled: list[Any] = []
        id = await begin(ed, home)
        saying = asyncio.create_task(ed.say(id, "write to Ann"))
        await ed.until(lambda: ed.permissions)
        ed.connection._conn.add_observer(
            lambda event: (
                cancelled.append(event.message)
                if event.message.get("method") == "$/cancel_request"
                else None
            )
        )
        await asyncio.to_thread(answer, home, approve=True)

        assert (await saying).stop_reason == "end_turn"
        assert "Done: Approved by" in ed.text(id)
        assert len(cancelled) == 1
        assert len(ed.permissions) == 1


async def test_a_closed_dialog_leaves_the_question_open_and_tells_how_to_answer(home: Path) -> None:
    async with editor(home) as ed:
        ed.decide = lambda asked: ""
        id = await begin(ed, home)
        saying = asyncio.create_task(ed.say(id, "write to Ann"))
        await ed.until(lambda: "stays open" in ed.text(id))
        assert "sessionary questions answer" in ed.text(id)
        assert not saying.done()
        await ed.connection.cancel(session_id=id)
        assert (await saying).stop_reason == "cancelled"
    assert not has_question(home)


async def test_the_question_outlives_the_editor_and_is_asked_in_the_next_one(home: Path) -> None:
    async with editor(home) as ed:
        ed.decide = lambda asked: None
        id = await begin(ed, home)
        saying = asyncio.create_task(ed.say(id, "write to Ann"))
        await ed.until(lambda: ed.permissions)
        ed.process.kill()
        with pytest.raises(ConnectionError):
            await saying
    assert await eventually(lambda: has_question(home))
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=id)
        await ed.until(lambda: "Done: Approved by ada." in ed.text(id))
        assert len(ed.permissions) == 1


@pytest.mark.parametrize(
    ("agent", "values", "outcome"),
    [
        ("choice", {"answer": "Green"}, "Answered by ada: Green."),
        ("text", {"answer": "at noon"}, "Answered by ada: at noon."),
        ("form", {"city": "Rome", "days": 3}, "Answered by ada: the form."),
    ],
)
async def test_choices_texts_and_forms_are_asked_as_forms(
    home: Path, agent: str, values: dict[str, Any], outcome: str
) -> None:
    asked = []

    async def fill_in(message: str, mode: Any, **_: Any) -> Any:
        asked.append(mode.requested_schema)
        if len(asked) == 1:
            wrong = {"answer": "", "city": "Rome", "days": "many"}
            return AcceptElicitationResponse(action="accept", content=wrong)
        return AcceptElicitationResponse(action="accept", content=values)

    async with editor(home, capabilities=FORMS, handlers={"create_elicitation": fill_in}) as ed:
        id = await begin(ed, home, agent=agent)
        await ed.say(id, "go")
        # What does not fit is refused, and asked again.
        assert "You are asked again" in ed.text(id)
        assert f"Done: {outcome}" in ed.text(id)
        assert set(asked[0].properties) == set(values)


async def test_a_declined_form_is_a_denial(home: Path) -> None:
    async def decline(**_: Any) -> Any:
        return DeclineElicitationResponse(action="decline")

    async with editor(home, capabilities=FORMS, handlers={"create_elicitation": decline}) as ed:
        id = await begin(ed, home, agent="text")
        await ed.say(id, "go")
        assert "Done: Denied by ada." in ed.text(id)


async def test_an_editor_without_forms_offers_a_choice_as_options_and_tells_of_a_text(
    home: Path,
) -> None:
    async with editor(home) as ed:
        ed.decide = lambda asked: asked["options"][2]["optionId"]
        id = await begin(ed, home, agent="choice")
        await ed.say(id, "go")
        assert "Done: Answered by ada: Blue." in ed.text(id)

        id = await begin(ed, home, agent="text")
        saying = asyncio.create_task(ed.say(id, "go"))
        await ed.until(lambda: "stays open" in ed.text(id))
        await asyncio.to_thread(answer, home, text="soon")
        assert (await saying).stop_reason == "end_turn"
        assert "Answered by" in ed.text(id)


async def test_an_editor_that_cannot_ask_is_told_how_to_answer(home: Path) -> None:
    async def refuse(**_: Any) -> Any:
        raise RequestError.method_not_found("session/request_permission")

    async with editor(home, handlers={"request_permission": refuse}) as ed:
        id = await begin(ed, home)
        saying = asyncio.create_task(ed.say(id, "write to Ann"))
        await ed.until(lambda: "stays open" in ed.text(id))
        await asyncio.to_thread(answer, home, approve=False)
        assert (await saying).stop_reason == "end_turn"
        assert "Denied by" in ed.text(id)
