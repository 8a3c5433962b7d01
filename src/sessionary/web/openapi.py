"""The description of the interface in OpenAPI: FastAPI's, with the types of bodies and answers filled in."""

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import get_original_bases, is_typeddict

from sessionary.web.auth import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY, MAX_IDEMPOTENCY_KEY
from sessionary.web.problems import MEDIA_TYPE, Problem
from sessionary.web.routing import EVENT_STREAM, JSON, ApiRoute

Json = dict[str, Any]
_REF = "#/components/schemas/{name}"
_UNSAFE = ("post", "patch", "put", "delete")
_KEY = {
    "name": IDEMPOTENCY_HEADER,
    "in": "header",
    "required": False,
    "description": "A key of your choice. A repeated request with the same key changes nothing more and gets "
    "the same answer.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_IDEMPOTENCY_KEY,
        "pattern": f"^{IDEMPOTENCY_KEY.pattern}$",
    },
}
_TAGS = {
    "arrivals": "Messages from other programs, and what became of them.",
    "sessions": "The list of sessions, and each session as a whole.",
    "conversation": "The entries of a session, its turns, and changes to its history.",
    "questions": "What turns ask people, and the answers.",
    "policy": "Which tool calls need an approval.",
    "push": "Notifications of browsers that a question came.",
    "search": "Full-text search.",
    "usage": "Tokens and cost.",
    "events": "Changes as they happen.",
    "files": "Attachments.",
    "projects": "Named groups of sessions.",
    "bindings": "The current session of each chat.",
    "schedules": "Tasks that run on a schedule.",
    "deliveries": "The outbox: replies and their delivery to platforms.",
    "access": "People who may write to the agent.",
    "tokens": "Tokens of programs.",
    "login": "Logins of browsers, and the password.",
    "export": "Sessions as files.",
    "imports": "Conversations of other tools on the server's machine.",
    "upkeep": "Backups, checks and compaction of the store.",
    "channels": "Webhooks of platforms.",
    "health": "Probes and metrics.",
}
_ANY_JSON = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}
PUBLIC = {"x-public": True, "security": []}


def response_content(
    *media_types: str, status: int = 200, description: str, binary: bool = False
) -> dict[int | str, Json]:
    """Describe an answer that is a file or text; the route also needs `response_class=Response`."""
    text = {"type": "string"} | ({"format": "binary"} if binary else {})
    content = {each: {"schema": _ANY_JSON if each == JSON else text} for each in media_types}
    return {status: {"description": description, "content": content}}


def describe(app: FastAPI) -> Json:
    """Make the whole description."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )
    operations = list(_operations(app, made))
    answers = [
        kind
        for route, _ in operations
        for kind in (*route.answer_types.values(), *route.event_types.values())
    ]
    bodies = [route.body_type for route, _ in operations if route.body_type is not None]
    answer_schemas, shapes = _answer_schemas([*answers, Problem])
    body_schemas, body_shapes = msgspec.json.schema_components(bodies, ref_template=_REF)
    fitting_answers, fitting_bodies = iter(answer_schemas), iter(body_schemas)
    for route, operation in operations:
        for status in route.answer_types:
            answer = operation["responses"].setdefault(str(status), {"description": "Accepted"})
            answer["content"] = {JSON: {"schema": next(fitting_answers)}}
        for status in route.event_types:
            stream = {"type": "string", "contentSchema": next(fitting_answers)}
            operation["responses"][str(status)]["content"] = {EVENT_STREAM: {"schema": stream}}
        if route.body_type is not None:
            content = {JSON: {"schema": next(fitting_bodies)}}
            operation["requestBody"] = {"required": route.is_body_required, "content": content}
    problem = next(fitting_answers)
    for path in made["paths"].values():
        for method, operation in path.items():
            _complete(method, operation, problem)
    components = made.setdefault("components", {})
    schemas = {**components.get("schemas", {}), **body_shapes, **shapes}
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `sessionary tokens add` or `POST /tokens`.",
        },
        "login": {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionary_PORT",
            "description": "The cookie of a browser that logged in; changes also need `X-CSRF-Token`.",
        },
    }
    made["security"] = [{"token": []}, {"login": []}]
    return made


def _operations(app: FastAPI, made: Json) -> Iterator[tuple[ApiRoute, Json]]:
    """The described routes with a type of ours, each with its operation."""
    for route in app.routes:
        if isinstance(route, ApiRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                yield route, made["paths"][route.path_format][method.lower()]


class _Untitled(GenerateJsonSchema):
    """Without a title for each field, which would only repeat its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _answer_schemas(kinds: Sequence[Any]) -> tuple[list[Json], dict[str, Json]]:
    """The schema of each type, and the named ones that they refer to."""
    # One tuple of all types is one walk through them.
    made = TypeAdapter(tuple[*kinds]).json_schema(  # type: ignore[valid-type]
        mode="serialization",
        ref_template=_REF.format(name="{model}"),
        schema_generator=_Untitled,
    )
    shapes: dict[str, Json] = made["$defs"]
    named: dict[str, Any] = {}
    for kind in kinds:
        _collect_typed_dicts(kind, named)
    for name in shapes.keys() & named.keys():
        for base in (named[name], *_bases(named[name])):
            for field, text in _field_docstrings(base.__module__).get(base.__name__, {}).items():
                shapes[name]["properties"][field].setdefault("description", text)
    return made["prefixItems"], shapes


@cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of the fields of a module's classes."""
    source = inspect.getsource(sys.modules[module])
    return {
        node.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(node.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }


def _collect_typed_dicts(kind: Any, found: dict[str, Any]) -> None:
    for each in get_args(kind):
        _collect_typed_dicts(each, found)
    if is_typeddict(kind) and kind.__name__ not in found:
        found[kind.__name__] = kind
        for each in (*get_type_hints(kind).values(), *get_original_bases(kind)):
            _collect_typed_dicts(each, found)


def _bases(kind: Any) -> Iterator[Any]:
    for base in get_original_bases(kind):
        if is_typeddict(base):
            yield base
            yield from _bases(base)


def _complete(method: str, operation: Json, problem: Json) -> None:
    """Add what every operation has: problems, and the key of a request that changes something."""
    responses = operation["responses"]
    responses.pop("422", None)
    responses["default"] = {
        "description": "A problem: what happened, and what to do.",
        "content": {MEDIA_TYPE: {"schema": problem}},
    }
    if method in _UNSAFE and not operation.get("x-public"):
        operation.setdefault("parameters", []).append(_KEY)
