"""Answers to questions as programs give them, over HTTP and in Python."""

from collections.abc import Mapping
from typing import Any

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model.question import (
    LONGEST_TEXT,
    Always,
    Answer,
    Decision,
    Question,
    QuestionKind,
)


def read_answer(
    question: Question,
    *,
    decision: Decision | None = None,
    text: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    always: Always | None = None,
) -> Answer:
    """Return the answer that was given; raise `BadInput` if it does not say what was decided.

    Whether a tool may be called must be said with a decision. Any other question is answered by a text or by values.
    """
    if decision is None:
        if question.asked.kind is QuestionKind.APPROVAL:
            raise BadInput("Say whether the tool may be called: approve or deny.")
        if text is None and values is None:
            raise BadInput("Give a text or values as the answer, or deny it.")
        decision = Decision.APPROVE
    if text is not None and len(text) > LONGEST_TEXT:
        raise BadInput(
            f"An answer has at most {LONGEST_TEXT:,} characters; this one has {len(text):,}."
        )
    return Answer(
        decision=decision,
        text=codec.storable_text(text or ""),
        arguments=_json_object("arguments", arguments),
        values=_json_object("values", values),
        always=always,
    )


def _json_object(name: str, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the values as they are stored."""
    if given is None:
        return None
    try:
        found = codec.decode(codec.encode(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"The {name} of an answer are JSON values: {error}.") from error
    if not isinstance(found, dict):
        raise BadInput(f"The {name} of an answer are given by name.")
    return found
