"""Routes whose signatures say everything: a handler's body, parameters and answer are its annotations.

`async def rename(caller: Writer, body: FromBody[NewTitle]) -> JsonAnswer[SessionSummary]` reads a `NewTitle` after the
caller was admitted, and the description of the interface shows both types.

FastAPI reads the signatures and describes the interface; it does not run the handlers. Its own way through a route
solves a tree of dependencies for each request, under two exit stacks and a second layer of error handling: a
quarter of the CPU of a request. Ours calls what the signature names, one after the other.
"""

import inspect
import types
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sessionary.web.requests import read_body

T = TypeVar("T")
B = TypeVar("B", bound=Struct)
JSON = "application/json"
EVENT_STREAM = "text/event-stream"


class JsonAnswer(Response, Generic[T]):
    """A response whose body is a `T` as JSON."""

    media_type = JSON
    # The status in the description, if it is not the one of the route.
    declared_status: ClassVar[int | None] = None


class Accepted(JsonAnswer[T]):
    """An answer with status 202, of a route that usually answers with another."""

    declared_status = 202


class Streamed(Response, Generic[T]):
    """A stream of server-sent events, each a `T`."""

    media_type = EVENT_STREAM


class _BodyMark:
    """Marks a parameter that is read from the request's body."""

    def __init__(self, *, required: bool) -> None:
        self.required = required


FromBody = Annotated[B, _BodyMark(required=True)]
FromOptionalBody = Annotated[B, _BodyMark(required=False)]


class ApiRoute(APIRoute):
    """A route that takes the types of its body and its answers from its handler's annotations."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        signature = inspect.signature(endpoint, eval_str=True)
        self.body_type: type[Struct] | None = None
        self.is_body_required = False
        parameters, bodies = [], []
        for parameter in signature.parameters.values():
            kind, marks = _split(parameter.annotation)
            mark = next((each for each in marks if isinstance(each, _BodyMark)), None)
            if mark is None:
                parameters.append(parameter)
                continue
            self.body_type, self.is_body_required = kind, mark.required
            reader: Any = Annotated[kind, Depends(_body_reader(kind))]
            bodies.append(parameter.replace(annotation=reader, kind=parameter.KEYWORD_ONLY))
        # FastAPI follows this order: the body is read when the caller is known, whatever the handler's order.
        endpoint.__signature__ = signature.replace(parameters=[*parameters, *bodies])  # type: ignore[attr-defined]
        options["response_model"] = None
        documentation = inspect.getdoc(endpoint) or ""
        options["summary"] = documentation.partition("\n")[0].rstrip(".")
        options["description"] = documentation.partition("\n")[2].strip()
        super().__init__(path, endpoint, **options)
        self.app = _application(self.dependant)
        self.answer_types = _declared(
            signature.return_annotation, JsonAnswer, self.status_code or 200
        )
        self.event_types = _declared(signature.return_annotation, Streamed, 200)


def api_router(**options: Any) -> APIRouter:
    """A router of such routes."""
    return APIRouter(
        route_class=ApiRoute, generate_unique_id_function=lambda route: route.name, **options
    )


def _application(dependant: Dependant) -> ASGIApp:
    """An application that calls a handler with what its signature names, and sends its answer.

    First the dependencies, in their order: each is a coroutine function of the request, so none is run in a thread.
    Then the parameters of the path and the query, and all their faults in one error, as FastAPI has it.
    """
    handler = dependant.call
    assert handler is not None
    needed = [(each.name, _of_request(each)) for each in dependant.dependencies]
    request_name = dependant.request_param_name
    # A plain text is in the scope as it is; anything else is validated.
    texts = [each.name for each in dependant.path_params if each.field_info.annotation is str]
    assert len(texts) == len(dependant.path_params), f"{handler}: a path has only texts"
    query, headers = dependant.query_params, dependant.header_params
    assert not dependant.body_params, f"{handler}: a body is `FromBody`"
    assert not dependant.cookie_params, f"{handler}: cookies are read from the request"

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        values: dict[str, Any] = {}
        for name, provide in needed:
            value = await provide(request)
            if name is not None:
                values[name] = value
        for name in texts:
            values[name] = scope["path_params"][name]
        if query or headers:
            found, errors = request_params_to_args(query, request.query_params)
            of_headers, more = request_params_to_args(headers, request.headers)
            if errors or more:
                raise RequestValidationError([*errors, *more])
            values |= found | of_headers
        if request_name is not None:
            values[request_name] = request
        response: Response = await handler(**values)
        await response(scope, receive, send)

    return application


def _of_request(dependant: Dependant) -> Callable[[Request], Awaitable[Any]]:
    """A dependency as a function of the request: all of ours need nothing else."""
    call = dependant.call
    assert inspect.iscoroutinefunction(call), f"{call} would be run in a thread"
    assert dependant.request_param_name is not None, f"{call} takes the request"
    assert not dependant.dependencies, f"{call} has dependencies of its own"
    provide: Callable[[Request], Awaitable[Any]] = call
    return provide


def _body_reader(kind: type[B]) -> Callable[..., Any]:
    async def body(request: Request) -> B:
        return await read_body(request, kind)

    return body


def _split(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and what `Annotated` adds to it."""
    if get_origin(annotation) is Annotated:
        kind, *marks = get_args(annotation)
        return kind, tuple(marks)
    return annotation, ()


def _declared(annotation: Any, wanted: type[Response], status: int) -> dict[int, Any]:
    """The argument of each response class of a kind in an annotation, by its status."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    found: dict[int, Any] = {}
    for each in get_args(annotation) if is_union else (annotation,):
        cls = get_origin(each)
        if isinstance(cls, type) and issubclass(cls, wanted):
            found[getattr(cls, "declared_status", None) or status] = get_args(each)[0]
    return found
