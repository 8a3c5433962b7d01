"""`/v1/responses`: an answer of an agent, kept and found again by its id.

A response is made from the log each time: its id leads to the message that asked for it, and this to its turn. So it is
the same whichever process answers, and whichever process has run the turn, or goes on with it after a crash.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace
from starlette.responses import Response

from sessionary.actions import turns
from sessionary.actions.sessions import read
from sessionary.engine import exchange as engine_exchange
from sessionary.engine.context import EngineContext
from sessionary.engine.exchange import AfterEntry, BegunExchange, ExchangeProgress, NamedSession
from sessionary.engine.turn import loop
from sessionary.formats.coerce import Json
from sessionary.formats.message_input import MessageInput
from sessionary.formats.openai_responses import TurnItems, entry_items
from sessionary.model import codec
from sessionary.model.message import Entry, Message, Role, Text
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.model.source import SessionKey
from sessionary.model.transcript import RECORD
from sessionary.model.turn import Arrival, Turn, TurnState
from sessionary.model.turn_answer import SEPARATOR
from sessionary.model.turn_options import AwaitedRequest, TurnOptions, awaited, awaited_by
from sessionary.model.usage import UsageTotal
from sessionary.model.view import question_json
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, sessions
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import Caller, WebContext
from sessionary.web.openai.conversations import (
    conversation_name,
    find_conversation,
    named_session,
)
from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.exchange import (
    SESSION_HEADER,
    Exchange,
    ExchangeRequest,
    ExchangeResult,
    RequestFacts,
    StreamedAnswer,
    begin_exchange,
    facts_of,
    waiting_text,
)
from sessionary.web.openai.items import MOST_ITEMS, MOST_LISTED, ItemPage, page_of, read_items
from sessionary.web.openai.models import engine_of
from sessionary.web.openai.response_events import ResponseEvents
from sessionary.web.openai.response_request import (
    ENCRYPTED,
    Repeated,
    ResponseRequest,
    read_request,
)
from sessionary.web.requests import read_json
from sessionary.web.responses import StoredAnswer, answer, change, json_response
from sessionary.web.routing import JsonAnswer, api_router
from sessionary.web.stream import until_gone

router = api_router(prefix="/v1", include_in_schema=False)
PREFIX = "resp_"
CANCELLED = "the program has cancelled the response"
# How long a cancelled response is waited for.
_CANCEL_SECONDS = 5.0
_LONGEST_ID = 300
_PAGE = 200
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
ResponseId = Annotated[str, Path(description="The response's id.")]


class StoredRequest(Struct, frozen=True):
    """The request behind a response, and its turn: what it writes after `after_seq` is the response."""

    arrival: Arrival
    request: AwaitedRequest
    asked: Repeated
    options: TurnOptions
    turn: Turn
    session_no: int
    after_seq: int

    @property
    def id(self) -> str:
        """The id of the response."""
        return PREFIX + self.arrival.id

    @property
    def system(self) -> str:
        """The system messages that the conversation began with; they are the beginning of the instructions."""
        return self.options.instructions[: max(0, self.asked.system_length)]

    def items(self) -> TurnItems:
        """The output of the response, without anything in it yet."""
        return TurnItems(
            self.turn.id,
            tools=self.options.tool_names,
            server_label=self.turn.agent or "agent",
            with_encrypted=ENCRYPTED in self.asked.include,
        )


@router.post("/responses")
async def create_response(request: Request, context: ContextDep, caller: Writer) -> Response:
    """Ask an agent for a response."""
    asked = read_request(await read_json(request))
    facts = facts_of(request)
    messages = await read_items(context, caller, asked.input, param="input")
    if not messages or messages[-1].message.role not in (Role.USER, Role.TOOL):
        raise ApiError(
            400,
            "The last item is a message of a user, or the output of a function: an agent answers nothing else. "
            "Nothing was stored.",
            code="invalid_value",
            param="input",
        )
    place, system = await context.store.read(_find_place, asked, facts, profile=caller.profile)
    if asked.repeated.previous_response_id is None and asked.conversation is None:
        system, messages = _split_system(messages)
    options, repeated = asked.options, asked.repeated
    if system:
        instructions = SEPARATOR.join(filter(None, (system, options.instructions)))
        options = replace(options, instructions=instructions)
        repeated = replace(repeated, system_length=len(system))
    wanted = ExchangeRequest(
        caller=caller,
        model=repeated.model,
        messages=tuple(messages),
        place=place,
        options=options,
        person=asked.person,
        idempotency_key=facts.idempotency_key,
        fingerprint=facts.fingerprint,
        is_retry=facts.is_retry,
        asked=to_builtins(repeated),
        is_background=repeated.background,
        output_param="text.format",
    )
    exchange = await begin_exchange(request, wanted)
    try:
        stored = await context.store.read(
            _find, exchange.begun.arrival_id, profile=caller.profile, also_not_stored=True
        )
        if asked.is_streamed:
            return _streamed(exchange, stored)
        if repeated.background:
            progress = await _read_progress(context, caller, stored)
            body = response_json(stored, progress)
        else:
            result = await exchange.result()
            result.check()
            body = response_json(stored, _progress_of(result))
    except BaseException:
        await exchange.close()
        raise
    await exchange.close()
    answered = json_response(body)
    answered.headers.update(exchange.headers)
    return answered


@router.get("/responses/{response_id}")
async def get_response(
    response_id: ResponseId,
    request: Request,
    context: ContextDep,
    caller: Reader,
    *,
    stream: Annotated[bool, Query()] = False,
    starting_after: Annotated[int | None, Query()] = None,
) -> Response:
    """Get a response, finished or not; with `stream` as events, from its beginning."""
    if starting_after is not None:
        raise ApiError(
            400,
            "The events of a response are not numbered for ever: stream it from its beginning, without "
            "`starting_after`.",
            code="unsupported_parameter",
            param="starting_after",
        )
    id = response_id[:_LONGEST_ID]
    if stream:
        stored = await context.store.read(_find, id, profile=caller.profile)
        return _streamed(_followed(request, context, caller, stored), stored)
    stored, progress = await context.store.read(_find_with_progress, id, profile=caller.profile)
    return json_response(response_json(stored, progress))


@router.post("/responses/{response_id}/cancel")
async def cancel_response(
    response_id: ResponseId, context: ContextDep, caller: Writer
) -> JsonAnswer[Json]:
    """Stop the turn of a response, in whichever process it runs; what was written stays."""
    id, engine = response_id[:_LONGEST_ID], engine_of(context, caller)
    await context.store.write(_cancel, id, context=engine.context, profile=caller.profile)
    until = time.monotonic() + _CANCEL_SECONDS
    pause = 0.02
    while True:
        stored, progress = await context.store.read(_find_with_progress, id, profile=caller.profile)
        if stored.turn.is_over or time.monotonic() > until:
            return json_response(response_json(stored, progress))
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.5)


@router.delete("/responses/{response_id}")
async def delete_response(
    response_id: ResponseId, request: Request, caller: Writer
) -> JsonAnswer[Json]:
    """Delete a response: nobody finds it by its id any more. The conversation keeps what was said."""

    def apply(tx: Tx) -> StoredAnswer[Json]:
        found = _find(tx, response_id[:_LONGEST_ID], profile=caller.profile)
        asked = to_builtins(replace(found.asked, store=False))
        hidden = replace(found.request, asked=asked)
        arrivals.set_source(tx, found.arrival, awaited(found.arrival.source, hidden))
        return answer({"id": found.id, "object": "response", "deleted": True})

    return await change(request, caller, apply)


@router.get("/responses/{response_id}/input_items")
async def list_input_items(
    response_id: ResponseId,
    context: ContextDep,
    caller: Reader,
    after: Annotated[str | None, Query(max_length=_LONGEST_ID)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 20,
    order: Annotated[Literal["asc", "desc"], Query()] = "desc",
) -> JsonAnswer[ItemPage]:
    """List what was sent for a response, the newest first."""

    def look(tx: Tx) -> list[Json]:
        return _input_items(tx, _find(tx, response_id[:_LONGEST_ID], profile=caller.profile))

    items = await context.store.read(look)
    if order == "desc":
        items.reverse()
    place = 0
    if after is not None:
        ids = [each["id"] for each in items]
        if after not in ids:
            raise ApiError(404, f"There is no item {after[:80]!a} in this list.", param="after")
        place = ids.index(after) + 1
    return json_response(page_of(items[place : place + limit], has_more=len(items) > place + limit))


def _find(
    tx: Tx, id: str, *, profile: str, also_not_stored: bool = False, param: str = "response_id"
) -> StoredRequest:
    """Find the request behind a response; refuse one that was not to be stored."""
    stored = _find_request(tx, id, profile=profile)
    if stored is not None and (stored.asked.store or also_not_stored):
        return stored
    if param == "previous_response_id":
        raise ApiError(
            400,
            f"There is no response {id[:80]!a} to go on from; nothing was stored.",
            code="previous_response_not_found",
            param=param,
        )
    raise ApiError(404, f"There is no response {id[:80]!a}.", code="not_found", param=param)


def _find_request(tx: Tx, id: str, *, profile: str) -> StoredRequest | None:
    arrival = arrivals.get(tx, codec.storable_text(id.removeprefix(PREFIX)), profile=profile)
    request = None if arrival is None else awaited_by(arrival.source)
    if arrival is None or request is None:
        return None
    try:
        asked = convert(request.asked, Repeated)
    except ValidationError:  # of another interface, or what somebody has sent to /arrivals
        return None
    found = engine_exchange.find_turn(tx, arrival, profile=profile)
    head = None if found is None else sessions.get_by_no(tx, found.session_no)
    if found is None or head is None:
        return None
    if head.folder is SessionFolder.GONE or head.trashed_at is not None:
        return None
    options = TurnOptions()
    if request.options is not None:
        options = turns.read_options(tx, request.options, session_no=head.no)
    return StoredRequest(
        arrival, request, asked, options, found.turn, found.session_no, found.after_seq
    )


def _find_with_progress(tx: Tx, id: str, *, profile: str) -> tuple[StoredRequest, ExchangeProgress]:
    stored = _find(tx, id, profile=profile)
    return stored, _progress(tx, stored, profile=profile)


def _progress(tx: Tx, stored: StoredRequest, *, profile: str) -> ExchangeProgress:
    progress = engine_exchange.read_progress(
        tx, stored.turn.id, after=stored.after_seq, profile=profile
    )
    assert progress is not None, "the turn was found on the same snapshot"
    return progress


async def _read_progress(
    context: WebContext, caller: Caller, stored: StoredRequest
) -> ExchangeProgress:
    return await context.store.read(_progress, stored, profile=caller.profile)


def _find_place(
    tx: Tx, asked: ResponseRequest, facts: RequestFacts, *, profile: str
) -> tuple[NamedSession | AfterEntry | None, str]:
    """Where a request goes on: after a response, in a conversation, in a session that it names, or where it may be
    recognised. With it, the system messages that the conversation began with, if it goes on after a response.
    """
    previous = asked.repeated.previous_response_id
    if previous is not None:
        stored = _find(tx, previous[:_LONGEST_ID], profile=profile, param="previous_response_id")
        progress = _progress(tx, stored, profile=profile)
        last = max((each.seq for each in progress.written), default=stored.after_seq)
        is_running = progress.turn.state is TurnState.RUNNING
        return AfterEntry(stored.turn.session_id, last, is_running), stored.system
    if asked.conversation is not None:
        head = find_conversation(tx, asked.conversation, profile=profile, param="conversation")
        return NamedSession(head.id), ""
    named = named_session({SESSION_HEADER: facts.session, "metadata.session": asked.session})
    return (None if named is None else NamedSession(named)), ""


def _split_system(messages: Sequence[MessageInput]) -> tuple[str, list[MessageInput]]:
    """Split the system messages at the beginning of an input from the rest.

    Most clients send them with each request. They are the instructions of the turn, and no part of the log: so the
    newest ones count.
    """
    texts = []
    for each in messages:
        parts = each.message.parts
        if each.message.role is not Role.SYSTEM or not all(
            isinstance(part, Text) for part in parts
        ):
            break
        texts.append(each.message.text)
    return SEPARATOR.join(filter(None, texts)), list(messages[len(texts) :])


def _cancel(tx: Tx, id: str, *, context: EngineContext, profile: str) -> None:
    stored = _find(tx, id, profile=profile)
    head = sessions.get_by_no(tx, stored.session_no)
    if head.running_turn == stored.turn.id:
        loop.stop_turn(tx, head.no, reason=CANCELLED, context=context, moment=context.moment())


def _followed(
    request: Request, context: WebContext, caller: Caller, stored: StoredRequest
) -> Exchange:
    """Follow a turn that an earlier request has begun."""
    wanted = ExchangeRequest(
        caller=caller,
        model=stored.asked.model,
        messages=(),
        options=stored.options,
        is_background=True,
    )
    begun = BegunExchange(
        stored.arrival.id,
        stored.turn.session_id,
        stored.session_no,
        stored.turn.id,
        stored.after_seq,
        SessionKey.parse(stored.arrival.key),
    )
    gone = asyncio.ensure_future(until_gone(request.receive))
    return Exchange(request, engine_of(context, caller), wanted, begun, gone)


def _streamed(exchange: Exchange, stored: StoredRequest) -> StreamedAnswer:
    begun = _response(stored, status="in_progress")

    def finish(result: ExchangeResult) -> Json:
        return response_json(stored, _progress_of(result))

    events = ResponseEvents(stored.items(), begun, finish)
    return StreamedAnswer(exchange, events.frames, events.failure)


def _progress_of(result: ExchangeResult) -> ExchangeProgress:
    return ExchangeProgress(result.turn, result.entries, result.usage, result.questions)


def response_json(stored: StoredRequest, progress: ExchangeProgress) -> Json:
    """A response as it is now, with what its turn has written."""
    turn, items = progress.turn, stored.items()
    last = None
    for each in progress.written:
        assert isinstance(each.body, Message)
        items.add(each.body)
        last = each.body if each.body.role is Role.ASSISTANT else last
    made: Json = {}
    match turn.state:
        case TurnState.RUNNING:
            status = "queued" if turn.is_released else "in_progress"
        case TurnState.WAITING:
            items.add_notice(waiting_text(progress.questions))
            status = "in_progress" if stored.asked.background else "completed"
        case TurnState.DONE:
            reason = _INCOMPLETE.get((last.finish_reason if last else None) or "")
            status = "incomplete" if reason else "completed"
            made["incomplete_details"] = {"reason": reason} if reason else None
            if reason:
                items.cut()
        case _:
            items.cut()
            status = "cancelled" if turn.stop is not None else "failed"
            if status == "failed":
                message = turn.reason or "The agent did not finish its answer."
                made["error"] = {"code": "server_error", "message": message}
    if status == "completed" and turn.ended_at is not None:
        made["completed_at"] = int(turn.ended_at.timestamp())
    if turn.is_over:
        made["usage"] = _usage(progress.usage)
    facts: Json = {
        "session_id": turn.session_id,
        "turn_id": turn.id,
        "seq": max((each.seq for each in progress.written), default=stored.after_seq),
        "state": turn.state,
    }
    if turn.state is TurnState.WAITING:
        facts["questions"] = [question_json(each) for each in progress.questions]
    made |= {"output": items.output, "sessionary": facts}
    return _response(stored, status=status) | made


def _response(stored: StoredRequest, *, status: str) -> Json:
    """A response with what its request has asked, and no output."""
    asked, options = stored.asked, stored.options
    settings = options.settings
    return {
        "id": stored.id,
        "object": "response",
        "created_at": int(stored.arrival.received_at.timestamp()),
        "status": status,
        "background": asked.background,
        "completed_at": None,
        "conversation": {"id": conversation_name(stored.turn.session_id)},
        "error": None,
        "incomplete_details": None,
        "instructions": options.instructions[len(stored.system) :].strip() or None,
        "max_output_tokens": settings.get("max_tokens"),
        "max_tool_calls": None,
        "metadata": dict(asked.metadata),
        "model": asked.model,
        "output": [],
        "parallel_tool_calls": settings.get("parallel_tool_calls", True),
        "previous_response_id": asked.previous_response_id,
        "prompt_cache_key": asked.prompt_cache_key,
        "reasoning": {"effort": asked.effort, "summary": None},
        "safety_identifier": asked.safety_identifier,
        "service_tier": "default",
        "store": asked.store,
        "temperature": settings.get("temperature"),
        "text": {"format": _format(options)},
        "tool_choice": _tool_choice(options),
        "tools": [_tool(each) for each in to_builtins(options.tools)],
        "top_logprobs": 0,
        "top_p": settings.get("top_p"),
        "truncation": asked.truncation or "disabled",
        "usage": None,
        "user": asked.user,
    }


def _format(options: TurnOptions) -> Json:
    output = options.output
    if output is None:
        return {"type": "text"}
    if output.schema is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": output.name or "answer",
        "description": output.description,
        "schema": dict(output.schema),
        "strict": output.strict,
    }


def _tool_choice(options: TurnOptions) -> str | Json:
    chosen = options.tool_choice
    if isinstance(chosen, str):
        return chosen
    return {"type": "function", "name": chosen[0]}


def _tool(tool: Json) -> Json:
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": tool.get("parameters", {}),
        "strict": tool.get("strict"),
    }


def _usage(used: UsageTotal) -> Json:
    # OpenAI counts what was read from and written to a cache as a part of the input.
    sent = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    return {
        "input_tokens": sent,
        "input_tokens_details": {
            "cached_tokens": used.cache_read_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": sent + used.output_tokens,
    }


def _input_items(tx: Tx, stored: StoredRequest) -> list[Json]:
    """What was sent for a response: its message, and what came before it without an answer of ours."""
    head = sessions.get_by_no(tx, stored.session_no)
    sent = list(_sent(tx, head, stored))
    if stored.system and stored.asked.previous_response_id is None:
        system = Message(Role.SYSTEM, (Text(stored.system),))
        sent.insert(0, Entry(head.id, 0, stored.arrival.received_at, system))
    return [item for each in sent for item in entry_items(each)]


def _sent(tx: Tx, head: SessionHead, stored: StoredRequest) -> Sequence[Entry]:
    arrival = stored.arrival
    if arrival.seq is None:  # it has answered a question, and is no entry of its own
        return [Entry(head.id, stored.after_seq, arrival.received_at, arrival.message)]
    found: list[Entry] = []
    before = stored.after_seq + 1
    while len(found) < MOST_ITEMS and before > 1:
        window = read.read_window(
            tx, head.id, profile=head.profile, limit=_PAGE, before=before
        ).entries
        for each in reversed(window):
            is_own = each.turn_id is None or each.turn_id == stored.turn.id
            body = each.body
            if not is_own or each.seq <= head.base_seq:
                return found[::-1]
            if isinstance(body, Message) and RECORD not in body.extra:
                found.append(each)
        if not window:
            break
        before = window[0].seq
    return found[::-1]
