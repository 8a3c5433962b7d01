"""Questions that a turn asks people, their answers, and how both are written as text."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from sessionary.config.engine import OnExpiry
from sessionary.errors import BadInput
from sessionary.model.message import Part, Unknown
from sessionary.model.source import Channel, Person
from sessionary.model.terminal import is_hidden, one_line

LONGEST_TEXT = 20_000
LONGEST_REASON = 2_000
MOST_OPTIONS = 20
CODE_LENGTH = 4
_LONGEST_OPTION = 200
# What whoever approves arguments must see besides what is hidden everywhere: the emoji variation selector, signs that
# are drawn as nothing (an empty braille pattern, a blank note head), and what no program may draw.
_BLANK = frozenset("\ufe0f\u2800\u2065\U0001d159") | frozenset(map(chr, range(0xFFF0, 0xFFF9)))
_FENCE = re.compile("`{3,}")
_PUNCTUATION = " \t\r\n.!"


class QuestionKind(StrEnum):
    """What is asked: may a tool be called, which of these, a text, or several values at once."""

    APPROVAL = "approval"
    CHOICE = "choice"
    TEXT = "text"
    FORM = "form"


class QuestionState(StrEnum):
    """What became of a question."""

    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class Decision(StrEnum):
    """What a person decided: a call may run, or an answer is given; or neither."""

    APPROVE = "approve"
    DENY = "deny"


class Always(StrEnum):
    """For which later calls of the tool an approval counts too."""

    SESSION = "session"
    PERSON = "person"


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody answered. `approve` with a text, an option or values answers a question that is no approval."""

    decision: Decision
    # The text or the chosen option; the reason of a denial.
    text: str = ""
    # The arguments that the call is to have instead of those that were asked about.
    arguments: Mapping[str, Any] | None = None
    values: Mapping[str, Any] | None = None
    always: Always | None = None


class Answered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer as it is stored: with who gave it, where and when."""

    answer: Answer
    at: datetime
    by: Person | None = None
    platform: str = ""

    @property
    def who(self) -> str:
        """The name of whoever answered; in the workbench, a message that answers names nobody."""
        return "somebody" if self.by is None else one_line(self.by.label, 60)


class NewQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that an agent asks.

    `name` tells the questions of a turn apart: the same name in a continued turn is the same question. For an approval
    it is the number of the tool call in the turn.
    """

    name: str
    kind: QuestionKind
    text: str
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    options: tuple[str, ...] = ()
    # The JSON schema of the values of a form: an object of texts, numbers, booleans and choices.
    schema: Mapping[str, Any] | None = None
    # Why a call must be approved.
    rule: str = ""


class QuestionBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a question besides its state."""

    asked: NewQuestion
    on_expiry: OnExpiry = OnExpiry.DENY
    # Who may answer besides the owners, as `platform:id`.
    people: tuple[str, ...] = ()
    # The only person who asked for the turn, as `platform:id`; None if there can be no rule for one person.
    person: str | None = None
    agent: str | None = None
    # Where the turn was asked for, in words.
    where: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """A question as the record has it."""

    no: int
    id: str
    profile: str
    session_no: int
    session_id: str
    turn_id: str
    body: QuestionBody
    state: QuestionState
    asked_at: datetime
    expires_at: datetime
    # What people type to say which question they mean, and what its buttons carry.
    code: str
    token: str
    answered: Answered | None = None
    # Whether the approved call was started: it is never started again.
    is_started: bool = False

    @property
    def asked(self) -> NewQuestion:
        """What is asked."""
        return self.body.asked

    @property
    def is_open(self) -> bool:
        """Whether it still waits for an answer."""
        return self.state is QuestionState.OPEN

    @property
    def is_approved(self) -> bool:
        """Whether somebody approved it, or answered it."""
        return self.answered is not None and self.answered.answer.decision is Decision.APPROVE


class Card(Struct, frozen=True):
    """What a channel shows below the text of a question: a button for each option, or how to answer by text.

    Without a code it cannot be answered there.
    """

    question_id: str
    token: str
    options: tuple[str, ...]
    code: str = ""

    def button(self, number: int) -> str:
        """Return what the button of an option carries, counted from 1."""
        return f"{_BUTTON}{self.token}.{number}"

    def lines(self) -> str:
        """Return how to answer by text, for channels without buttons."""
        numbered = [
            f"{number}. {one_line(visible(option))}"
            for number, option in enumerate(self.options, 1)
        ]
        if not self.code:
            return ""
        what = "a number" if self.options else "your answer"
        hint = f"Reply to this message with {what}, or write it after {self.code} in any chat."
        return "\n\n".join(filter(None, ["\n".join(numbered), hint]))

    def part(self) -> Part:
        """Return the part of a delivery that stands for this card."""
        return Unknown(
            {
                "type": _CARD,
                "question_id": self.question_id,
                "token": self.token,
                "options": list(self.options),
                "code": self.code,
            }
        )


class MessageEdit(Struct, frozen=True):
    """In a delivery: its text replaces that of the message which was sent for another delivery.

    Where a message cannot be edited, `instead` is sent, if it says something.
    """

    delivery_id: str
    instead: str = ""

    def part(self) -> Part:
        """Return the part of a delivery that stands for this edit."""
        return Unknown({"type": _EDIT, "delivery_id": self.delivery_id, "instead": self.instead})


_BUTTON = "q."
_CARD = "question"
_EDIT = "edit"


def card_of(parts: Sequence[Part]) -> Card | None:
    """Return the card among the parts of a delivery."""
    data = _find(parts, _CARD)
    if data is None:
        return None
    return Card(data["question_id"], data["token"], tuple(data["options"]), data["code"])


def edit_of(parts: Sequence[Part]) -> MessageEdit | None:
    """Return the edit among the parts of a delivery."""
    data = _find(parts, _EDIT)
    return None if data is None else MessageEdit(data["delivery_id"], data["instead"])


def _find(parts: Sequence[Part], kind: str) -> Mapping[str, Any] | None:
    for part in parts:
        if isinstance(part, Unknown) and part.data.get("type") == kind:
            return part.data
    return None


def read_button(data: str) -> tuple[str, int] | None:
    """Return the token and the number of the option that a button carries; None if it is not one of ours."""
    token, _, number = data.removeprefix(_BUTTON).rpartition(".")
    if not data.startswith(_BUTTON) or not token or not _SMALL_NUMBER.fullmatch(number):
        return None
    return token, int(number)


_SMALL_NUMBER = re.compile(r"[1-9][0-9]?", re.ASCII)

APPROVE = "Approve"
DENY = "Deny"
ALWAYS_HERE = "Always in this session"
ALWAYS_PERSON = "Always for this person"


def check_new(asked: NewQuestion) -> NewQuestion:
    """Return the question; raise `BadInput` if nobody could answer it."""
    if not asked.name or len(asked.name) > _LONGEST_OPTION:
        raise BadInput("A question needs a name of at most 200 characters.")
    if not asked.text.strip() and asked.kind is not QuestionKind.APPROVAL:
        raise BadInput("A question needs a text.")
    if len(asked.text) > LONGEST_TEXT:
        raise BadInput(f"A question has at most {LONGEST_TEXT:,} characters.")
    if asked.kind is QuestionKind.CHOICE:
        if not 1 < len(asked.options) <= MOST_OPTIONS:
            raise BadInput(f"A question with options has 2 to {MOST_OPTIONS} of them.")
        if len(set(asked.options)) < len(asked.options):
            raise BadInput("The options of a question must differ.")
        if any(not each.strip() or len(each) > _LONGEST_OPTION for each in asked.options):
            raise BadInput(f"An option has 1 to {_LONGEST_OPTION} characters.")
    if asked.kind is QuestionKind.FORM:
        _properties(asked.schema)
    return asked


def button_answers(question: Question) -> tuple[tuple[str, Answer], ...]:
    """Return the options that can be chosen with one press or one number, each with its answer."""
    match question.asked.kind:
        case QuestionKind.APPROVAL:
            approve = Decision.APPROVE
            found = [
                (APPROVE, Answer(decision=approve)),
                (DENY, Answer(decision=Decision.DENY)),
            ]
            if not question.body.people:  # only owners are asked
                found.append((ALWAYS_HERE, Answer(decision=approve, always=Always.SESSION)))
            if question.body.person is not None:
                found.append((ALWAYS_PERSON, Answer(decision=approve, always=Always.PERSON)))
            return tuple(found)
        case QuestionKind.CHOICE:
            return tuple(
                (each, Answer(decision=Decision.APPROVE, text=each))
                for each in question.asked.options
            )
    return ()


def card_for(question: Question) -> Card:
    """Return the card of a question."""
    options = tuple(label for label, _ in button_answers(question))
    return Card(question.id, question.token, options, question.code)


_YES = frozenset({"yes", "approve"})
_NO = frozenset({"no", "deny"})
_DENIED = re.compile(r"(?:deny|no|2)\s*[,:;–-]\s*(?P<reason>\S.*)", re.IGNORECASE | re.DOTALL)
# Each code has a digit, so that no word is taken for one.
_CODED = re.compile(
    r"\s*(?P<code>(?=[A-Za-z]*[0-9])[0-9A-Za-z]{4})\s+(?P<answer>\S.*)", re.DOTALL | re.ASCII
)


def split_code(text: str) -> tuple[str, str] | None:
    """Return the code of a question and the answer to it that a text consists of; None if it has no code."""
    found = _CODED.fullmatch(text)
    return None if found is None else (found["code"].upper(), found["answer"].strip())


def read_reply(question: Question, text: str) -> Answer | None:
    """Return the answer that a typed text is to a question; None if it may mean something else."""
    plain = text.strip()
    words = plain.strip(_PUNCTUATION).casefold()
    options = button_answers(question)
    named = next((each for label, each in options if label.casefold() == words), None)
    if named is not None:  # also if an option is a number
        return named
    if _SMALL_NUMBER.fullmatch(words) and int(words) <= len(options):
        return options[int(words) - 1][1]
    match question.asked.kind:
        case QuestionKind.APPROVAL:
            if words in _YES:
                return Answer(decision=Decision.APPROVE)
            if words in _NO:
                return Answer(decision=Decision.DENY)
            denied = _DENIED.fullmatch(plain)
            reason = None if denied is None else denied["reason"][:LONGEST_REASON]
            return None if reason is None else Answer(decision=Decision.DENY, text=reason)
        case QuestionKind.CHOICE:
            return None
        case QuestionKind.TEXT:
            is_answer = plain and len(plain) <= LONGEST_TEXT
            return Answer(decision=Decision.APPROVE, text=plain) if is_answer else None
        case QuestionKind.FORM:
            return _read_form_reply(question, plain)


def _read_form_reply(question: Question, text: str) -> Answer | None:
    """Return the answer to a form: its only value, or a line `name: value` for each."""
    properties = _properties(question.asked.schema)
    lines = dict.fromkeys(properties, text) if len(properties) == 1 else {}
    for line in text.splitlines() if len(properties) > 1 else ():
        name, is_named, value = line.partition(":")
        if line.strip():
            if not is_named or name.strip() not in properties or name.strip() in lines:
                return None
            lines[name.strip()] = value.strip()
    try:
        values = {name: _form_value(properties[name], line) for name, line in lines.items()}
        return check_answer(question, Answer(decision=Decision.APPROVE, values=values))
    except (BadInput, ValueError, RecursionError):
        return None


def _form_value(schema: Mapping[str, Any], text: str) -> Any:
    """Return the value of a form that a text stands for; raise ValueError if it stands for none."""
    match schema.get("type"):
        case "boolean":
            return {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}.get(text.casefold())
        case "integer" | "number":
            return json.loads(text, parse_constant=lambda _: None)
    return text


def check_answer(question: Question, answer: Answer) -> Answer:
    """Return the answer as it is stored; raise `BadInput` if it is none to this question."""
    asked = question.asked
    if answer.decision is Decision.DENY:
        if answer.arguments is not None or answer.values is not None or answer.always is not None:
            raise BadInput("A denial has a reason, and nothing else.")
        return Answer(decision=Decision.DENY, text=answer.text[:LONGEST_REASON].strip())
    if asked.kind is not QuestionKind.APPROVAL and (answer.arguments or answer.always):
        raise BadInput(
            "Only the approval of a tool call may change its arguments or become a rule."
        )
    match asked.kind:
        case QuestionKind.APPROVAL:
            if answer.values is not None:
                raise BadInput("The approval of a tool call may change its `arguments`.")
            if answer.always is Always.PERSON and question.body.person is None:
                raise BadInput("This turn was asked for by nobody for whom there could be a rule.")
            return Answer(
                decision=Decision.APPROVE, arguments=answer.arguments, always=answer.always
            )
        case QuestionKind.CHOICE:
            chosen = answer.text.strip()
            if _SMALL_NUMBER.fullmatch(chosen) and chosen not in asked.options:
                number = int(chosen)
                chosen = asked.options[number - 1] if number <= len(asked.options) else chosen
            if chosen not in asked.options:
                raise BadInput(f"Choose one of: {', '.join(asked.options)}.")
            return Answer(decision=Decision.APPROVE, text=chosen)
        case QuestionKind.TEXT:
            if not answer.text.strip() or len(answer.text) > LONGEST_TEXT:
                raise BadInput(f"An answer has 1 to {LONGEST_TEXT:,} characters.")
            return Answer(decision=Decision.APPROVE, text=answer.text)
        case QuestionKind.FORM:
            values = _check_values(asked.schema, answer.values)
            return Answer(decision=Decision.APPROVE, values=values)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def _properties(schema: Mapping[str, Any] | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the values that a form asks for; raise `BadInput` for what cannot be shown as a form."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise BadInput("A form asks for at least one value.")
    for name, each in properties.items():
        if not isinstance(each, Mapping) or each.get("type") not in _TYPES:
            raise BadInput(f"{name!r} of a form is a text, a number or a boolean.")
    return properties


def _check_values(
    schema: Mapping[str, Any] | None, values: Mapping[str, Any] | None
) -> dict[str, Any]:
    properties, given = _properties(schema), dict(values or {})
    for name in (schema or {}).get("required", ()):
        if given.get(name) in (None, ""):
            raise BadInput(f"{name} is missing.")
    for name, value in given.items():
        if name not in properties:
            raise BadInput(f"{name!r} was not asked for; there are: {', '.join(properties)}.")
        kind, choices = properties[name]["type"], properties[name].get("enum")
        is_number = isinstance(value, float) and math.isfinite(value)
        if (
            not isinstance(value, _TYPES[kind])
            or (kind != "boolean" and isinstance(value, bool))
            or (isinstance(value, float) and not is_number)
        ):
            raise BadInput(f"{name} is of type {kind}.")
        if isinstance(choices, list) and value not in choices:
            raise BadInput(f"{name} is one of: {', '.join(map(str, choices))}.")
    return given


# How a question is shown.


def visible(text: str) -> str:
    """Return a text in which every character can be seen: hidden ones are written as `\\u202e`."""
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char == "\n" or (
        not is_hidden(char) and char not in _BLANK and (char == " " or not char.isspace())
    ):
        return char
    if char == "\t":
        return "\\t"
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def arguments_text(arguments: Mapping[str, Any] | None) -> str:
    """Return the arguments of a call as they are executed, one after the other, with nothing left out or hidden.

    A text of several lines is written below its name with a bar before each line, so that no line of it can be taken
    for another argument. A text that could be taken for another value, such as a number, is in quotes.
    """
    lines: list[str] = []
    for name, value in (arguments or {}).items():
        label = visible(name).replace("\n", "\\n")
        text = value
        if not isinstance(value, str) or _is_json(value):
            text = json.dumps(value, ensure_ascii=False, indent=2)
        shown = visible(text).split("\n")
        if len(shown) == 1 and text == text.strip() and text:
            lines.append(f"{label}: {shown[0]}")
        else:
            lines += [f"{label}:", *(f"| {line}" for line in shown)]
    return "\n".join(lines)


def _is_json(text: str) -> bool:
    """Whether a text looks like a number, a list or another value that is no text."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def fenced(text: str) -> str:
    """Return a block of code that nothing in the text can end, on any platform."""
    safe = _FENCE.sub(lambda found: "\\u0060" * len(found[0]), text)
    return f"```\n{safe}\n```"


