"""Questions as programs and functions write them, and the answers as they read them."""

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec
from msgspec import Struct

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model.question import NewQuestion, Question, QuestionKind, check_new, outcome_text


class QuestionData(TypedDict, total=False):
    """A question; the kind follows from `tool` (an approval), `options` (a choice) or `schema` (a form)."""

    name: str
    kind: str
    text: str
    tool: str
    arguments: Mapping[str, Any]
    options: list[str]
    schema: Mapping[str, Any]


class _Given(Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    kind: QuestionKind | None = None
    text: str = ""
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    options: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None

    @property
    def natural_kind(self) -> QuestionKind:
        if self.tool is not None:
            return QuestionKind.APPROVAL
        if self.options:
            return QuestionKind.CHOICE
        return QuestionKind.TEXT if self.schema is None else QuestionKind.FORM


# Which kind of question has a field.
_FIELDS = {
    "tool": QuestionKind.APPROVAL,
    "arguments": QuestionKind.APPROVAL,
    "options": QuestionKind.CHOICE,
    "schema": QuestionKind.FORM,
}


def read_question(data: Any) -> NewQuestion:
    """Return a question; raise `BadInput` with one line if it is not one that people can answer."""
    try:
        # As it will be stored: what cannot be stored cannot be asked.
        given = msgspec.convert(codec.decode(codec.encode(data)), _Given)
    except msgspec.ValidationError as error:
        raise BadInput(f"{str(error).replace('`', '')}.") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"A question consists of JSON values: {error}.") from error
    if given.name != codec.storable_text(given.name):
        raise BadInput("The name of a question has characters that cannot be stored.")
    kind = given.kind or given.natural_kind
    if kind is QuestionKind.APPROVAL and not given.tool:
        raise BadInput("An approval names its tool.")
    for name, only in _FIELDS.items():
        if kind is not only and getattr(given, name):
            raise BadInput(f"Only a question of the kind {only} has {name}.")
    return check_new(
        NewQuestion(
            name=given.name,
            kind=kind,
            text=given.text,
            tool=given.tool,
            arguments=(given.arguments or {}) if kind is QuestionKind.APPROVAL else None,
            options=given.options,
            schema=given.schema,
        )
    )


def approved_arguments(question: Question) -> dict[str, Any] | None:
    """Return the arguments with which an approved call may run; None if it may not, or is no call."""
    answered, asked = question.answered, question.asked
    if answered is None or asked.kind is not QuestionKind.APPROVAL or not question.is_approved:
        return None
    changed = answered.answer.arguments
    return dict((asked.arguments or {}) if changed is None else changed)


def question_data(question: Question) -> dict[str, Any]:
    """Return a question with its answer, as a program reads it when its turn goes on.

    The `arguments` of the answer are those with which an approved call may run, whether they were changed or not.
    """
    asked, answered = question.asked, question.answered
    told: dict[str, Any] = {
        "name": asked.name,
        "kind": str(asked.kind),
        "text": asked.text,
        "state": str(question.state),
        "outcome": outcome_text(question),
        "answer": None,
    }
    if asked.tool is not None:
        told["tool"] = asked.tool
    if asked.arguments is not None:
        told["arguments"] = dict(asked.arguments)
    if answered is not None:
        answer = answered.answer
        told["answer"] = {
            "decision": str(answer.decision),
            "text": answer.text,
            "arguments": approved_arguments(question),
            "values": None if answer.values is None else dict(answer.values),
            "by": answered.who,
        }
    return told
