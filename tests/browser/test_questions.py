"""Questions in the workbench: asked in a card, answered by mouse, keyboard and finger, and shown as text only."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import (
    WRITE,
    Served,
    Visit,
    Visitor,
    eventually,
    hold,
    settled,
)
from tests.browser.server_process import ServerProcess
from tests.browser.test_axe import problems
from tests.support.packages import Packages

pytestmark = pytest.mark.timeout(300)
# Asks what the first word of the message says, and reports what became of it.
AGENT = """
import json
from dataclasses import dataclass

from sessionary.agents.registry import AgentKind
from sessionary.engine.ports import Ask, Step
from sessionary.model.message import message
from sessionary.model.question import NewQuestion, QuestionKind, outcome_text

HOSTILE = "<img src=x onerror='window.hit = 1'><script>window.hit = 1</script>"
RULE = "rule 1 of [[policy]]: ask if tool = '*'"


def approval(tool, arguments, name="1", text=""):
    kind = QuestionKind.APPROVAL
    return NewQuestion(name=name, kind=kind, text=text, tool=tool, arguments=arguments, rule=RULE)


FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City", "description": "Where to"},
        "nights": {"type": "integer", "title": "Nights"},
        "class": {"type": "string", "title": "Class", "enum": ["first", "second"]},
        "breakfast": {"type": "boolean", "title": "Breakfast"},
    },
    "required": ["city", "nights"],
}
MAIL = {"to": "ann@example.org", "subject": "Lunch", "body": "Hi Ann,\\n\\n12 at the pier?"}
EDIT = {
    "path": "src/app.py",
    "old_string": "def run():\\n    -- old\\n    return 1",
    "new_string": "def run():\\n    return 2",
}
QUESTIONS = {
    "mail": [approval("send_mail", MAIL)],
    "edit": [approval("edit_file", EDIT)],
    "two": [approval("send_mail", {"to": "ann"}), approval("pay", {"euros": 5}, "2")],
    "long": [approval("write_file", {"path": "notes.txt", "content": "\\n".join(f"line {n}" for n in range(400))})],
    "hostile": [
        approval(
            HOSTILE + "\\u202e",
            {"path": "safe\\u202etxt.exe", HOSTILE: HOSTILE, "body": "a\\nto: forged@example.org\\u200b"},
            text=HOSTILE,
        )
    ],
    "choice": [
        NewQuestion(name="1", kind=QuestionKind.CHOICE, text="Which colour?", options=("Red", "Green", "Blue"))
    ],
    "text": [NewQuestion(name="1", kind=QuestionKind.TEXT, text="When shall I come?")],
    "form": [NewQuestion(name="1", kind=QuestionKind.FORM, text="Where do you want to go?", schema=FORM)],
}


class Asking:
    async def run(self, request):
        if request.questions:
            results = []
            for question in request.questions:
                answer = question.answered.answer if question.is_approved else None
                if answer is None:
                    results.append(outcome_text(question))
                elif question.asked.kind is QuestionKind.APPROVAL:
                    given = answer.arguments or question.asked.arguments
                    results.append("ran with " + json.dumps(dict(given), sort_keys=True))
                else:
                    results.append(answer.text or json.dumps(dict(answer.values), sort_keys=True))
                if question.asked.kind is QuestionKind.APPROVAL:
                    result = {"type": "tool_result", "call_id": question.asked.name, "content": results[-1]}
                    yield Step(message("tool", [result]))
            yield Step(message("assistant", "Result: " + "; ".join(results)))
            return
        if str(request.context[-1]["content"]).startswith("now"):
            now = NewQuestion(name="now", kind=QuestionKind.TEXT, text="Which floor?")
            decided = await request.services.ask_now(now, seconds=600)
            yield Step(message("assistant", "Result: " + decided.answered.answer.text))
            return
        asked = QUESTIONS.get(str(request.context[-1]["content"]).split()[0], [])
        calls = [
            {"type": "tool_call", "id": each.name, "name": each.tool, "arguments": dict(each.arguments)}
            for each in asked
            if each.tool
        ]
        yield Step(message("assistant", [{"type": "text", "text": "I have a question."}, *calls]))
        if asked:
            yield Ask(tuple(asked))

    async def close(self):
        pass