_OLD_AND_NEW = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("search", "replace"),
    ("old", "new"),
)
_PATHS = ("path", "file_path", "filename", "file")


class FileEdit(Struct, frozen=True):
    """A change that a call makes to a file: one text is replaced by another. The path may be empty."""

    path: str
    before: str
    after: str


def file_edits(arguments: Mapping[str, Any] | None) -> tuple[FileEdit, ...]:
    """Return the changes that a call makes to a file; none if its arguments do not describe them all."""
    given = arguments or {}
    edits = given.get("edits")
    changes = edits if isinstance(edits, list) and edits else [given]
    path = next((given[name] for name in _PATHS if isinstance(given.get(name), str)), "")
    found = []
    for change in changes:
        if not isinstance(change, Mapping):
            return ()
        for old, new in _OLD_AND_NEW:
            before, after = change.get(old), change.get(new)
            if isinstance(before, str) and isinstance(after, str):
                found.append(FileEdit(path, before, after))
                break
        else:
            return ()
    return tuple(found)


def diff_of(arguments: Mapping[str, Any] | None) -> str | None:
    """Return the change that a call makes to a file, as a diff; None if its arguments describe none."""
    import difflib  # needed for few questions only

    found: list[str] = []
    for edit in file_edits(arguments):
        found += difflib.unified_diff(
            visible(edit.before).split("\n"),
            visible(edit.after).split("\n"),
            fromfile=visible(edit.path),
            tofile=visible(edit.path),
            lineterm="",
        )
    return "\n".join(found) or None


