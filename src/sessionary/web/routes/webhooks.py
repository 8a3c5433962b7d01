"""`/channels/{name}/webhook`: there only when an adapter stands behind it."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.engine.ports import Challenge, Webhook
from sessionary.web.context import PREFIX
from sessionary.web.openapi import PUBLIC, response_content
from sessionary.web.requests import read_raw

MAX_CHALLENGE = 1024


def router_for(name: str, webhook: Webhook, challenge: Challenge | None = None) -> APIRouter:
    """The path of one adapter, which checks the signature before it reads the body further."""
    router = APIRouter(prefix=PREFIX, tags=["channels"])

    @router.post(
        f"/channels/{name}/webhook",
        openapi_extra=PUBLIC | {"x-signed": True},
        response_class=Response,
        responses=response_content("text/plain"),
    )
    async def receive(request: Request) -> Response:
        """Take a platform's message in; durable when this answers."""
        raw = await read_raw(request)
        answer = await webhook(dict(request.headers), raw)
        if isinstance(answer, int):
            return Response(status_code=answer)
        return Response(answer[:MAX_CHALLENGE], media_type="text/plain")

    if challenge is None:
        return router

    @router.get(
        f"/channels/{name}/webhook",
        openapi_extra=PUBLIC | {"x-signed": True},
        response_class=Response,
        responses=response_content("text/plain"),
    )
    async def prove(request: Request) -> Response:
        """Prove to a platform that this address is ours, if it knows the word that we agreed on."""
        answer = challenge(dict(request.query_params))
        if answer is None or len(answer) > MAX_CHALLENGE:
            return Response(status_code=403)
        return Response(answer, media_type="text/plain")

    return router
