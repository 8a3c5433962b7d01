"""Responses as JSON, and changes that a repeated request makes once."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import Request

from sessionary.actions import question_arrivals, requests
from sessionary.actions.requests import IdempotentRequest, StoredResponse
from sessionary.engine.engine import Engine
from sessionary.engine.intake import SubmissionResult
from sessionary.errors import BadInput, Conflict, NotAllowed, NotFound
from sessionary.model import codec
from sessionary.model.access import Scope
from sessionary.model.question import Question, QuestionKind
from sessionary.store.database import Tx
from sessionary.web.auth import context_of, idempotency_key
from sessionary.web.context import Caller
from sessionary.web.routing import Accepted, JsonAnswer

_MAX_NAME = 300
_ENCODER = msgspec.json.Encoder()


T = TypeVar("T")


class StoredAnswer(StoredResponse, Generic[T], frozen=True):
    """An answer whose JSON is a `T`, stored with its change."""


def encode(value: Any) -> bytes:
    """A value as JSON in UTF-8."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return codec.encode(value).encode("utf-8")


def json_response(value: T, status: int = 200) -> JsonAnswer[T]:
    """A value as JSON."""
    return JsonAnswer(encode(value), status)


def accepted_response(value: T) -> Accepted[T]:
    """A value as JSON, with status 202."""
    return Accepted(encode(value), 202)


def answer(value: T, status: int = 200, *, session_id: str | None = None) -> StoredAnswer[T]:
    """An answer to be stored with its change."""
    return StoredAnswer(status, codec.encode(value), session_id)


async def change(
    request: Request, caller: Caller, apply: Callable[[Tx], StoredAnswer[T]]
) -> JsonAnswer[T]:
    """Make a change; the same request with the same idempotency key makes it once.

    `apply` runs in the transaction that stores its answer.
    """
    context = context_of(request)
    done = await context.store.write(
        requests.run_once,
        repeatable(request),
        apply,
        profile=caller.profile,
        now=context.clock.now(),
    )
    return JsonAnswer(done.body.encode("utf-8"), done.status)


def repeatable(request: Request) -> IdempotentRequest | None:
    """The request's idempotency key with a hash of the request; None without a key."""
    key = stored_idempotency_key(request)
    if key is None:
        return None
    target = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    raw: bytes = getattr(request.state, "raw", b"")
    return IdempotentRequest(key, hashlib.sha256(target + raw).hexdigest())


def stored_idempotency_key(request: Request) -> str | None:
    """The idempotency key as it is stored."""
    key = idempotency_key(request)
    return None if key is None else f"http/{key}"


def checked_name(text: str, what: str) -> str:
    """An id or a name from a path; one that cannot be stored cannot exist."""
    if len(text) > _MAX_NAME or codec.storable_text(text) != text:
        raise NotFound(f"There is no such {what}.")
    return text


def checked_text(text: str | None, most: int = 4000) -> str | None:
    """A short text of a request; characters that cannot be stored are replaced."""
    if text is not None and len(text) > most:
        raise BadInput(f"Too long: {text[:20]!a}… has {len(text):,} characters; {most:,} at most.")
    return None if text is None else codec.storable_text(text)


def engine_for(request: Request, caller: Caller) -> Engine:
    """The engine that serves this caller's profile."""
    engine = context_of(request).engine
    if engine is None or engine.context.profile != caller.profile:
        raise Conflict("No agent is attached here; nothing was written.")
    return engine


def require_approver(question: Question, caller: Caller) -> None:
    """Refuse the answer of a caller to a question that only owners may answer: whether a tool may be called."""
    if question.asked.kind is QuestionKind.APPROVAL and not caller.may_approve:
        raise NotAllowed(
            "A tool call is approved or denied in the workbench, or with a token of the scope "
            f"{Scope.ADMIN}; this one has {caller.scope}, so that a program cannot approve the calls of its own "
            "agent. Nothing was changed."
        )


async def accepted(
    request: Request,
    caller: Caller,
    take: Callable[[Tx], SubmissionResult],
    tell: Callable[[SubmissionResult, str | None], T],
) -> Accepted[T]:
    """Store a message, answer once it is durable, and let the engine run its turn.

    `tell` is given the result, and the id of the question that the message has answered, if it has.
    """
    engine = engine_for(request, caller)
    taken: list[SubmissionResult] = []

    def apply(tx: Tx) -> StoredAnswer[T]:
        taken[:] = [take(tx)]
        question = _answered_question(tx, taken[0], profile=caller.profile)
        if question is not None:
            require_approver(question, caller)
        question_id = None if question is None else question.id
        # A command's answer may quote its session, so it is deleted with it.
        about = taken[0].session_id or taken[0].current_session_id
        return answer(tell(taken[0], question_id), 202, session_id=about)

    async def finish() -> Accepted[T]:
        response = await change(request, caller, apply)
        for each in taken:
            engine.run_submitted(each)
        return Accepted(response.body, response.status_code)

    # If the caller disconnects meanwhile, the turn that was begun must still run.
    return await asyncio.shield(asyncio.ensure_future(finish()))


def _answered_question(tx: Tx, result: SubmissionResult, *, profile: str) -> Question | None:
    """The question that a message was taken as the answer to."""
    received = result.received
    if not received.is_answer or received.arrival_id is None:
        return None
    return question_arrivals.get_answered(tx, received.arrival_id, profile=profile)
