"""Messages that go to the agent: durable and answered, then run by the engine."""

import asyncio
from collections.abc import Callable

from fastapi import Request
from starlette.responses import Response

from sessionary.actions.requests import StoredResponse
from sessionary.engine.asking import Accepted
from sessionary.engine.engine import Engine
from sessionary.errors import Conflict
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change
from sessionary.web.auth import parts_of
from sessionary.web.parts import Caller


def engine_of(request: Request, caller: Caller) -> Engine:
    """The engine that serves this caller's profile."""
    engine = parts_of(request).engine
    if engine is None or engine.context.profile != caller.profile:
        raise Conflict("No agent is attached here; nothing was written.")
    return engine


async def accepted(
    request: Request,
    caller: Caller,
    raw: bytes,
    take: Callable[[Tx], Accepted],
    tell: Callable[[Accepted], dict[str, object]],
) -> Response:
    """Take a message in, answer once it is durable, and let the engine carry on."""
    engine = engine_of(request, caller)
    taken: list[Accepted] = []

    def act(tx: Tx, /) -> StoredResponse:
        taken[:] = [take(tx)]
        # Also the answer to a command goes when the session goes that it may speak of.
        about = taken[0].session_id or taken[0].current_session_id
        return answer(tell(taken[0]), 202, session_id=about)

    async def finish() -> Response:
        response = await change(request, caller, raw, act)
        for each in taken:
            engine.carry_on(each)
        return response

    # A caller who goes away meanwhile must not leave a turn behind that was begun and never run.
    return await asyncio.shield(asyncio.ensure_future(finish()))
