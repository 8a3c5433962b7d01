"""Asks in the editor what a turn asks people, and takes the answer that is given there."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from sessionary.acp.stdio import sent_ids
from sessionary.actions.questions import get as get_question
from sessionary.engine import questions
from sessionary.engine.context import EngineContext
from sessionary.engine.questions import Answerer
from sessionary.errors import Conflict, RetryLater, SessionaryError, StoreUnavailable
from sessionary.formats.acp import text_block
from sessionary.formats.acp_updates import MessageReader, OpenCall, tool_kind, tool_title
from sessionary.formats.coerce import Json
from sessionary.model.question import (
    Always,
    Answer,
    Decision,
    Question,
    QuestionKind,
    QuestionState,
    button_answers,
    outcome_text,
    question_text,
)
from sessionary.model.source import Person
from sessionary.model.terminal import one_line

log = logging.getLogger(__name__)

EDITOR = "editor"
RETRY_SECONDS = 2.0
MOST_TRIES = 5
_LONGEST_NAME = 200


class Editor(Protocol):
    """The editor that asks its person."""

    # Whether it shows forms.
    can_elicit: bool

    async def request(self, method: str, params: Json) -> Any:
        """Send a request and return its result; raise `EditorRefused` if the editor answers with an error."""

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification."""

    async def update(self, session_id: str, update: Json) -> None:
        """Show something in a session."""


class EditorRefused(Exception):
    """The editor has answered a request with an error."""


class _Dialog(Struct, frozen=True):
    """A question that is shown in the editor: the task that waits for its answer, and the call that it is about."""

    task: "asyncio.Task[None]"
    question: Question
    call_id: str | None


