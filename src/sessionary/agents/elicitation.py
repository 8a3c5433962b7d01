"""Questions of MCP servers: the form that a server asks for as a question to people, and their answer as its values."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sessionary.errors import BadInput
from sessionary.model.question import (
    LONGEST_TEXT,
    MOST_OPTIONS,
    Decision,
    NewQuestion,
    Question,
    QuestionKind,
    check_new,
)
from sessionary.model.terminal import one_line

ACCEPT, DECLINE = "Accept", "Decline"
_YES_OR_NO = {"Yes": True, "No": False}
_LONGEST_FACT = 300
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "yes or no"}
_KEPT = ("type", "title", "description", "default", "enum")


class Elicitation(Struct, frozen=True):
    """A question of a server, and how its answer is read.

    A form with one value is asked as a text or a choice, so that it can be answered with one message or one press.
    """

    question: NewQuestion
    # The only value, if it is asked as a text or a choice; with what each option stands for.
    value: str | None = None
    options: Mapping[str, Any] = {}

    def content(self, decided: Question) -> dict[str, Any] | None:
        """Return the values that the server gets; None if the person declined."""
        answered = decided.answered
        if answered is None or answered.answer.decision is Decision.DENY:
            return None
        answer = answered.answer
        if self.question.kind is QuestionKind.FORM:
            return dict(answer.values or {})
        if self.value is None:
            return {} if answer.text == ACCEPT else None
        return {self.value: self.options.get(answer.text, answer.text)}


def read_elicitation(
    tool: str, message: str, schema: Mapping[str, Any], *, name: str, what: str = "tool"
) -> Elicitation:
    """Return the question of a server; raise `BadInput` if it asks for what no form can have.

    `what` is the word for the one that asks.
    """
    required = schema.get("required") or ()
    properties = {
        key: field
        for key, each in (schema.get("properties") or {}).items()
        if (field := _field(key, each, is_required=key in required)) is not None
    }
    said = f"The {what} {one_line(tool, 120)} asks: {message.strip() or 'may it go on?'}"
    if not properties:
        return _choice(name, said, {ACCEPT: None, DECLINE: None}, value=None)
    if len(properties) == 1:
        ((key, field),) = properties.items()
        text = "\n\n".join([said, *filter(None, [_fact(field)])])
        options = _options(field)
        if options is not None:
            return _choice(name, text, options, value=key)
        if field["type"] == "string" and "enum" not in field:
            asked = NewQuestion(name=name, kind=QuestionKind.TEXT, text=text[:LONGEST_TEXT])
            return Elicitation(check_new(asked), key)
    lines = [
        f"- {one_line(key, 120)} ({_facts(field, is_required=key in required)})"
        for key, field in properties.items()
    ]
    form = {
        "type": "object",
        "properties": properties,
        "required": [key for key in required if key in properties],
    }
    text = "\n".join([said, "", *lines])[:LONGEST_TEXT]
    asked = NewQuestion(name=name, kind=QuestionKind.FORM, text=text, schema=form)
    return Elicitation(check_new(asked))


def _choice(name: str, text: str, options: Mapping[str, Any], *, value: str | None) -> Elicitation:
    asked = NewQuestion(
        name=name, kind=QuestionKind.CHOICE, text=text[:LONGEST_TEXT], options=tuple(options)
    )
    return Elicitation(check_new(asked), value, options)


def _field(key: str, given: Any, *, is_required: bool) -> dict[str, Any] | None:
    """Return what a form says about one value; None for one that can be left out because no form can have it."""
    known = dict(given) if isinstance(given, Mapping) else {}
    named = [each for each in known.get("oneOf") or () if isinstance(each, Mapping)]
    if named and all("const" in each for each in named):
        known |= {"enum": [each["const"] for each in named]}
        known |= {"enumNames": [str(each.get("title", each["const"])) for each in named]}
    kind = known.get("type", "string" if "enum" in known else None)
    if kind not in _KINDS:
        if is_required:
            raise BadInput(f"The value {key!r} of a form is of a type that cannot be asked for.")
        return None
    field = {fact: known[fact] for fact in _KEPT if fact in known} | {"type": kind}
    titles, values = known.get("enumNames"), known.get("enum")
    if isinstance(titles, list) and isinstance(values, list) and len(titles) == len(values):
        field["enumNames"] = [str(each) for each in titles]
    return field


def _options(field: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of a value that is asked as a choice, each with what it stands for."""
    if field["type"] == "boolean":
        return _YES_OR_NO
    values = field.get("enum")
    if not isinstance(values, list) or not 1 < len(values) <= MOST_OPTIONS:
        return None
    labels = [one_line(str(each), 200) for each in field.get("enumNames", values)]
    is_clear = len(set(labels)) == len(labels) and all(each.strip() for each in labels)
    return dict(zip(labels, values, strict=True)) if is_clear else None


def _fact(field: Mapping[str, Any]) -> str:
    """Return what the server says about a value, besides its question."""
    return one_line(str(field.get("description") or field.get("title") or ""), _LONGEST_FACT)


def _facts(field: Mapping[str, Any], *, is_required: bool) -> str:
    values = field.get("enum")
    among = f"one of {', '.join(map(str, values))}" if isinstance(values, list) else ""
    facts = [_fact(field), among or _KINDS[field["type"]], "" if is_required else "optional"]
    return one_line("; ".join(filter(None, facts)), 2 * _LONGEST_FACT)
