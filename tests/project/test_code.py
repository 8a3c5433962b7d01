"""Rules about the code, each of which prevents a defect that happened."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.project import rules
from tests.project.code import Module, modules

Rule = Callable[[Module], Iterator[str]]


def broken(rule: Rule) -> list[str]:
    return [finding for module in modules() for finding in rule(module)]


def test_our_own_modules_are_imported_by_import_statements() -> None:
    assert broken(rules.string_imports) == []


def test_no_exception_is_swallowed() -> None:
    assert broken(rules.swallowed_exceptions) == []


def test_python_contains_no_sql() -> None:
    assert broken(rules.sql_in_python) == []


def test_only_the_store_names_queries() -> None:
    assert broken(rules.named_queries) == []


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    )

    assert {name for name, count in names.items() if count > 1} == set()


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (rules.string_imports, 'importlib.import_module("sessionary.store")'),
        (rules.string_imports, 'import_module(f"sessionary.importers.{name}")'),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept Exception:\n    pass"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept:\n    undo()"),
        (
            rules.swallowed_exceptions,
            "try:\n    f()\nexcept (OSError, BaseException) as e:\n    undo()",
        ),
        (rules.swallowed_exceptions, "with contextlib.suppress(Exception):\n    f()"),
        (rules.named_queries, 'tx.one("get_head", id=id)'),
        (rules.named_queries, "self._tx.all(query, no=no)"),
        (rules.sql_in_python, 'x = "SELECT id FROM sessions"'),
        (rules.sql_in_python, 'x = f"select {columns} from sessions"'),
        (rules.sql_in_python, 'f("""\n  insert or ignore into sessions values (1)""")'),
        (rules.sql_in_python, 'f("UPDATE turns AS t SET x = 1")'),
        (rules.sql_in_python, 'f("delete from sessions")'),
    ],
)
def test_a_rule_sees_what_breaks_it(rule: Rule, text: str) -> None:
    assert list(rule(Module("sessionary.sample", text)))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (rules.string_imports, 'importlib.import_module("zstandard")'),
        (rules.string_imports, "def f():\n    import sessionary.store"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept Exception:\n    log.exception('no')"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept Exception as e:\n    future.fail(e)"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept OSError:\n    pass"),
        (rules.named_queries, "sessions.get_by_no(tx, no)"),
        (rules.named_queries, "jobs.run(tx, name)"),
        (rules.sql_in_python, 'x = "Select a session from the list"'),
        (rules.sql_in_python, '"""SELECT id FROM sessions is what this does."""'),
    ],
)
def test_a_rule_does_not_see_what_is_fine(rule: Rule, text: str) -> None:
    assert list(rule(Module("sessionary.sample", text))) == []
