"""Rules about the code, each of which prevents a defect that happened."""

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.project import rules
from tests.project.code import Module, modules

Rule = Callable[[Module], Iterator[str]]


def broken(rule: Rule) -> list[str]:
    return [finding for module in modules() for finding in rule(module)]


def test_imports_stand_at_the_top_of_the_file() -> None:
    assert broken(rules.late_imports) == []


def test_only_the_supervisors_catch_every_exception() -> None:
    assert broken(rules.swallowed_exceptions) == []


def test_there_are_at_most_three_supervisors() -> None:
    assert len(rules.SUPERVISORS) <= 3


def test_python_contains_no_sql() -> None:
    assert broken(rules.sql_in_python) == []


def test_every_exception_to_a_rule_is_still_needed() -> None:
    catching = {place for module in modules() for place, _ in rules.broad_handlers(module)}

    assert catching >= rules.SUPERVISORS
    assert {place.partition(":")[0] for place in catching} >= rules.MESSENGERS
    assert set(rules.MAY_IMPORT_LATE) <= {module.name for module in modules()}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (rules.late_imports, "def f():\n    import json"),
        (rules.late_imports, "async def f():\n    if x:\n        from json import loads"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept Exception:\n    pass"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept:\n    log()"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept (OSError, BaseException):\n    log()"),
        (rules.swallowed_exceptions, "with contextlib.suppress(Exception):\n    f()"),
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
        (rules.swallowed_exceptions, "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
        (rules.swallowed_exceptions, "try:\n    f()\nexcept OSError:\n    pass"),
        (rules.sql_in_python, 'x = "Select a session from the list"'),
        (rules.sql_in_python, '"""SELECT id FROM sessions is what this does."""'),
    ],
)
def test_a_rule_does_not_see_what_is_fine(rule: Rule, text: str) -> None:
    assert list(rule(Module("sessionary.sample", text))) == []


def test_a_place_is_named_by_its_class_and_function() -> None:
    module = Module("sessionary.sample", "class A:\n    def f(self):\n        return 1")

    assert "A.f" in {place for place, node in module.qualified() if isinstance(node, ast.Return)}
