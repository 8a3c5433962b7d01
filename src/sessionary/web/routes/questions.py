"""`/questions`: what turns ask people; `/policy`: which tool calls need an approval, and which do not any more."""

from enum import StrEnum
from typing import Annotated

from fastapi import Path, Query, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions import questions as question_actions
from sessionary.actions.sessions import read
from sessionary.engine import questions
from sessionary.engine.policy import CallExplanation, explain_call
from sessionary.engine.ports import ProposedCall
from sessionary.engine.questions import Answerer
from sessionary.errors import Conflict
from sessionary.formats.answer_input import read_answer
from sessionary.model.json_types import QuestionInfo, StandingApprovalInfo
from sessionary.model.question import Always, Decision, QuestionState
from sessionary.model.source import WEB
from sessionary.model.view import approval_json, question_json
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.requests import CursorQuery, Json, SourceBody, decode, source_of
from sessionary.web.responses import (
    StoredAnswer,
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
    require_approver,
)
from sessionary.web.routing import FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX)
QuestionId = Annotated[
    str, Path(description="The question's id, a beginning that only one has, or its code.")
]
LimitQuery = Annotated[int, Query(ge=1, le=1000, description="How many a page has.")]


class QuestionFilter(StrEnum):
    """Which questions are listed."""

    OPEN = "open"
    ALL = "all"


class QuestionListPage(TypedDict):
    """A page of questions."""

    items: list[QuestionInfo]
    next: str | None
    """The cursor of the next page; null on the last."""


class NewAnswer(Struct, kw_only=True, forbid_unknown_fields=True):
    """An answer: to an approval a `decision`, to any other question a `text` or `values`, or a denial."""

    decision: Annotated[
        Decision | None,
        Meta(
            description="`approve` or `deny`. Any question but an approval can be answered without it."
        ),
    ] = None
    text: Annotated[
        str | None, Meta(description="The text or the chosen option; the reason of a denial.")
    ] = None
    arguments: Annotated[
        Json | None,
        Meta(description="All arguments of the call, instead of those that were asked about."),
    ] = None
    values: Annotated[Json | None, Meta(description="The values of a form.")] = None
    always: Annotated[
        Always | None,
        Meta(
            description="Approve later calls of the tool too: in this session, or for the person who asked."
        ),
    ] = None


class ApprovalListPage(TypedDict):
    """A page of the rules that people have made with their answers."""

    items: list[StandingApprovalInfo]
    next: str | None
    """The cursor of the next page; null on the last."""


class RevokedApproval(TypedDict):
    """A rule that was deleted."""

    id: str


class PolicyCall(Struct, kw_only=True, forbid_unknown_fields=True):
    """A tool call to decide about."""

    tool: Annotated[str, Meta(min_length=1, description="The name of the tool.")]
    arguments: Annotated[Json | None, Meta(description="The arguments of the call.")] = None
    safe: Annotated[
        bool, Meta(description="Whether the tool is of the class `safe`: it changes nothing.")
    ] = False
    agent: Annotated[
        str | None, Meta(description="The agent; by default the one that answers there.")
    ] = None
    source: Annotated[
        SourceBody | None,
        Meta(description="Where the message comes from; by default the workbench."),
    ] = None


