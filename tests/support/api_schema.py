"""Checks every JSON answer of a server in the tests against its own description."""

import json
import re
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from sessionary.web import openapi
from sessionary.web.app import create_app
from sessionary.web.context import WebContext

# These keep fields that only a platform or a provider knows.
_OPEN = {
    "SourceInfo",
    "TextPart",
    "ReasoningPart",
    "ToolCallPart",
    "ToolResultPart",
    "AttachmentPart",
}
_JSON = ("application/json", "application/problem+json")


class UndeclaredAnswer(AssertionError):
    """An answer that the description does not allow."""


class ApiSchema:
    """The description of the interface, as a judge of answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas = {
            name: shape
            if name in _OPEN or "properties" not in shape
            # A field that is not declared is as wrong as one of another type.
            else {"additionalProperties": False, **shape}
            for name, shape in document["components"]["schemas"].items()
        }
        self._operations = [
            (method.upper(), re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self._validators: dict[str, Any] = {}
        self.seen: set[str] = set()

    def check(self, method: str, path: str, status: int, media_type: str, body: bytes) -> None:
        """Raise if an answer of a described operation is not as described."""
        found = [each for each in self._operations if each[0] == method and each[1].fullmatch(path)]
        if not found:
            return
        _, _, template, operation = max(found, key=lambda each: len(each[2].split("{")[0]))
        label = f"{method} {template} {status}"
        responses = operation["responses"]
        response = responses.get(str(status)) or responses["default"]
        media = media_type.partition(";")[0]
        if not body and not media:
            return
        if media not in response["content"]:
            raise UndeclaredAnswer(f"{label}: {media} is not declared")
        self.seen.add(label)
        if media not in _JSON:
            return
        schema = response["content"][media]["schema"]
        errors = self._validator(label, schema).iter_errors(json.loads(body))
        for error in errors:
            raise UndeclaredAnswer(f"{label}: {error.json_path}: {error.message[:500]}")

    def _validator(self, label: str, schema: dict[str, Any]) -> Any:
        if label not in self._validators:
            whole = {**schema, "components": {"schemas": self._schemas}}
            self._validators[label] = Draft202012Validator(whole)
        return self._validators[label]


_made: dict[tuple[str, ...], ApiSchema] = {}


def api_schema(context: WebContext) -> ApiSchema:
    """The description of a server with these webhooks; made once in a test process."""
    channels = tuple(sorted(context.webhooks))
    if channels not in _made:
        _made[channels] = ApiSchema(openapi.describe(create_app(context)))
    return _made[channels]
