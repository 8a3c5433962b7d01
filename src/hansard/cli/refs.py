"""The name of a session on the command line, and how a shell completes it."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hansard.cli.console import Console
from hansard.errors import HansardError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OFFERED = 30
F = TypeVar("F", bound=Callable[..., Any])


class Ref(click.ParamType):  # type: ignore[type-arg] # before click 8.3 it takes none
    """What rule D-4 resolves: an id, the beginning of an id, a title."""

    name = "ref"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Offer the sessions that were last active: titles, and ids for those without."""
        item = importlib.import_module("click.shell_completion").CompletionItem
        try:
            with ctx.ensure_object(Console).house() as house:
                heads = house.sessions(limit=200).items
        except HansardError:
            return []
        names = [(head.title or head.id, head.preview) for head in heads]
        names += [(head.id, head.title or head.preview) for head in heads if incomplete]
        found = [each for each in dict(names).items() if each[0].startswith(incomplete)]
        return [item(name, help=about) for name, about in found[:OFFERED]]


REF = Ref()


def ref_argument(function: F) -> F:
    """Take the argument REF."""
    return click.argument("ref", type=REF, metavar="REF")(function)