def question_text(question: Question, *, where: str | None = None) -> str:
    """Return what a channel shows of a question, as Markdown; `where` says where the turn was asked for."""
    asked = question.asked
    lines = []
    if where:
        lines.append(f"{without_markup(where)} asks:")
    if asked.kind is QuestionKind.APPROVAL:
        lines.append(f"May the tool **{without_markup(asked.tool or '', 120)}** be called?")
        shown = arguments_text(asked.arguments)
        lines.append(fenced(shown) if shown else "It has no arguments.")
        if asked.text:
            lines.append(one_line(asked.text, LONGEST_REASON))
    else:
        lines.append(asked.text)
    if asked.kind is QuestionKind.FORM:
        lines.append(_form_text(asked.schema))
    return "\n\n".join(lines)


def _form_text(schema: Mapping[str, Any] | None) -> str:
    """Return what a form asks for, a line for each value."""
    properties = _properties(schema)
    required = (schema or {}).get("required", ())
    lines = []
    for name, each in properties.items():
        hints = [_TYPE_NAMES[each["type"]]]
        if isinstance(each.get("enum"), list):
            hints = ["one of " + ", ".join(map(str, each["enum"]))]
        if name not in required:
            hints.append("may be left out")
        about = each.get("description") or each.get("title") or ""
        words = without_markup(" · ".join(filter(None, [about, *hints])))
        code = one_line(name.replace("`", " "), 100)
        lines.append(f"- `{code}`: {words}")
    first = "Answer with a line for each value:" if len(properties) > 1 else "Answer with a value:"
    return "\n".join([first, "", *lines])


