"""The rules about the code: pure functions from a module to what is wrong with it."""

import ast
import re
from collections.abc import Iterator

from tests.project.code import Module

# Modules that may import inside a function, and what: heavy or optional things, loaded on use.
MAY_IMPORT_LATE: dict[str, set[str]] = {
    "sessionary.agents.model": {"sessionary.agents.provider", "sessionary.agents.tool_calls"},
    "sessionary.cli.console": {"subprocess"},
    "sessionary.cli.markdown": {"rich"},
    "sessionary.agents.tool_calls": {"sessionary.agents.mcp_tools"},
    "sessionary.client.session": {"sessionary.formats.message_input"},
    "sessionary.app.engine": {"sessionary"},
    "sessionary.app.import_port": {"sessionary.app"},
    "sessionary.app.mcp": {"sessionary.app"},
    "sessionary.model.page": {"markdown_it"},
    "sessionary.telemetry.taking": {"sessionary"},
}

# The three places that may swallow any exception, because they record and log it: a turn, a
# delivery, a sweep. Written as `sessionary.engine.loop:Class.method`.
SUPERVISORS: frozenset[str] = frozenset(
    {
        "sessionary.engine.outbox:Outbox._send",
        "sessionary.engine.sweeper:Sweeper._run_finalizer",
    }
)

# Modules that catch any exception in one thread to raise it in another: nothing is swallowed.
MESSENGERS: frozenset[str] = frozenset(
    {
        "sessionary.agents.python",
        "sessionary.engine.thread",
        "sessionary.store.listeners",
        "sessionary.store.postgres",
        "sessionary.store.postgres_writer",
        "sessionary.store.sqlite",
        "sessionary.store.sqlite_index",
        "sessionary.store.sqlite_writer",
    }
)

BROAD = {"Exception", "BaseException"}
SHOUTED_SQL = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\s+(OR\s+\w+\s+)?INTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b",
    re.DOTALL,
)
QUIET_SQL = re.compile(
    r"\s*(select\b.+\bfrom\b|insert\s+(or\s+\w+\s+)?into\b|update\s+\w+\s+set\b|delete\s+from\b)",
    re.DOTALL,
)


def late_imports(module: Module) -> Iterator[str]:
    allowed = MAY_IMPORT_LATE.get(module.name, set())
    for function in module.functions():
        for node in ast.walk(function):
            for name in _imported(node):
                if not any(name == each or name.startswith(f"{each}.") for each in allowed):
                    yield f"{module.name}:{function.lineno} {function.name} imports {name}"


def swallowed_exceptions(module: Module) -> Iterator[str]:
    if module.name in MESSENGERS:
        return
    for place, line in broad_handlers(module):
        if place not in SUPERVISORS:
            yield f"{place} catches every exception, line {line}"


def broad_handlers(module: Module) -> Iterator[tuple[str, int]]:
    """Where the module catches everything and does not raise it again."""
    for place, node in module.qualified():
        full = f"{module.name}:{place}"
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises(node):
            yield full, node.lineno
        if isinstance(node, ast.Call) and _suppresses_all(node):
            yield full, node.lineno


def sql_in_python(module: Module) -> Iterator[str]:
    for node, text in _texts(module):
        if SHOUTED_SQL.search(text) or QUIET_SQL.match(text):
            yield f"{module.name}:{node.lineno} {text.strip()[:40]!r}"


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(name)):
            return [name]
        case _:
            return []


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or _last_name(caught) in BROAD


def _suppresses_all(call: ast.Call) -> bool:
    return _last_name(call.func) == "suppress" and any(map(_is_broad, call.args))


def _raises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


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
                yield node, "".join(_text_of(value) for value in values)
            case ast.Constant(value=str(text)) if id(node) not in passed_over:
                yield node, text


def _text_of(piece: ast.expr) -> str:
    return str(piece.value) if isinstance(piece, ast.Constant) else "?"


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
