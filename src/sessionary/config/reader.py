"""Reads a table of sessionary.toml as the class that declares it.

Every error is one line that names the file, the table and the setting, says what is allowed, and does not repeat what
may be a secret.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sessionary.config.secret import SECRET_NAME, Secret
from sessionary.config.setting import INHERITS, MAY_BE_EMPTY, PLAIN, ValueKind
from sessionary.errors import BadInput

T = TypeVar("T")
MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()


class Shape:
    """The type of a setting, without `Annotated` and `None`."""

    __slots__ = ("choices", "ge", "gt", "item", "kind", "le", "marks", "type")

    def __init__(self, hint: Any) -> None:
        self.kind: ValueKind | None = None
        self.gt: float | None = None
        self.ge: float | None = None
        self.le: float | None = None
        self.marks: list[Any] = []
        while True:
            if get_origin(hint) is Annotated:
                hint, *marks = get_args(hint)
                self.marks += marks
            elif get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
                hint = Union[tuple(each for each in get_args(hint) if each is not type(None))]  # noqa: UP007
            else:
                break
        for mark in self.marks:
            if isinstance(mark, ValueKind):
                self.kind = mark
            for bound in ("gt", "ge", "le"):
                value = getattr(mark, bound, None)
                if value is not None:
                    setattr(self, bound, value)
        self.type: Any = get_origin(hint) or hint
        self.item: Shape | None = None
        self.choices: dict[str, Any] | None = None
        if self.type is Literal:
            self.choices = {str(each): each for each in get_args(hint)}
        elif isinstance(hint, type) and issubclass(hint, Enum):
            self.choices = {str(each.value): each for each in hint}
        elif self.type in (tuple, frozenset, list):
            self.item = Shape(get_args(hint)[0])
        elif isinstance(self.type, type) and issubclass(self.type, Mapping) and get_args(hint):
            self.item = Shape(get_args(hint)[1])

    @property
    def is_table(self) -> bool:
        """Whether it is a declared table."""
        return hasattr(self.type, "__dataclass_fields__") or hasattr(self.type, "__struct_fields__")

    @property
    def is_text(self) -> bool:
        """Whether it is written as a text."""
        if self.kind is not None:
            return self.kind.schema.get("type") == "string"
        return self.type is str or self.choices is not None

    @property
    def is_number(self) -> bool:
        """Whether it is written as a number."""
        return self.kind is None and self.type in (int, float)


class Declared:
    """One declared setting of a table."""

    __slots__ = ("attribute", "default", "description", "example", "name", "shape")

    def __init__(self, attribute: str, hint: Any, default: Any, *, name: str | None = None) -> None:
        self.attribute = attribute
        self.shape = Shape(hint)
        self.default = default
        self.name = name or attribute
        self.description: str | None = None
        self.example: Any = None
        for mark in self.shape.marks:
            self.name = getattr(mark, "name", None) or self.name
            self.description = getattr(mark, "description", None) or self.description
            self.example = getattr(mark, "example", None) or self.example
            # msgspec.Meta has a list of them.
            examples = getattr(mark, "examples", None)
            self.example = examples[0] if examples else self.example

    @property
    def is_secret(self) -> bool:
        """Whether it is a secret, which the file only refers to."""
        return self.shape.type is Secret

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which it is written in the file."""
        if not self.is_secret:
            return (self.name,)
        referring = (f"{self.name}_env", f"{self.name}_file")
        return (self.name, *referring) if PLAIN in self.shape.marks else referring


def settings_of(table: type[Any]) -> tuple[Declared, ...]:
    """Return the settings that a dataclass or a msgspec Struct declares: the required ones first, then in order."""
    found = _known.get(table)
    if found is None:
        found = _known[table] = _settings_of(table)
    return found


_known: dict[type[Any], tuple[Declared, ...]] = {}


def _settings_of(table: type[Any]) -> tuple[Declared, ...]:
    fields: Collection[Any]
    none: object
    each: Any
    if hasattr(table, "__struct_fields__"):
        import msgspec  # loaded already, by the module that declares the Struct

        fields, none = msgspec.structs.fields(table), msgspec.NODEFAULT
    else:
        fields, none = dataclasses.fields(table), dataclasses.MISSING
    hints = get_type_hints(table, include_extras=True)
    found = []
    for each in fields:
        default = MISSING if each.default is none else each.default
        if each.default_factory is not none:
            default = each.default_factory()
        name = getattr(each, "encode_name", None)  # a Struct's field may have another name
        found.append(Declared(each.name, hints[each.name], default, name=name))
    settings = [each for each in found if each.description is not None]
    return tuple(sorted(settings, key=lambda each: each.default is not MISSING))


class Place:
    """Where in the file a table is, for messages."""

    __slots__ = ("file", "table")

    def __init__(self, file: str, table: str = "") -> None:
        self.file = file
        self.table = table

    def __str__(self) -> str:
        return f"{self.file} [{self.table}]" if self.table else self.file

    def below(self, name: str) -> "Place":
        """Return the place of a table within this one."""
        quoted = name if _is_bare(name) else f'"{repr(_cut(name))[1:-1]}"'
        return Place(self.file, f"{self.table}.{quoted}" if self.table else quoted)


