"""`/sessions/{id}/holds`: reasons not to reset a session now."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions import holds, read
from sessionary.actions.holds import Hold
from sessionary.actions.requests import StoredResponse
from sessionary.model.view import hold_json
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, items, name, plain
from sessionary.web.auth import EngineContext, Reader, Writer
from sessionary.web.bodies import NewHold, read_body
from sessionary.web.described import takes
from sessionary.web.parts import PREFIX
from sessionary.web.times import parse_time

router = APIRouter(prefix=f"{PREFIX}/sessions/{{session_id}}/holds", tags=["conversation"])


@router.get("")
async def list_holds(session_id: str, parts: EngineContext, caller: Reader) -> Response:
    """Why the session is not reset by its policy now."""
    known = name(session_id, "session")

    def look(tx: Tx) -> list[Hold]:
        head = read.head(tx, known, profile=caller.profile)
        return holds.of_session(tx, head, now=parts.clock.now())

    return items([_json(each) for each in await parts.store.read(look)])


@router.post("", status_code=201, openapi_extra=takes(NewHold))
async def hold(session_id: str, request: Request, parts: EngineContext, caller: Writer) -> Response:
    """Keep the session from being reset by its policy, until a time or until this is released.

    The same reason again sets another end.
    """
    known, moment = name(session_id, "session"), parts.moment()
    body, raw = await read_body(request, NewHold)
    until = parse_time(body.until)

    def act(tx: Tx, /) -> StoredResponse:
        made = holds.hold(
            tx, known, body.reason, profile=caller.profile, moment=moment, until=until
        )
        return answer(_json(made), 201, session_id=known)

    return await change(request, caller, raw, act)


@router.delete("")
async def release(
    session_id: str,
    request: Request,
    parts: EngineContext,
    caller: Writer,
    reason: str | None = None,
) -> Response:
    """Release the hold with this reason, or without one all of them; those that were there."""
    known, moment = name(session_id, "session"), parts.moment()
    wanted = plain(reason)

    def act(tx: Tx, /) -> StoredResponse:
        gone = holds.release(tx, known, wanted, profile=caller.profile, moment=moment)
        return answer({"items": [_json(each) for each in gone], "next": None}, session_id=known)

    return await change(request, caller, b"", act)


def _json(hold: Hold) -> dict[str, Any]:
    return hold_json(hold.reason, hold.until)