@dataclass(frozen=True)
class Settings:
    pass


PLUGIN = AgentKind(name="asking", title="Asks", settings=Settings, create=lambda *_: Asking(), resumes=True)
"""
SETTINGS = '[agents.helper]\nkind = "asking"\n'
ROOT = Path(__file__).parents[2]


class Program:
    """`sessionary serve` with a plug-in, as a process of its own."""

    def __init__(self, home: Path, packages: Path) -> None:
        command = [sys.executable, "-m", "sessionary", "--home", str(home), "--json", "serve"]
        env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(packages)}
        self._process = subprocess.Popen(
            [*command, "--port", "0"], env=env, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        self.ready: dict[str, Any] = json.loads(self._process.stdout.readline())

    def stop(self, seconds: float, *, kill: bool) -> None:
        """End the process, and wait until it has ended."""
        self._process.kill() if kill else self._process.terminate()
        self._process.communicate(timeout=seconds)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose agent asks people before it answers."""
    home, packages = tmp_path_factory.mktemp("asking"), tmp_path_factory.mktemp("packages")
    (home / "sessionary.toml").write_text(SETTINGS)
    Packages(packages).install("asking", AGENT, group="sessionary.agents", name="asking")
    program = Program(home, packages)
    made = program.ready
    server = Served(home, cast("ServerProcess", program), made["address"], made["login_link"])
    yield server
    server.stop()


def card(page: Page) -> Locator:
    """The open questions on the page."""
    return page.locator(".question")


def record(page: Page, text: str) -> Locator:
    """The quiet line of the transcript that says this."""
    return page.locator(".record", has_text=text)


def result(page: Page) -> Locator:
    """The answer of the agent after the decision."""
    return page.locator(".message.assistant[id]").last


def asked(server: Served, visit: Visitor, text: str, **options: Any) -> Visit:
    """Begin a session whose agent asks something."""
    seen = visit(server, **options)
    if options.get("phone"):
        seen.page.get_by_role("button", name=re.compile("list|Liste")).last.dispatch_event("click")
    seen.asks(text)
    expect(card(seen.page).first).to_be_visible()
    settled(seen.page)
    return seen


def row(page: Page) -> Locator:
    """The row of the open session in the list."""
    return page.locator('.session-row[aria-current="page"]')


def questions_link(page: Page) -> Locator:
    return page.get_by_role("link", name=re.compile(r"^Questions"))


def test_a_call_is_approved_with_the_mouse(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "mail to Ann").page
    shown = card(page)
    expect(shown.get_by_role("heading")).to_have_text("May the tool send_mail be called?")
    expect(shown).to_contain_text("Asked by the agent helper")
    expect(shown).to_contain_text("Why it is asked: rule 1 of [[policy]]: ask if tool = '*'")
    expect(shown).to_contain_text("Waits 24 h longer, then it counts as denied")
    assert shown.get_by_role("group", name="Arguments").inner_text() == (
        "to: ann@example.org\nsubject: Lunch\nbody:\n| Hi Ann,\n| \n| 12 at the pier?"
    )
    expect(shown.get_by_role("button", name="Always for this person")).to_have_count(0)
    expect(row(page).get_by_role("img", name="waiting for an answer")).to_have_class(
        re.compile("amber")
    )
    expect(page.locator(".live-reply")).to_have_count(0)
    assert problems(page) == []

    shown.get_by_role("button", name="Approve").click()

    expect(result(page)).to_contain_text('ran with {"body": "Hi Ann')
    expect(card(page)).to_have_count(0)
    expect(record(page, "Asked whether the tool send_mail may be called")).to_have_count(1)
    expect(record(page, "Approved by the owner (send_mail)")).to_contain_text(re.compile(r"\d\d:"))
    expect(row(page).get_by_role("img")).to_have_count(0)
    # The call and its result are one step, although people were asked in between.
    expect(page.locator(".step-group")).to_have_count(1)
    expect(page.get_by_text("no result")).to_have_count(0)


