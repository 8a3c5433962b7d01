"""Generate docs/python-reference.md, the page of every public Python name: `python tools/python_page.py`."""

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import msgspec

import sessionary
from sessionary.client.base import OpenStore
from sessionary.errors import SessionaryError

PAGE = Path(__file__).parents[1] / "docs" / "python-reference.md"
LOWER_LAYER = {name for name in vars(OpenStore) if not name.startswith("_")}
CLIENTS = [
    "Sessionary",
    "Session",
    "RunningTurn",
    "Transaction",
    "Deferred",
    "Subscription",
    "Page",
    "HitPage",
    "ProjectsResource",
    "SchedulesResource",
    "BindingsResource",
    "DeliveriesResource",
    "ArrivalsResource",
    "QuestionsResource",
    "PolicyResource",
    "AccessResource",
    "TokensResource",
    "ImportsResource",
    "UpkeepResource",
]
HEAD = """\
# Python reference

Every public name of `sessionary`, with arguments, results and errors; `tools/python_page.py` generates this page
from the code. [Python](python.md) shows how to use them.

Every call of a client can raise `BadInput` (an argument cannot be used), `StoreUnavailable` (the database
cannot be reached or used, or the client is closed) and `RetryLater` (it is busy). Other errors are named with the call.
"""
ASYNC = """\
## The asynchronous client

`AsyncSessionary` and the classes whose names begin with `Async` have the same calls as the blocking ones below,
awaited. The differences:

- `AsyncSessionary()` opens nothing; `async with` or `await AsyncSessionary.connect(…)` does. `aclose()` closes it.
- A call that returns a `Page` returns an `AsyncPaginator`: `await` it for the first `AsyncPage`, or iterate with `async
  for`. A search returns an `AsyncHitPaginator` and `AsyncHitPage`s.
- Turns, transactions and subscriptions are used with `async with`; subscriptions, exports and `ask_stream` with `async
  for`.
- Calls that do nothing yet are not awaited: `session`, `new_session`, `turn`, `transaction`, `subscribe`, `export`,
  `ask_stream`, the lists, and everything on a transaction. `turn.delta` is not awaited either.
"""


VALUES = """\
A value cannot be changed. `copy.replace` of Python 3.13 makes a changed copy; before that, `msgspec.structs.replace`
does for most of them, which are Structs, and `dataclasses.replace` for the others.
"""


def page() -> str:
    """Return the page."""
    public = {name: getattr(sessionary, name) for name in sessionary.__all__}
    errors = {
        name: value
        for name, value in public.items()
        if inspect.isclass(value) and issubclass(value, SessionaryError)
    }
    twins = {name for name in public if name.startswith("Async")}
    values = [name for name in public if name not in {*CLIENTS, *errors, *twins}]
    parts = [HEAD, ASYNC, "## The client\n"]
    parts += ["\n".join(class_section(name, public[name])) for name in CLIENTS]
    parts.append(f"## Values\n\n{VALUES}")
    parts += ["\n".join(value_section(name, public[name])) for name in values]
    parts.append("## Errors\n")
    parts.append("| error | `kind` | what to do |\n|---|---|---|")
    parts += [
        f"| `{name}`{_parents(value)} | `{value.kind}` | {_sentence(value)} |"
        for name, value in errors.items()
    ]
    parts.append("\n## Asynchronous names\n")
    parts.append(", ".join(f"`{name}`" for name in sorted(twins)) + ".")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def class_section(name: str, cls: type) -> Iterator[str]:
    """Yield the lines about a class with methods."""
    yield f"### {name}\n"
    yield _document(cls) + "\n"
    yield "| | |"
    yield "|---|---|"
    if issubclass(cls, OpenStore):
        yield f"| `{name}{_arguments(cls.__init__)}` | Open the store. |"
    for called, member in sorted(_members(cls).items()):
        if isinstance(member, property):
            assert member.fget is not None
            yield f"| `{called}: {_result(member.fget)}` | {_cell(member)} |"
        else:
            yield f"| `{called}{_arguments(member)} -> {_result(member)}` | {_cell(member)} |"
    yield ""