@router.get("/questions", tags=["questions"])
async def list_questions(
    context: ContextDep,
    caller: Reader,
    *,
    state: Annotated[
        QuestionFilter, Query(description="Those that wait for an answer, or all.")
    ] = QuestionFilter.OPEN,
    session_id: Annotated[str | None, Query(description="Only those of this session.")] = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> JsonAnswer[QuestionListPage]:
    """List questions.

    What turns ask people, newest first.
    """
    named = None if session_id is None else checked_name(session_id, "session")
    only_open = state is QuestionFilter.OPEN

    def look(tx: Tx) -> QuestionListPage:
        head = None if named is None else read.get_head(tx, named, profile=caller.profile)
        page = question_actions.list_questions(
            tx,
            profile=caller.profile,
            limit=limit,
            session_no=None if head is None else head.no,
            only_open=only_open,
            cursor=checked_text(cursor) or None,
        )
        items = [question_json(each) for each in page.items if each.is_open or not only_open]
        return QuestionListPage(items=items, next=page.next)

    return json_response(await context.store.read(look))


@router.get("/questions/{question_id}", tags=["questions"])
async def get_question(
    question_id: QuestionId, context: ContextDep, caller: Reader
) -> JsonAnswer[QuestionInfo]:
    """Get a question.

    With its answer, if there is one.
    """
    known = checked_name(question_id, "question")
    found = await context.store.read(question_actions.find, known, profile=caller.profile)
    return json_response(question_json(found))


@router.post("/questions/{question_id}/answer", tags=["questions"])
async def answer_question(
    question_id: QuestionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[NewAnswer],
) -> JsonAnswer[QuestionInfo]:
    """Answer a question.

    Once: the answer is 409 if it was decided before, or if its time is over. The turn goes on when its last question
    is answered. The approval of a tool call needs a login or a token with the scope `admin`: a program that may only
    write cannot approve the calls of its own agent.
    """
    known, moment = checked_name(question_id, "question"), context.moment()
    engine = engine_for(request, caller).context

    def apply(tx: Tx) -> StoredAnswer[QuestionInfo]:
        question = question_actions.find(tx, known, profile=caller.profile)
        require_approver(question, caller)
        given = read_answer(
            question,
            decision=body.decision,
            text=body.text,
            arguments=body.arguments,
            values=body.values,
            always=body.always,
        )
        decided = questions.answer(
            tx,
            question.id,
            given,
            who=Answerer(WEB, caller.person, is_owner=True),
            context=engine,
            moment=moment,
        )
        # What is too late expires, which must not be undone by refusing the answer here.
        status = 409 if decided.state is QuestionState.EXPIRED else 200
        return answer(question_json(decided), status, session_id=decided.session_id)

    response = await change(request, caller, apply)
    if response.status_code == 409:
        expired: QuestionInfo = decode(bytes(response.body))
        raise Conflict(f"{expired['outcome']} Nothing was changed.")
    return response


@router.get("/policy/approvals", tags=["policy"])
async def list_approvals(
    context: ContextDep, caller: Admin, *, limit: LimitQuery = 50, cursor: CursorQuery = None
) -> JsonAnswer[ApprovalListPage]:
    """List standing approvals.

    The rules that people have made with their answers, newest first: a tool needs no approval in a session, or for a
    person.
    """
    page = await context.store.read(
        question_actions.list_approvals,
        profile=caller.profile,
        limit=limit,
        cursor=checked_text(cursor) or None,
    )
    items = [approval_json(each) for each in page.items]
    return json_response(ApprovalListPage(items=items, next=page.next))


@router.delete("/policy/approvals/{approval_id}", tags=["policy"])
async def revoke_approval(
    approval_id: Annotated[str, Path(description="The rule's id.")],
    request: Request,
    caller: Admin,
) -> JsonAnswer[RevokedApproval]:
    """Revoke a standing approval.

    From now on the tool needs an approval again.
    """
    known = checked_name(approval_id, "standing approval")

    def apply(tx: Tx) -> StoredAnswer[RevokedApproval]:
        question_actions.revoke_approval(tx, known, profile=caller.profile)
        return answer(RevokedApproval(id=known))

    return await change(request, caller, apply)


@router.post("/policy/explain", tags=["policy"])
async def explain_policy(
    request: Request, context: ContextDep, caller: Admin, body: FromBody[PolicyCall]
) -> JsonAnswer[CallExplanation]:
    """Explain what happens to a tool call.

    Which rule of the settings, or which standing approval for the chat's session or the person, decides, and who is
    asked. Nothing is called or changed.
    """
    engine = engine_for(request, caller).context
    source = source_of({"platform": WEB} if body.source is None else body.source)
    tool, agent = checked_text(body.tool, 200) or "", checked_text(body.agent, 200)

    call = ProposedCall(tool, body.arguments or {}, body.safe)
    explained = await context.store.read(explain_call, call, source, context=engine, agent=agent)
    return json_response(explained)
