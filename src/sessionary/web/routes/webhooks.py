"""`/channels/{name}/webhook`: a path for each channel that gets its messages by webhook."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.engine.ports import Challenge, Webhook
from sessionary.web.context import PREFIX
from sessionary.web.openapi import PUBLIC, response_content
from sessionary.web.requests import read_raw
from sessionary.web.routing import api_router

MAX_CHALLENGE = 1024
_BODY = {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}


def router_for(name: str, webhook: Webhook, challenge: Challenge | None = None) -> APIRouter:
    """The path of one adapter, which checks the signature before it reads the body further."""
    router = api_router(prefix=PREFIX, tags=["channels"])

    @router.post(
        f"/channels/{name}/webhook",
        openapi_extra=PUBLIC | {"x-signed": True, "requestBody": _BODY},
        operation_id=f"receive_{name}_webhook",
        response_class=Response,
        responses=response_content(
            "text/plain", description="Received, or the answer to a challenge."
        ),
    )
    async def receive(request: Request) -> Response:
        """Receive a message from a platform.

        The channel checks the signature before it reads the message, which is durable when this answers.
        """
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
        operation_id=f"confirm_{name}_webhook",
        response_class=Response,
        responses=response_content("text/plain", description="The answer to the challenge."),
    )
    async def prove(request: Request) -> Response:
        """Confirm a webhook.

        Answers the platform's challenge, if it knows the secret that was agreed on.
        """
        answer = challenge(dict(request.query_params))
        if answer is None or len(answer) > MAX_CHALLENGE:
            return Response(status_code=403)
        return Response(answer, media_type="text/plain")

    return router
