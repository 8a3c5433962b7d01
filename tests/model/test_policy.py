"""Which calls a rule is about."""

import pytest

from sessionary.config.engine import PolicyRule, ToolDecision
from sessionary.model.policy import ToolUse, matches
from sessionary.model.source import Source


def use(tool: str, **arguments: object) -> ToolUse:
    return ToolUse(
        tool=tool,
        arguments=arguments,
        is_safe=False,
        agent="a",
        source=Source("telegram", "1", user_id="7"),
        is_owner=False,
    )


@pytest.mark.parametrize(
    ("pattern", "tool", "fits"),
    [
        ("*", "shell", True),
        ("files_*", "files_write", True),
        ("files_*", "files", False),
        ("*_write", "files_write", True),
        ("f*s_*e", "files_write", True),
        ("f*x*e", "files_write", False),
        ("ab*ba", "aba", False),
        # Only the star has a meaning.
        ("file?", "files", False),
        ("file?", "file?", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("Shell", "shell", False),
    ],
)
def test_in_a_pattern_only_the_star_has_a_meaning(pattern: str, tool: str, fits: bool) -> None:
    assert matches(PolicyRule(decision=ToolDecision.DENY, tool=pattern), use(tool)) is fits


def test_a_pattern_on_an_argument_spans_lines_and_wants_the_argument() -> None:
    rule = PolicyRule(decision=ToolDecision.DENY, arguments={"command": "*rm -rf*"})

    assert matches(rule, use("shell", command="cd /\nrm -rf .\n"))
    assert not matches(rule, use("shell", script="rm -rf ."))


def test_a_hostile_argument_costs_no_time() -> None:
    rule = PolicyRule(decision=ToolDecision.DENY, arguments={"command": "*a*a*a*a*a*a*a*a*b"})

    assert not matches(rule, use("shell", command="a" * 200_000))