def test_a_call_is_denied_with_a_reason_by_keyboard_alone(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "mail to Bob").page
    reason = page.get_by_role("textbox", name="Reason")

    page.keyboard.press("Escape")
    page.keyboard.press("q")
    expect(card(page)).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("d")
    expect(reason).to_be_focused()
    page.keyboard.type("not today")
    page.keyboard.press("Escape")
    expect(card(page)).to_be_focused()
    expect(reason).to_have_count(0)
    page.keyboard.press("d")
    expect(reason).to_have_value("not today")
    page.keyboard.press("Enter")
    page.keyboard.type("or tomorrow")
    assert problems(page) == []
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Deny")).to_be_focused()
    page.keyboard.press("Enter")

    expect(record(page, "Denied by the owner: not today\nor tomorrow (send_mail)")).to_have_count(1)
    expect(result(page)).to_contain_text("Result: Denied by The owner: not today or tomorrow.")
    expect(card(page)).to_have_count(0)
    assert page.evaluate("document.activeElement !== document.body")


def test_letters_decide_only_while_the_card_itself_has_the_focus(
    asking: Served, visit: Visitor
) -> None:
    page = asked(asking, visit, "mail to Cid").page
    page.keyboard.type("add")
    expect(page.get_by_role("textbox", name=WRITE)).to_have_value("add")
    page.get_by_role("textbox", name=WRITE).fill("")
    for _ in range(20):
        page.keyboard.press("Shift+Tab")
        if card(page).evaluate("card => card.matches(':focus')"):
            break
    order = []
    for _ in range(5):
        page.keyboard.press("Tab")
        page.keyboard.press("a")
        order.append(page.evaluate("document.activeElement.innerText.split('\\n')[0]"))
    assert order[1:] == ["Approve", "Deny…", "Edit arguments…", "Always in this session"]
    expect(card(page)).to_have_count(1)

    page.keyboard.press("q")
    page.keyboard.press("a")

    expect(record(page, "Approved by the owner")).to_have_count(1)


def test_the_arguments_of_an_edit_are_changed_and_approved(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "edit the file").page
    diff = card(page).get_by_role("group", name="Changes")
    assert diff.locator(".removed").all_inner_texts() == ["-    -- old", "-    return 1"]
    assert diff.locator(".added").all_inner_texts() == ["+    return 2"]
    assert problems(page) == []

    card(page).get_by_role("button", name="Edit arguments").click()
    box = page.get_by_role("textbox", name="Arguments as JSON")
    approve = page.get_by_role("button", name="Approve with these arguments")
    given = json.loads(box.input_value())
    assert given["new_string"] == "def run():\n    return 2"
    for wrong, words in (('{"path": }', "not valid JSON"), ("[1]", "must be a JSON object")):
        box.fill(wrong)
        expect(page.get_by_role("status").filter(has_text=words)).to_be_visible()
        expect(approve).to_be_disabled()
    assert problems(page) == []
    box.fill(json.dumps({**given, "new_string": "pass"}))
    approve.click()

    expect(result(page)).to_contain_text('"new_string": "pass"')


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_option_is_chosen_on_a_phone(asking: Served, visit: Visitor, theme: str) -> None:
    page = asked(asking, visit, "choice of colour", phone=True).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    for button in card(page).get_by_role("button").all():
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert problems(page) == []

    card(page).get_by_role("button", name="Green").tap()

    expect(result(page)).to_contain_text("Result: Green")
    expect(record(page, "Answered by the owner: Green (Which colour?)")).to_have_count(1)


