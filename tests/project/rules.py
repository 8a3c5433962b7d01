"""Rules about the code: pure functions from a module to what is wrong with it."""

import ast
import re
from collections.abc import Iterator

from tests.project.code import Module

BROAD = {"Exception", "BaseException"}
# `logger.exception`, and the hook for what fails in a thread.
REPORTERS = {"exception", "excepthook"}
SHOUTED_SQL = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\s+(OR\s+\w+\s+)?INTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b",
    re.DOTALL,
)
QUIET_SQL = re.compile(
    r"\s*(select\b.+\bfrom\b|insert\s+(or\s+\w+\s+)?into\b|update\s+\w+\s+set\b|delete\s+from\b)",
    re.DOTALL,
)


def string_imports(module: Module) -> Iterator[str]:
    """Imports of our own modules by name: type checkers and import-linter do not see them."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _last_name(node.func) == "import_module" and node.args:
            name = _text_of(node.args[0])
            if name.partition(".")[0] == "sessionary":
                yield f"{module.name}:{node.lineno} imports {name}"


def swallowed_exceptions(module: Module) -> Iterator[str]:
    """Broad handlers that neither raise, nor log, nor pass the exception on."""
    for node in ast.walk(module.tree):
        match node:
            case ast.ExceptHandler() if _is_broad(node.type) and not _reports(node):
                yield f"{module.name}:{node.lineno} swallows every exception"
            case ast.Call() if _last_name(node.func) == "suppress" and any(
                map(_is_broad, node.args)
            ):
                yield f"{module.name}:{node.lineno} suppresses every exception"


def sql_in_python(module: Module) -> Iterator[str]:
    for node, text in _texts(module):
        if SHOUTED_SQL.search(text) or QUIET_SQL.match(text):
            yield f"{module.name}:{node.lineno} {text.strip()[:40]!r}"


def named_queries(module: Module) -> Iterator[str]:
    """Queries that are named outside the store, where nothing types their parameters and columns."""
    if module.name.startswith("sessionary.store."):
        return
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=tx, attr="one" | "all" | "run" | "many")) if (
                _last_name(tx).lstrip("_") == "tx"
            ):
                yield f"{module.name}:{node.lineno} names a query"


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or _last_name(caught) in BROAD


def _reports(handler: ast.ExceptHandler) -> bool:
    """Whether the handler raises, logs with the traceback, or uses the exception that it caught."""
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    return any(
        isinstance(node, ast.Raise)
        or (isinstance(node, ast.Call) and _last_name(node.func) in REPORTERS)
        or (isinstance(node, ast.Name) and handler.name is not None and node.id == handler.name)
        for node in inside
    )


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _texts(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Every string of the module that is not a docstring; what an f-string inserts is a `?`."""
    passed_over = {id(node) for node in _docstrings(module)}
    for node in ast.walk(module.tree):
        match node:
            case ast.JoinedStr(values=values):
                passed_over.update(map(id, values))
                yield node, _text_of(node)
            case ast.Constant(value=str(text)) if id(node) not in passed_over:
                yield node, text


def _text_of(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(map(_text_of, values))
        case _:
            return "?"


def _docstrings(module: Module) -> Iterator[ast.Constant]:
    for node in ast.walk(module.tree):
        match node:
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant() as text), *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant() as text), *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant() as text), *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant() as text), *_])
            ):
                yield text
