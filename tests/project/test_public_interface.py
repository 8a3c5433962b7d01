"""The public Python interface: generated files are current, every type can be imported, the pages name every call."""

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import sessionary
from sessionary.app.context import open_app
from sessionary.client.base import OpenStore
from sessionary.web import openapi
from sessionary.web.app import create_app
from sessionary.web.context import PREFIX, WebContext
from tests.project.code import ROOT
from tools import make_sync_client, python_page

CLASSES = [
    value
    for name in sessionary.__all__
    if inspect.isclass(value := getattr(sessionary, name))
    and value.__module__.startswith("sessionary.client")
]
# For `sessionary.integrations`, and not part of the public interface.
LOWER_LAYER = {name for name in vars(OpenStore) if not name.startswith("_")}
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \| (.+) \|$", re.MULTILINE)
CALL = re.compile(r"`(s|chat)\.([a-z_]+)(?:\.([a-z_]+))?(\(.*?\))?`")


def test_the_blocking_client_is_as_its_source_makes_it() -> None:
    for path, text in make_sync_client.generated().items():
        assert path.read_text(encoding="utf-8") == text, "run tools/make_sync_client.py"


def test_every_public_name_is_there() -> None:
    assert sessionary.__all__ == sorted(sessionary.__all__)
    for name in sessionary.__all__:
        assert getattr(sessionary, name) is not None


def signatures(cls: type) -> Iterator[tuple[str, object]]:
    """Every annotation of the public methods and properties of a class."""
    for name, member in inspect.getmembers(cls):
        is_public = not name.startswith("_") or name == "__init__"
        if not is_public or name in LOWER_LAYER:
            continue
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        if not inspect.isfunction(function):
            continue
        if name == "__init__" and not issubclass(cls, OpenStore):
            continue  # made by the client, not by programs
        scope = {name: getattr(sessionary, name) for name in sessionary.__all__}
        scope["Mapping"] = Mapping
        for parameter, hint in typing.get_type_hints(function, localns=scope).items():
            yield f"{cls.__name__}.{name}({parameter})", hint


def named_types(hint: object) -> Iterator[type]:
    """The classes that an annotation names."""
    if isinstance(hint, list | tuple):
        for each in hint:
            yield from named_types(each)
    elif typing.get_origin(hint) is typing.Literal:
        return
    elif typing.get_args(hint):
        origin = typing.get_origin(hint)
        if inspect.isclass(origin) and origin is not types.UnionType:
            yield origin
        for each in typing.get_args(hint):
            yield from named_types(each)
    elif inspect.isclass(hint):
        yield hint


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_type_in_a_signature_can_be_imported(cls: type) -> None:
    public = {getattr(sessionary, name) for name in sessionary.__all__}
    missing = {
        f"{where}: {found.__name__}"
        for where, hint in signatures(cls)
        for found in named_types(hint)
        if found.__module__.startswith("sessionary.") and found not in public
    }

    assert missing == set()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_signature_takes_or_gives_just_anything(cls: type) -> None:
    loose = {where for where, hint in signatures(cls) if hint in (typing.Any, object)}
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            kinds = {each.kind for each in inspect.signature(member).parameters.values()}
            if inspect.Parameter.VAR_KEYWORD in kinds:
                loose.add(name)

    assert loose == set()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_method_is_explained(cls: type) -> None:
    unexplained = [
        name
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and not inspect.getdoc(member)
    ]

    assert unexplained == []


def test_both_clients_have_the_same_calls() -> None:
    for name in sessionary.__all__:
        if not name.startswith("Async") or name.endswith("Paginator"):
            continue
        blocking = getattr(sessionary, name.removeprefix("Async"))
        calls = {each for each in dir(getattr(sessionary, name)) if not each.startswith("_")}
        renamed = {"close" if each == "aclose" else each for each in calls - {"connect"}}
        assert renamed == {each for each in dir(blocking) if not each.startswith("_")}, name


def test_the_table_of_http_and_python_is_complete(tmp_path: Path) -> None:
    with open_app(tmp_path / "x.db") as app:
        described = openapi.describe(create_app(WebContext(store=app.store)))
    operations = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path.removeprefix(PREFIX)))
        for path, methods in described["paths"].items()
        for method in methods
    }

    listed = {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path, _ in ROW.findall(PAGE)}

    missing, gone = operations - listed, listed - operations
    assert (missing, gone) == (set(), set()), "add a row to docs/python.md, or remove one"


def test_every_call_of_the_table_is_there() -> None:
    calls = [call for _, _, python in ROW.findall(PAGE) for call in CALL.findall(python)]
    assert len(calls) > 60
    resources = {
        name: typing.get_type_hints(member.fget)["return"]
        for name, member in inspect.getmembers(sessionary.Sessionary)
        if isinstance(member, property) and name not in LOWER_LAYER
    }
    lost = []
    for where, first, second, _ in calls:
        owner: type = sessionary.Sessionary if where == "s" else sessionary.Session
        if second:
            owner = resources.get(first, type(None))
        if not hasattr(owner, second or first):
            lost.append(f"{where}.{first}.{second}")

    assert lost == []


def test_the_reference_page_is_current() -> None:
    text = python_page.PAGE.read_text(encoding="utf-8")

    assert text == python_page.page(), "run tools/python_page.py"
    assert [
        name
        for name in sessionary.__all__
        if f"`{name}`" not in text and f"### {name}\n" not in text
    ] == []