_TYPE_NAMES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
}
_MARKUP = re.compile(r"[*_`~\[\]()<>#|\\]")


def without_markup(text: str, limit: int = 300) -> str:
    """Return a line that cannot be read as markup."""
    return one_line(_MARKUP.sub(" ", text), limit)


def outcome_text(question: Question) -> str:
    """Return one line about what became of a question."""
    answered, asked = question.answered, question.asked
    match question.state:
        case QuestionState.EXPIRED:
            return "Nobody answered in time."
        case QuestionState.WITHDRAWN:
            return "No answer is needed any more."
        case QuestionState.OPEN:
            return "Waits for an answer."
    assert answered is not None
    answer, who = answered.answer, answered.who
    if answer.decision is Decision.DENY:
        reason = f": {one_line(answer.text, 200)}" if answer.text else ""
        return f"Denied by {who}{reason}."
    if asked.kind is not QuestionKind.APPROVAL:
        text = one_line(answer.text, 200) or "the form"
        return f"Answered by {who}: {text}."
    changed = ", with other arguments" if answer.arguments is not None else ""
    always = {
        None: "",
        Always.SESSION: "; the tool may run in this session from now on",
        Always.PERSON: "; the tool may run for this person from now on",
    }[answer.always]
    return f"Approved by {who}{changed}{always}."


def person_key(platform: str, person: Person) -> str:
    """Return how a person is named in a question: `platform:id`."""
    return str(Channel(platform, person.stable_id))