def read(
    table: type[T],
    values: Mapping[str, Any],
    place: Place,
    *,
    environ: Mapping[str, str] | None = None,
    others: Collection[str] = (),
) -> T:
    """Return the table that these values describe; raise BadInput if they do not.

    `others` are settings of the same table that someone else reads. Secrets are not looked up before they are used:
    then in `environ`, or in the file that is named.
    """
    return _TableReader({} if environ is None else environ).table(
        table, values, place, others=others
    )


class _TableReader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def table(
        self,
        table: type[T],
        values: Mapping[str, Any],
        place: Place,
        *,
        others: Collection[str] = (),
        inherited: Mapping[str, Any] | None = None,
    ) -> T:
        declared = settings_of(table)
        _refuse_unknown(values, declared, others, place)
        given: dict[str, Any] = {}
        # Those that inherit come last.
        for each in sorted(declared, key=lambda one: INHERITS in one.shape.marks):
            value = self._setting(each, values, place, given)
            if value is MISSING:
                value = (inherited or {}).get(each.attribute, MISSING)
            if value is not MISSING:
                given[each.attribute] = value
            elif each.default is MISSING:
                raise BadInput(f"{place}: set {_missing(each)}.")
        made = table(**given)
        check = getattr(made, "check", None)
        if check is not None:
            try:
                check()
            except ValueError as error:
                raise BadInput(f"{place}: {error}") from error
        return made

    def _setting(
        self,
        declared: Declared,
        values: Mapping[str, Any],
        place: Place,
        siblings: Mapping[str, Any],
    ) -> Any:
        """Return the value of one setting; MISSING if it is not set."""
        if declared.is_secret:
            return self._secret(declared, values, place)
        value = values.get(declared.name, MISSING)
        shape = declared.shape
        if value is MISSING or (value == "" and shape.is_text and MAY_BE_EMPTY not in shape.marks):
            return MISSING
        if shape.is_table and isinstance(value, dict):
            return self.table(shape.type, value, place.below(declared.name))
        if shape.item is not None and shape.item.is_table and shape.kind is None:
            return self._tables(declared, value, place, siblings)
        return _convert(value, shape, f"{place}: {declared.name}", declared.name)

    def _tables(
        self, declared: Declared, value: Any, place: Place, siblings: Mapping[str, Any]
    ) -> Any:
        """Read tables by name, or a list of tables."""
        shape = declared.shape
        assert shape.item is not None
        inherited = siblings if INHERITS in shape.marks else None
        within = place.below(declared.name)
        wanted = "a list of tables" if shape.type is tuple else "a table"
        items: Mapping[Any, Any] | None = None
        if shape.type is tuple and isinstance(value, list):
            items = dict(enumerate(value, 1))
        elif shape.type is not tuple and isinstance(value, dict):
            items = value
        if items is None:
            raise _bad(f"{place}: {declared.name}", declared.name, value, wanted)
        made = {}
        for name, each in items.items():
            if not isinstance(each, dict):
                raise _bad(f"{within}: {_cut(str(name))!r}", declared.name, each, "a table")
            where = Place(place.file, f"{within.table} {name}")
            where = where if shape.type is tuple else within.below(name)
            made[name] = self.table(shape.item.type, each, where, inherited=inherited)
        return tuple(made.values()) if shape.type is tuple else made

    def _secret(self, declared: Declared, values: Mapping[str, Any], place: Place) -> Any:
        for name in declared.names:
            value = values.get(name)
            if value is not None and not isinstance(value, str):
                raise BadInput(f"{place}: {name} must be a text, not a {_type_name(value)}.")
            # Not the same as leaving it out: a server without its password would be open.
            if value == "" and MAY_BE_EMPTY not in declared.shape.marks:
                raise BadInput(f"{place}: {name} is empty. Remove it, or write what it refers to.")
        plain, variable, path = (
            values.get(f"{declared.name}{suffix}") or None for suffix in ("", "_env", "_file")
        )
        if plain is not None:
            return Secret(plain)
        if variable is None and path is None:
            return MISSING
        return Secret.named(str(place), variable=variable, path=path, environ=self._environ)


def check_secrets(table: object) -> None:
    """Look up every secret that a table names; raise BadInput if one is not there."""
    for each in settings_of(type(table)):
        value = getattr(table, each.attribute)
        if isinstance(value, Secret):
            value.reveal()
        elif each.shape.is_table:
            check_secrets(value)
        elif each.shape.item is not None and each.shape.item.is_table:
            for item in value.values() if isinstance(value, Mapping) else value:
                check_secrets(item)