def test_a_form_says_what_is_missing_and_sends_typed_values(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "form to fill in").page
    send = card(page).get_by_role("button", name="Send the answer")
    card(page).get_by_role("textbox", name="Nights").fill("two")
    page.keyboard.press("Enter")
    send.click()
    expect(card(page)).to_contain_text("City is missing.")
    expect(card(page)).to_contain_text("Nights must be a number.")
    card(page).get_by_role("textbox", name="Nights").fill("2.5")
    expect(card(page)).to_contain_text("Nights must be a whole number.")
    expect(card(page).get_by_role("textbox", name="City (required)")).to_have_attribute(
        "aria-invalid", "true"
    )
    assert problems(page) == []

    card(page).get_by_role("textbox", name="City").fill("Oslo")
    card(page).get_by_role("textbox", name="Nights").fill("2")
    card(page).get_by_role("combobox", name="Class").select_option("second")
    card(page).get_by_role("checkbox", name="Breakfast").check()
    send.click()

    expect(result(page)).to_contain_text(
        '{"breakfast": true, "city": "Oslo", "class": "second", "nights": 2}'
    )


def test_a_message_answers_a_question_for_a_text_and_waits_for_any_other(
    asking: Served, visit: Visitor
) -> None:
    seen = asked(asking, visit, "text of an answer")
    page = seen.page
    expect(page.get_by_text("Your next message answers the question.")).to_be_visible()
    seen.says("at nine")
    expect(result(page)).to_contain_text("Result: at nine")

    seen.says("mail to Dan")
    expect(card(page)).to_be_visible()
    expect(page.get_by_text("any other message waits")).to_be_visible()
    seen.says("hello there")
    waiting = page.get_by_role("list", name="Queued messages").get_by_role("listitem")
    expect(waiting).to_contain_text("hello there")
    page.get_by_role("button", name="Show the question").click()
    expect(card(page)).to_be_focused()
    page.get_by_role("button", name="Give this turn up").click()

    expect(card(page)).to_have_count(0)
    expect(page.get_by_text("No answer is needed any more")).to_be_visible()
    expect(page.locator(".message.user").last).to_contain_text("hello there")


def test_a_turn_that_asks_while_it_runs_is_answered_in_the_same_way(
    asking: Served, visit: Visitor
) -> None:
    page = asked(asking, visit, "now or never").page
    expect(page.locator(".live-reply")).to_be_visible()
    expect(questions_link(page).locator(".count")).to_be_visible()
    card(page).get_by_role("textbox", name="Your answer").fill("The third")
    page.keyboard.press("Enter")
    page.keyboard.type("one")
    page.keyboard.press("Control+Enter")

    expect(record(page, "Answered by the owner: The third\none (Which floor?)")).to_have_count(1)
    expect(result(page)).to_contain_text(re.compile(r"Result: The third\s*one"))
    expect(card(page)).to_have_count(0)
    expect(page.locator(".outcome")).to_have_count(0)


def test_nothing_of_long_arguments_is_left_out(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "long file").page
    shown = card(page).get_by_role("group", name="Arguments")
    assert shown.inner_text().endswith("| line 398\n| line 399")
    assert len(shown.inner_text().split("\n")) == 402
    more = card(page).get_by_role("button", name=re.compile(r"\d+ more lines"))
    expect(more).to_be_visible()
    counted = re.search(r"\d+", more.inner_text())
    assert counted is not None
    assert 370 < int(counted[0]) < 402
    assert problems(page) == []

    more.click()

    expect(card(page).get_by_role("button", name="Show less")).to_be_visible()
    eventually(page, lambda: (shown.bounding_box() or {"height": 0})["height"] > 402 * 19)


def test_another_tab_sees_the_decision(asking: Served, visit: Visitor) -> None:
    seen = asked(asking, visit, "two questions")
    one, two = seen.page, seen.another_tab(seen.page.url)
    expect(card(two)).to_have_count(2)

    card(one).filter(has_text="pay").get_by_role("button", name="Approve").click()
    expect(card(two)).to_have_count(1)
    expect(record(two, "Approved by the owner (pay)")).to_have_count(1)
    expect(row(two).get_by_role("img", name="waiting for an answer")).to_be_visible()
    card(two).get_by_role("button", name="Approve").click()

    expect(result(one)).to_contain_text('ran with {"to": "ann"}; ran with {"euros": 5}')
    expect(card(one)).to_have_count(0)


