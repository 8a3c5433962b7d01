"""How settings are declared.

A table of sessionary.toml is a dataclass (a plug-in may also use a msgspec Struct). Each field that is a setting has a
`Setting` in its `Annotated` type, with the help text and the bounds:

    turn_seconds: Annotated[float, Setting("a turn that takes longer is ended", gt=0)] = 900.0

The reader, the example file, docs/settings.md and the forms of the workbench are all made from these declarations. This
module is loaded by every command, so it must stay cheap; msgspec alone would take longer than listing sessions.
"""

from collections.abc import Callable, Mapping
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


class Setting:
    """The help text and the bounds of one setting. A field without a `Setting` is not read from the file.

    `name` is the name in the file, if it is not the field's; `example` is shown where there is no default to show.
    """

    __slots__ = ("description", "example", "ge", "gt", "le", "name")

    def __init__(
        self,
        description: str,
        *,
        name: str | None = None,
        example: Any = None,
        gt: float | None = None,
        ge: float | None = None,
        le: float | None = None,
    ) -> None:
        self.description = description
        self.name = name
        self.example = example
        self.gt = gt
        self.ge = ge
        self.le = le


class ValueKind:
    """A kind of value that is written in the file as something else, such as a time zone as a text.

    `parse` raises ValueError if a value is not `wanted`; `write` is its inverse; `schema` describes what is written.
    """

    __slots__ = ("parse", "schema", "short", "wanted", "write")

    def __init__(
        self,
        wanted: str,
        parse: Callable[[Any], Any],
        *,
        write: Callable[[Any], Any] = str,
        short: str = "text",
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.wanted = wanted
        self.parse = parse
        self.write = write
        self.short = short
        self.schema = {"type": "string"} if schema is None else schema


# Marks in an `Annotated` type.

# An empty text is a value of its own; elsewhere it means that the setting is not set. A secret that has this mark may
# be empty, which means that there is none.
MAY_BE_EMPTY = "may be empty"
# A secret that may also be in the file itself, because it is only a hash.
PLAIN = "may be plain"
# A text that may contain a password, such as the URL of a database; it is shown without it.
MAY_HAVE_PASSWORD = "may have a password"
# A table of tables in which settings that are missing come from the table around it.
INHERITS = "inherits"


# Kinds of values.


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name; raise ValueError if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(name) from error


def _time_of_day(text: str) -> time:
    found = time.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError(text)
    return found


def _minutes(value: Any) -> timedelta:
    return timedelta(minutes=positive(value))


def positive(value: Any) -> float:
    """Return a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(value)
    return number


def _absolute(text: str) -> Path:
    if not text.startswith("/"):
        raise ValueError(text)
    return Path(text)


def address(*schemes: str) -> ValueKind:
    """Return the kind of an address with one of these schemes; it is read without a slash at its end."""

    def parse(text: str) -> str:
        if not text.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise ValueError(text)
        return text.rstrip("/")

    wanted = f"an address that begins with {' or '.join(f'{each}://' for each in schemes)}"
    return ValueKind(wanted, parse, short="address", schema={"type": "string", "format": "uri"})


def choice(**values: Any) -> ValueKind:
    """Return the kind of a word that stands for a value."""
    words = {value: word for word, value in values.items()}
    return ValueKind(
        f"one of {', '.join(values)}",
        lambda word: values[word],
        write=lambda value: words[value],
        short=" or ".join(f'`"{word}"`' for word in values),
        schema={"type": "string", "enum": list(values)},
    )


def _one_or_more(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) and value else value
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        raise ValueError(value)
    return tuple(texts)


def scaled(wanted: str, factor: int) -> ValueKind:
    """A number of units that is kept as a whole number of smaller ones."""
    return ValueKind(
        wanted,
        lambda value: round(positive(value) * factor) or 1,
        write=lambda value: value / factor,
        short="number",
        schema={"type": "number", "exclusiveMinimum": 0},
    )


NUMBER = "a number above 0"
# About 30 years; more would overflow when it is added to a time.
MAX_SECONDS = 1_000_000_000
Seconds = Annotated[float, Setting("", gt=0, le=MAX_SECONDS)]
Zone = Annotated[
    ZoneInfo,
    ValueKind(
        "a time zone such as Europe/Berlin",
        find_zone,
        write=lambda zone: zone.key,
        short="time zone",
    ),
]
TimeOfDay = Annotated[
    time,
    ValueKind(
        "a time of day such as 04:00, without a zone",
        _time_of_day,
        write=lambda moment: moment.isoformat("minutes"),
        short="time of day",
        schema={"type": "string", "format": "time"},
    ),
]
Minutes = Annotated[
    timedelta,
    ValueKind(
        NUMBER,
        _minutes,
        write=lambda span: span.total_seconds() / 60,
        short="number",
        schema={"type": "number", "exclusiveMinimum": 0},
    ),
]
AbsolutePath = Annotated[Path, ValueKind("an absolute path", _absolute, short="path")]
Microusd = Annotated[int, scaled(NUMBER, 1_000_000)]
# Values of any type, as texts: environment variables, headers.
TextTable = Annotated[
    Mapping[str, str],
    ValueKind(
        "a table",
        lambda table: {name: str(value) for name, value in table.items()},
        write=dict,
        short="table",
        schema={"type": "object", "additionalProperties": {"type": "string"}},
    ),
]
# A list of texts; a single text is a list of one.
Texts = Annotated[
    tuple[str, ...],
    ValueKind(
        "a list of texts",
        _one_or_more,
        write=list,
        short="list of texts",
        schema={"type": ["array", "string"], "items": {"type": "string"}},
    ),
]