class QuestionAsker:
    """Shows the open questions of one session in the editor, until they are decided here or elsewhere."""

    def __init__(
        self,
        context: EngineContext,
        editor: Editor,
        *,
        session_id: str,
        reader: MessageReader,
        person: Person,
    ) -> None:
        """`session_id` is the id that the editor knows."""
        self._context = context
        self._editor = editor
        self._session_id = session_id
        self._reader = reader
        self._who = Answerer(EDITOR, person, is_owner=True)
        self._dialogs: dict[str, _Dialog] = {}
        # Questions that the editor could not or did not answer: they wait for an answer elsewhere.
        self._left: set[str] = set()
        # Questions that were answered here.
        self._answered: set[str] = set()

    async def show(self, open_questions: tuple[Question, ...]) -> None:
        """Ask what is not asked yet; take back what was decided elsewhere."""
        ids = {each.id for each in open_questions}
        self._left &= ids
        self._answered &= ids | self._dialogs.keys()
        for id in [id for id in self._dialogs if id not in ids]:
            await self._take_back(self._dialogs.pop(id))
        for question in open_questions:
            if question.id not in self._dialogs and question.id not in self._left:
                call = self._call_of(question)
                task = asyncio.create_task(self._ask(question, call))
                self._dialogs[question.id] = _Dialog(
                    task, question, None if call is None else call.id
                )

    async def close(self) -> None:
        """Ask nothing more in the editor; the questions stay open."""
        dialogs = list(self._dialogs.values())
        self._dialogs.clear()
        for each in dialogs:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in dialogs), return_exceptions=True)

    async def _take_back(self, dialog: _Dialog) -> None:
        """Close a dialog whose question was decided, and show what became of it if that was elsewhere."""
        if dialog.task.done() or dialog.question.id in self._answered:
            return
        dialog.task.cancel()
        await asyncio.gather(dialog.task, return_exceptions=True)
        decided = await self._context.store.read(
            get_question, dialog.question.id, profile=self._context.profile
        )
        if decided is None or decided.state is QuestionState.WITHDRAWN:
            return
        outcome = outcome_text(decided)
        if dialog.call_id is not None:
            status = "in_progress" if decided.is_approved else "failed"
            update = {"sessionUpdate": "tool_call_update", "toolCallId": dialog.call_id}
            await self._editor.update(self._session_id, {**update, "status": status})
        await self._tell(f"({outcome})")

    async def _ask(self, question: Question, call: OpenCall | None) -> None:
        """Ask one question until it is answered, or it is clear that it will not be answered here."""
        for _ in range(MOST_TRIES):
            answer = await self._request(question, call)
            if answer is None:
                break
            try:
                await self._context.store.write(
                    questions.answer,
                    question.id,
                    answer,
                    who=self._who,
                    context=self._context,
                    moment=self._context.moment(),
                )
                self._answered.add(question.id)
            except Conflict as error:
                await self._tell(str(error))
                return
            except (RetryLater, StoreUnavailable) as error:
                log.warning("an answer could not be stored: %s", error)
                await self._tell(f"Your answer could not be stored: {error} You are asked again.")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except SessionaryError as error:
                await self._tell(f"{error} You are asked again.")
                continue
            if call is not None:
                status = "in_progress" if answer.decision is Decision.APPROVE else "failed"
                update = {"sessionUpdate": "tool_call_update", "toolCallId": call.id}
                await self._editor.update(self._session_id, {**update, "status": status})
            return
        self._left.add(question.id)
        await self._tell(_elsewhere(question))

    async def _request(self, question: Question, call: OpenCall | None) -> Answer | None:
        """Return the answer that the person gives in the editor; None if they give none, or cannot."""
        ids: list[Any] = []
        token = sent_ids.set(ids)
        is_form = question.asked.kind is not QuestionKind.APPROVAL and self._editor.can_elicit
        try:
            if is_form:
                params = {"sessionId": self._session_id, **_form(question)}
                return _read_form(
                    question, await self._editor.request("elicitation/create", params)
                )
            if not button_answers(question):
                return None
            params = {"sessionId": self._session_id, **self._permission(question, call)}
            found = await self._editor.request("session/request_permission", params)
            return _read_permission(question, found)
        except EditorRefused as error:
            log.warning("the editor does not ask: %s", error)
            return None
        except asyncio.CancelledError:
            for id in ids:
                await self._editor.notify("$/cancel_request", {"requestId": id})
            raise
        finally:
            sent_ids.reset(token)

    def _call_of(self, question: Question) -> OpenCall | None:
        """Return the call that an approval is about, if it is shown."""
        asked = question.asked
        if asked.kind is not QuestionKind.APPROVAL:
            return None
        taken = {each.call_id for each in self._dialogs.values()}
        return next(
            (
                each
                for each in self._reader.open_calls.values()
                if each.name == asked.tool
                and (each.arguments or {}) == (asked.arguments or {})
                and each.id not in taken
            ),
            None,
        )

    def _permission(self, question: Question, call: OpenCall | None) -> Json:
        asked = question.asked
        options = [
            {"optionId": str(number), "name": label, "kind": _option_kind(answer)}
            for number, (label, answer) in enumerate(button_answers(question), 1)
        ]
        if call is None:
            name = asked.tool or one_line(asked.text, _LONGEST_NAME)
            described: Json = {
                "toolCallId": f"question-{question.id}",
                "title": tool_title(name, asked.arguments),
                "kind": tool_kind(asked.tool or ""),
            }
            if asked.arguments is not None:
                described["rawInput"] = dict(asked.arguments)
        else:
            described = self._reader.describe(call)
        text: Json = {"type": "content", "content": text_block(question_text(question))}
        described["content"] = [*described.get("content", ()), text]
        return {"toolCall": {**described, "status": "pending"}, "options": options}

    async def _tell(self, text: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": text_block(f"\n\n{text}\n\n")}
        await self._editor.update(self._session_id, update)


def _option_kind(answer: Answer) -> str:
    if answer.decision is Decision.DENY:
        return "reject_once"
    return "allow_always" if answer.always in (Always.SESSION, Always.PERSON) else "allow_once"


def _read_permission(question: Question, found: Any) -> Answer | None:
    """Return the answer of the option that was chosen; None if the person chose none."""
    match found:
        case {"outcome": {"outcome": "selected", "optionId": str(number)}}:
            options = button_answers(question)
            if number.isdecimal() and 1 <= int(number[:4]) <= len(options):
                return options[int(number) - 1][1]
    return None


# The names of the only value of a form for a text or a choice.
_ANSWER = "answer"


def _form(question: Question) -> Json:
    asked = question.asked
    value: Json = {"type": "string", "title": "Answer"}
    if asked.kind is QuestionKind.CHOICE:
        value["enum"] = list(asked.options)
    schema = {"type": "object", "properties": {_ANSWER: value}, "required": [_ANSWER]}
    if asked.kind is QuestionKind.FORM:
        schema = {"type": "object", **(asked.schema or {})}
    return {"mode": "form", "message": asked.text, "requestedSchema": schema}


def _read_form(question: Question, found: Any) -> Answer | None:
    """Return the answer of a form; None if the person closed it."""
    match found:
        case {"action": "decline"}:
            return Answer(decision=Decision.DENY)
        case {"action": "accept", **rest}:
            content = rest.get("content")
            values = dict(content) if isinstance(content, Mapping) else {}
            if question.asked.kind is QuestionKind.FORM:
                return Answer(decision=Decision.APPROVE, values=values)
            return Answer(decision=Decision.APPROVE, text=str(values.get(_ANSWER, "")))
    return None


def _elsewhere(question: Question) -> str:
    """Return how to answer a question that stays open."""
    words = "approve" if question.asked.kind is QuestionKind.APPROVAL else "…"
    return (
        f"{question_text(question)}\n\nThe question {question.code} stays open. Answer it in the workbench, or with: "
        f"`sessionary questions answer {question.code} {words}`"
    )
