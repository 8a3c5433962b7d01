"""The description of the interface: what each path takes and gives, in OpenAPI's words."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec import Struct

from sessionary.web import requests
from sessionary.web.auth import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY, MAX_IDEMPOTENCY_KEY
from sessionary.web.problems import MEDIA_TYPE

_REF = "#/components/schemas/{name}"
_BODIES = [
    each
    for each in vars(requests).values()
    if isinstance(each, type) and issubclass(each, Struct) and each is not Struct
]
_UNSAFE = ("post", "patch", "put", "delete")
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "committed": {"enum": ["no", "unknown"]},
        "candidates": {"type": "array", "items": {"type": "string"}},
    },
}
_KEY = {
    "name": IDEMPOTENCY_HEADER,
    "in": "header",
    "required": False,
    "description": "The same request with the same key is done once and answered alike.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_IDEMPOTENCY_KEY,
        "pattern": f"^{IDEMPOTENCY_KEY.pattern}$",
    },
}
PUBLIC = {"x-public": True, "security": []}


def request_body(kind: type[Struct], *, required: bool = True) -> dict[str, Any]:
    """What to tell the description of a path that reads a body by itself."""
    schema = {"$ref": _REF.format(name=kind.__name__)}
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}
    }


def response_content(*media_types: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What to tell the description of a path that answers with something else than JSON.

    The path also needs `response_class=Response`, so that JSON is not described besides.
    """
    content = {each: {"schema": {"type": "string"}} for each in media_types}
    return {status: {"description": "Successful Response", "content": content}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description."""
    made = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    _, shapes = msgspec.json.schema_components(_BODIES, ref_template=_REF)
    components = made.setdefault("components", {})
    components.setdefault("schemas", {}).update({**shapes, "Problem": _PROBLEM})
    components["schemas"].pop("HTTPValidationError", None)
    components["schemas"].pop("ValidationError", None)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "login": {"type": "apiKey", "in": "cookie", "name": "sessionary_PORT"},
    }
    made["security"] = [{"token": []}, {"login": []}]
    for path in made["paths"].values():
        for method, operation in path.items():
            _complete(method, operation)
    return made


def _complete(method: str, operation: dict[str, Any]) -> None:
    """What every path has in common: problems, and the key of a request that changes something."""
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}}
    responses = operation.setdefault("responses", {})
    responses.pop("422", None)
    responses["default"] = {"description": "A problem.", **problem}
    if method in _UNSAFE and not operation.get("x-public"):
        operation.setdefault("parameters", []).append(_KEY)