def describe(shape: Shape) -> str:
    """Return what a value must be, such as "a whole number above 0"."""
    if shape.kind is not None:
        return shape.kind.wanted
    if shape.choices is not None:
        return f"one of {', '.join(shape.choices)}"
    if shape.is_number:
        number = "a whole number" if shape.type is int else "a number"
        if shape.gt is not None or (shape.type is int and shape.ge == 1):
            return f"{number} above {shape.gt or 0:g}"
        return number if shape.ge is None else f"{number} from {shape.ge:g} up"
    if shape.type in (tuple, frozenset, list):
        assert shape.item is not None
        is_text = shape.item.type is str and shape.item.kind is None
        return "a list of texts" if is_text else f"a list; each value is {describe(shape.item)}"
    return {bool: "true or false", str: "a text"}.get(shape.type, "a table")


def _convert(value: Any, shape: Shape, where: str, name: str) -> Any:
    wanted = describe(shape)
    if shape.kind is not None:
        try:
            return shape.kind.parse(value)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise _bad(where, name, value, wanted) from error
    if shape.choices is not None:
        if not isinstance(value, str) or value not in shape.choices:
            raise _bad(where, name, value, wanted)
        return shape.choices[value]
    if shape.is_number:
        return _number(value, shape, where, name)
    if shape.type in (tuple, frozenset, list):
        return _list(value, shape, where, name)
    if isinstance(shape.type, type) and issubclass(shape.type, Mapping):
        if not isinstance(value, dict):
            raise _bad(where, name, value, wanted)
        item = shape.item or Shape(Any)
        return {
            key: _convert(each, item, f"{where}.{_cut(key)!r}", name) for key, each in value.items()
        }
    if shape.type is Any or (isinstance(value, shape.type) and not shape.is_table):
        return value
    raise _bad(where, name, value, wanted)


def _number(value: Any, shape: Shape, where: str, name: str) -> int | float:
    wanted = describe(shape)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(where, name, value, wanted)
    try:
        number = float(value)
    except OverflowError as error:
        raise _bad(where, name, value, wanted) from error
    is_valid = abs(number) < float("inf") and (shape.type is float or number.is_integer())
    is_valid = is_valid and (shape.gt is None or number > shape.gt)
    is_valid = is_valid and (shape.ge is None or number >= shape.ge)
    if not is_valid:
        raise _bad(where, name, value, wanted)
    if shape.le is not None and number > shape.le:
        raise _bad(where, name, value, f"at most {shape.le:,.12g}".replace(",", "_"))
    return number if shape.type is float else int(value)


def _list(value: Any, shape: Shape, where: str, name: str) -> Any:
    assert shape.item is not None
    if not isinstance(value, list | tuple):
        raise _bad(where, name, value, describe(shape))
    made = []
    for number, each in enumerate(value, 1):
        try:
            made.append(_convert(each, shape.item, where, name))
        except BadInput as error:
            shown = _shown(each, name)
            raise BadInput(
                f"{where} must be {describe(shape)}, but number {number} is {shown}."
            ) from error
    return frozenset(made) if shape.type is frozenset else tuple(made)


def _refuse_unknown(
    values: Mapping[str, Any], declared: tuple[Declared, ...], others: Collection[str], place: Place
) -> None:
    known = [*(name for each in declared for name in each.names), *others]
    for name in values:
        if name in known:
            continue
        secret = next((each for each in declared if each.is_secret and each.name == name), None)
        if secret is not None:
            raise BadInput(
                f"{place}: {name} is a secret and does not belong in the file: "
                f"set {' or '.join(secret.names)} instead."
            )
        import difflib  # only a mistyped setting needs it

        near = difflib.get_close_matches(name, known)
        # Letters in another order are the likelier mistake: `modle` is `model`, not `mode`.
        near.sort(key=lambda each: sorted(each) != sorted(name))
        hint = (
            f"Did you mean {near[0]!r}?"
            if near
            else f"Known here: {', '.join(sorted(known)) or 'none'}."
        )
        raise BadInput(f"{place}: there is no setting {_cut(name)!r}. {hint}")


def _missing(declared: Declared) -> str:
    names = " or ".join(declared.names)
    is_shown = declared.example is not None and not declared.is_secret
    example = f", such as {declared.example}" if is_shown else ""
    return f"{names}, {declared.description}{example}"


def _bad(where: str, name: str, value: Any, wanted: str) -> BadInput:
    return BadInput(f"{where} must be {wanted}, not {_shown(value, name)}.")


def _shown(value: Any, name: str) -> str:
    """Return a value for a message; one that may be or contain a secret is not repeated."""
    is_plain = isinstance(value, str | int | float)
    is_huge = type(value) is int and abs(value) >= 10**18
    if not is_plain or is_huge or SECRET_NAME.search(name):
        return f"a {_type_name(value)}"
    return repr(_cut(value)) if isinstance(value, str) else repr(value)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


_TYPES = {dict: "table", list: "list", str: "text", int: "number", float: "number", bool: "flag"}


def _type_name(value: Any) -> str:
    return _TYPES.get(type(value), "date or time")


def _is_bare(name: str) -> bool:
    return name.replace("_", "").replace("-", "").isalnum() and name.isascii()