def test_whoever_comes_too_late_is_told_what_was_decided(asking: Served, visit: Visitor) -> None:
    seen = asked(asking, visit, "mail to Eva")
    page, other = seen.page, seen.another_tab(seen.page.url)

    late = hold(page, "**/answer")
    card(page).get_by_role("button", name="Approve").click()
    eventually(page, lambda: late)
    expect(card(page).get_by_role("button", name="Approve")).to_be_disabled()
    card(other).get_by_role("button", name="Deny").click()
    expect(other.get_by_role("textbox", name="Reason")).to_be_focused()
    other.keyboard.press("Control+Enter")
    expect(record(other, "Denied by the owner")).to_have_count(1)
    late[0].continue_()

    expect(page.get_by_role("alert")).to_have_text(
        "It was decided before; your answer did not count."
    )
    expect(page.locator(".outcome")).to_contain_text("Denied by the owner")
    expect(result(page)).to_contain_text("Result: Denied by The owner.")
    assert problems(page) == []
    page.locator(".outcome").get_by_role("button", name="Close").click()
    expect(page.locator(".outcome")).to_have_count(0)


def test_a_request_that_is_refused_leaves_the_question_open(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "mail to Fay").page
    page.route("**/answer", lambda route: route.fulfill(status=403, json={"detail": "no"}))
    approve = card(page).get_by_role("button", name="Approve")
    approve.click()
    expect(card(page).get_by_role("alert")).to_contain_text("You may not answer this question.")
    page.unroute("**/answer")
    page.route("**/answer", lambda route: route.abort())
    approve.click()
    expect(card(page).get_by_role("alert")).to_contain_text("The server does not answer.")
    page.unroute("**/answer")

    approve.click()

    expect(record(page, "Approved by the owner")).to_have_count(1)


def test_hostile_arguments_are_shown_as_text(asking: Served, visit: Visitor) -> None:
    page = asked(asking, visit, "hostile call").page
    shown = card(page)
    expect(shown.get_by_role("heading")).to_contain_text("<script>window.hit = 1</script>\\u202e")
    expect(shown).to_contain_text("path: safe\\u202etxt.exe")
    expect(shown).to_contain_text("| to: forged@example.org\\u200b")
    expect(shown.locator("img, script")).to_have_count(0)
    shown.get_by_role("button", name="Edit arguments").click()
    typed = page.get_by_role("textbox", name="Arguments as JSON").input_value()
    assert '"safe\\u202etxt.exe"' in typed
    page.keyboard.press("Escape")
    questions_link(page).click()
    expect(card(page).last).to_be_visible()
    settled(page)

    assert page.evaluate("window.hit") is None
    assert not re.search("[\u202e\u200b]", page.locator("main").inner_text())


