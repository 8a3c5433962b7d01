"""Routes whose signatures say everything: a handler's body, parameters and answer are its annotations.

`async def rename(caller: Writer, body: FromBody[NewTitle]) -> JsonAnswer[SessionSummary]` reads a `NewTitle` after the
caller was admitted, and the description of the interface shows both types.
"""

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.responses import Response

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
        self.answer_types = _declared(
            signature.return_annotation, JsonAnswer, self.status_code or 200
        )
        self.event_types = _declared(signature.return_annotation, Streamed, 200)


def api_router(**options: Any) -> APIRouter:
    """A router of such routes."""
    return APIRouter(
        route_class=ApiRoute, generate_unique_id_function=lambda route: route.name, **options
    )


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
