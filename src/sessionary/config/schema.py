"""Describes declared settings to others: as JSON Schema for forms, and as they are written in TOML."""

import json
from collections.abc import Mapping
from typing import Any

from sessionary.config.reader import MISSING, Declared, Shape, describe, settings_of
from sessionary.config.secret import Secret
from sessionary.config.setting import INHERITS, MAX_SECONDS, MAY_HAVE_PASSWORD, PLAIN

Json = dict[str, Any]
# In the schema of a setting that refers to a secret, or may contain one: the secret's name.
SECRET = "x-secret"


def table_schema(table: type[Any], *, has_defaults: bool = True) -> Json:
    """Return the JSON Schema of a declared table: titles, help, defaults, bounds, and which settings are secrets."""
    properties: Json = {}
    required: list[str] = []
    secrets: list[Json] = []
    for each in settings_of(table):
        if each.is_secret:
            properties |= _secret_schemas(each)
            if each.default is MISSING:
                secrets.append({"anyOf": [{"required": [name]} for name in each.names]})
            continue
        properties[each.name] = _setting_schema(each, has_default=has_defaults)
        if each.default is MISSING:
            required.append(each.name)
    schema: Json = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    if secrets:
        schema["allOf"] = secrets
    return schema


def _setting_schema(declared: Declared, *, has_default: bool) -> Json:
    schema = _shape_schema(declared.shape)
    schema |= {"title": title(declared.name), "description": declared.description}
    default = declared.default
    if (
        has_default
        and default is not MISSING
        and default is not None
        and "properties" not in schema
    ):
        schema["default"] = written(declared.shape, default)
    if MAY_HAVE_PASSWORD in declared.shape.marks:
        schema |= {SECRET: declared.name, "writeOnly": True}
    if declared.example is not None:
        schema["examples"] = [declared.example]
    return schema


def _secret_schemas(declared: Declared) -> Json:
    suffixes = {"_env": "environment variable", "_file": "file", "": "value"}
    return {
        f"{declared.name}{suffix}": {
            "type": "string",
            "title": f"{title(declared.name)}: {what}",
            "description": declared.description,
            SECRET: declared.name,
            **({"writeOnly": True} if not suffix else {}),
        }
        for suffix, what in suffixes.items()
        if f"{declared.name}{suffix}" in declared.names
    }


def _shape_schema(shape: Shape) -> Json:
    if shape.kind is not None:
        return dict(shape.kind.schema)
    if shape.choices is not None:
        return {"type": "string", "enum": list(shape.choices)}
    if shape.is_number:
        schema: Json = {"type": "integer" if shape.type is int else "number"}
        bounds = {"exclusiveMinimum": shape.gt, "minimum": shape.ge, "maximum": shape.le}
        return schema | {name: each for name, each in bounds.items() if each is not None}
    if shape.is_table:
        return table_schema(shape.type)
    if shape.type in (tuple, frozenset, list):
        assert shape.item is not None
        schema = {"type": "array", "items": _shape_schema(shape.item)}
        return schema | ({"uniqueItems": True} if shape.type is frozenset else {})
    if isinstance(shape.type, type) and issubclass(shape.type, Mapping):
        item = shape.item
        inherits = INHERITS in shape.marks
        if item is not None and item.is_table:
            within = table_schema(item.type, has_defaults=not inherits)
            return {"type": "object", "additionalProperties": within}
        return {"type": "object"}
    return {"type": "boolean"} if shape.type is bool else {"type": "string"}


def title(name: str) -> str:
    """Return the name of a setting as people read it: "turn_seconds" is "Turn seconds"."""
    text = name.replace("_", " ")
    for short in ("url", "id", "mb", "usd", "api", "mcp", "imap", "smtp"):
        text = " ".join(word.upper() if word == short else word for word in text.split(" "))
    return text[:1].upper() + text[1:]


def written(shape: Shape, value: Any) -> Any:
    """Return a value as it is written in the file: the inverse of reading it."""
    if isinstance(value, Secret):
        raise TypeError("a secret is never written")
    if shape.kind is not None:
        found = shape.kind.write(value)
        return int(found) if isinstance(found, float) and found.is_integer() else found
    if shape.choices is not None:
        return next(word for word, each in shape.choices.items() if each == value)
    if shape.is_table:
        return written_table(value)
    if shape.item is not None and isinstance(value, Mapping):
        return {name: written(shape.item, each) for name, each in value.items()}
    if shape.item is not None:
        items = [written(shape.item, each) for each in value]
        return sorted(items) if isinstance(value, frozenset) else items
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written_table(table: object) -> Json:
    """Return a table as it is written in the file, without what is not set and without secrets."""
    found: Json = {}
    for each in settings_of(type(table)):
        value = getattr(table, each.attribute)
        if value is not None and not each.is_secret:
            found[each.name] = written(each.shape, value)
    return found


def toml(value: Any) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(name)} = {toml(each)}" for name, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    # A JSON text is a TOML text, except for surrogate pairs and DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else toml(name)


def type_text(declared: Declared) -> str:
    """Return the type of a setting in a few words, for the reference page."""
    shape = declared.shape
    if declared.is_secret:
        return "name of a variable, path of a file" + (", text" if PLAIN in shape.marks else "")
    if shape.kind is not None:
        return shape.kind.short
    if shape.choices is not None:
        return ", ".join(f'`"{each}"`' for each in shape.choices)
    if shape.item is not None and shape.item.is_table:
        return "list of tables" if shape.type is tuple else "tables by name"
    if shape.item is not None and shape.type in (tuple, frozenset, list):
        return "list of texts"
    text = describe(shape).removeprefix("a ")
    is_bounded = shape.is_number and shape.le is not None and shape.le < MAX_SECONDS
    return f"{text}, at most {toml(int(shape.le or 0))}" if is_bounded else text