WORDS = {
    "de": (
        "Darf das Werkzeug send_mail aufgerufen werden?",
        "Zustimmen",
        "Der Besitzer hat zugestimmt (send_mail)",
    ),
    "ru": ("Можно вызвать инструмент send_mail?", "Одобрить", "Одобрено: владелец (send_mail)"),
    "zh-Hans": ("可以调用工具 send_mail 吗？", "批准", "所有者已批准（send_mail）"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", WORDS)
def test_a_question_is_asked_in_the_language_of_the_page(
    asking: Served, visit: Visitor, language: str, theme: str
) -> None:
    script = (
        f"localStorage.setItem('sessionary.view', JSON.stringify({{ language: '{language}' }}))"
    )
    page = visit(asking, "/search", script=script).page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(asking.address)
    page.locator("textarea").fill("mail to Gus")
    page.keyboard.press("Enter")
    title, approve, outcome = WORDS[language]
    expect(card(page).get_by_role("heading")).to_have_text(title)
    expect(card(page)).not_to_contain_text(re.compile("asked|longer|Always"))
    assert problems(page) == []

    card(page).get_by_role("button", name=approve, exact=True).click()

    expect(record(page, outcome)).to_have_count(1)


def test_all_questions_are_answered_on_one_page_and_approvals_are_revoked(
    asking: Served, visit: Visitor
) -> None:
    seen = asked(asking, visit, "mail to Hal")
    page = seen.page
    link = questions_link(page)
    expect(link.locator(".count")).to_have_text(re.compile(r"\d+"))
    before = int(link.locator(".count").inner_text())
    page.goto(asking.address)
    seen.asks("mail to Ida")
    expect(link.locator(".count")).to_have_text(str(before + 1))

    link.click()
    expect(
        page.get_by_role("status").filter(has_text=f"{before + 1} open question")
    ).to_be_visible()
    mine = card(page).filter(has_text="mail to Ida")
    assert problems(page) == []
    mine.get_by_role("button", name="Always in this session").click()
    expect(page.locator(".outcome")).to_contain_text(
        "Approved by the owner; the tool may run in this session from now on"
    )
    rules = page.locator(".item-list li")
    expect(rules.filter(has_text="send_mail")).to_contain_text("in the session “mail to Ida”")
    card(page).filter(has_text="mail to Hal").get_by_role("button", name="Approve").click()
    expect(page.locator(".outcome")).to_have_count(2)
    assert problems(page) == []

    rules.get_by_role("button", name="Revoke the approval of send_mail").first.click()
    expect(rules).to_have_count(0)
    expect(page.locator(".toast")).to_contain_text("send_mail needs an approval again")
    page.get_by_role("link", name="Usage").click()
    expect(link.locator(".count")).to_have_count(0 if before == 1 else 1)


IN_BACKGROUND = """
    window.isHidden = false
    window.shown = []
    delete window.PushManager
    Object.defineProperty(document, 'hidden', { get: () => window.isHidden })
    window.Notification = class {
        static permission = 'default'
        static async requestPermission() { return (this.permission = 'granted') }
        constructor(title, options) { window.shown.push([title, options.tag]) }
        close() { window.shown.pop() }
    }
"""
HIDE = """(hidden) => {
    window.isHidden = hidden
    document.dispatchEvent(new Event('visibilitychange'))
}"""


def test_a_tab_in_the_background_says_that_a_question_came(asking: Served, visit: Visitor) -> None:
    seen = visit(asking, script=IN_BACKGROUND)
    page = seen.page
    questions_link(page).click()
    expect(page.get_by_text("Notify me in this browser")).to_be_visible()
    page.evaluate(HIDE, True)
    other = seen.another_tab(asking.address)
    other.get_by_role("textbox", name=WRITE).fill("mail to Jan")
    other.keyboard.press("Enter")
    expect(card(other)).to_be_visible()
    expect(page).to_have_title(re.compile(r"^\(\d+\) Questions"))
    assert page.evaluate("window.shown") == []

    page.evaluate(HIDE, False)
    expect(page).to_have_title(re.compile("^Questions"))
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_text("This browser notifies you")).to_be_visible()
    page.evaluate(HIDE, True)
    card(other).get_by_role("button", name="Approve").click()
    expect(result(other)).to_contain_text("Result")
    other.get_by_role("textbox", name=WRITE).fill("mail to Kim")
    other.keyboard.press("Enter")
    expect(card(other)).to_be_visible()
    eventually(page, "window.shown.length === 1")
    assert page.evaluate("window.shown[0][0]") == "May the tool send_mail be called?"
    card(other).get_by_role("button", name="Approve").click()
    eventually(page, "window.shown.length === 0")


def test_nothing_of_questions_is_loaded_where_nobody_asks(empty: Served, visit: Visitor) -> None:
    seen = visit(empty)
    seen.asks("hello")
    expect(seen.page.locator(".message.assistant[id]")).to_be_visible()
    settled(seen.page)

    assert [url for url in seen.requests if re.search("uestion|alerts|MessageWaits", url)] == []