def value_section(name: str, value: object) -> Iterator[str]:
    """Yield the lines about a value: its fields or its members."""
    yield f"### {name}\n"
    if not inspect.isclass(value):
        text = re.sub(
            r"\bsessionary\.[a-z_.]+\.|typing\.|collections\.abc\.|ForwardRef", "", str(value)
        )
        yield f"`{text}`\n"
        return
    yield _document(value) + "\n"
    if issubclass(value, enum.Enum):
        yield ", ".join(f"`{each.value}`" for each in value) + "\n"
        return
    lines = []
    if dataclasses.is_dataclass(value):
        hints = _field_texts(value)
        lines += [
            f"| `{field.name}: {hints.get(field.name, '')}` | {_default(field)} |"
            for field in dataclasses.fields(value)
            if not field.name.startswith("_")
        ]
    elif issubclass(value, msgspec.Struct):
        hints = _field_texts(value)
        lines += [
            f"| `{field.name}: {hints.get(field.name, '')}` | {_struct_default(field)} |"
            for field in msgspec.structs.fields(value)
            if not field.name.startswith("_")
        ]
    elif typing.is_typeddict(value):
        for field, hint in _field_texts(value).items():
            found = re.fullmatch(r"NotRequired\[(.*)\]", hint)
            lines.append(
                f"| `{field}: {found[1]}` | optional |" if found else f"| `{field}: {hint}` | |"
            )
    elif hasattr(value, "_fields"):
        lines += [f"| `{field}: {hint}` | |" for field, hint in _field_texts(value).items()]
    for called, member in sorted(_members(value).items()):
        if isinstance(member, property):
            assert member.fget is not None
            lines.append(f"| `{called}: {_result(member.fget)}` | {_cell(member)} |")
        elif member.__doc__:
            text = f"{called}{_arguments(member)} -> {_result(member)}"
            lines.append(f"| `{text}` | {_cell(member)} |")
    if lines:
        yield "| | |"
        yield "|---|---|"
        yield from lines
        yield ""


def _members(cls: type) -> dict[str, FunctionType | property]:
    found: dict[str, FunctionType | property] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("sessionary."):
            continue
        for name, member in vars(base).items():
            plain = getattr(member, "__func__", member)
            if name.startswith("_") or (issubclass(cls, OpenStore) and name in LOWER_LAYER):
                continue
            if isinstance(plain, FunctionType | property):
                found[name] = plain
    return found


def _node(function: object) -> ast.FunctionDef | ast.AsyncFunctionDef:
    source = textwrap.dedent(inspect.getsource(function))  # type: ignore[arg-type]
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _arguments(function: object) -> str:
    node = _node(function)
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    return f"({_plain(ast.unparse(arguments)).replace('=', ' = ')})"


def _result(function: object) -> str:
    returns = _node(function).returns
    return "None" if returns is None else _plain(ast.unparse(returns))


def _plain(text: str) -> str:
    """Return an annotation without quotes around names, safe in a table."""
    text = re.sub(r"'([A-Za-z_][\w.\[\], |]*)'(?=[,)\]]|$| \||=)", _unquoted, text)
    return text.replace("builtins.", "").replace("|", "\\|")


def _unquoted(match: "re.Match[str]") -> str:
    """Keep the quotes of a literal text; remove those around a type."""
    return match[1] if match[1][0].isupper() or "[" in match[1] else match[0]


def _field_texts(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("sessionary."):
            continue
        node = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(node, ast.ClassDef)
        found |= {
            each.target.id: _plain(ast.unparse(each.annotation))
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
    return found


def _default(field: "dataclasses.Field[object]") -> str:
    if field.default is not dataclasses.MISSING:
        return _shown_default(field.default)
    return "optional" if field.default_factory is not dataclasses.MISSING else ""


def _struct_default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return _shown_default(field.default)
    return "" if field.required else "optional"


def _shown_default(value: object) -> str:
    return f"default `{str(value) if isinstance(value, enum.Enum) else repr(value)}`"


def _document(cls: type) -> str:
    return inspect.getdoc(cls) or ""


def _cell(member: object) -> str:
    text = inspect.getdoc(member) or ""
    return " ".join(text.split()).replace("|", "\\|")


def _sentence(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _parents(cls: type) -> str:
    parent = cls.__mro__[1]
    return "" if parent in (SessionaryError, Exception) else f" (a `{parent.__name__}`)"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
