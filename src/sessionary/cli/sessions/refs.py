"""REF on the command line: how it names a session, and how a shell completes it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sessionary.actions.sessions import lists, read
from sessionary.cli.console import Console
from sessionary.errors import Ambiguous, NotFound, SessionaryError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sessionary.actions.search.search import SearchResult
    from sessionary.app.context import AppContext
    from sessionary.model.session import SessionHead

OFFERED = 30
SUGGESTED = 3
RECENT = 200
# Marks that `sessions list` puts before a title.
PINNED, RUNNING, WAITING, ENDED = "* ", "(running) ", "(waiting to go on) ", "(ended) "
ASKING = "(waiting for an answer) "
CUT = "…"
F = TypeVar("F", bound=Callable[..., Any])


class Ref(click.ParamType):  # type: ignore[type-arg] # before click 8.3 it takes none
    """A session: its id, the beginning of its id, its title, or what a list shows as its title."""

    name = "ref"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Offer the most recent sessions: their titles, or ids for those without a title."""
        from click.shell_completion import CompletionItem  # only completion needs it

        try:
            with ctx.ensure_object(Console).open() as app:
                heads = _recent(app)
        except SessionaryError:
            return []
        names = [(head.title or head.id, head.preview) for head in heads]
        names += [(head.id, head.title or head.preview) for head in heads if incomplete]
        found = [each for each in dict(names).items() if each[0].startswith(incomplete)]
        return [CompletionItem(name, help=about) for name, about in found[:OFFERED]]


REF = Ref()


def ref_argument(function: F) -> F:
    """Take the argument REF."""
    return click.argument("ref", type=REF, metavar="REF")(function)


def find_head(app: "AppContext", ref: str) -> "SessionHead":
    """Return the head of the session that a person names.

    If no id or exact title matches: a title in other capitals, or what a list shows as the title,
    even shortened. Several matches raise Ambiguous; without any, NotFound suggests similar titles.
    """
    try:
        return app.store.read(read.find, ref, profile=app.profile).result()
    except NotFound as missing:
        shown = _without_marks(ref)
        found = _titled_alike(app, shown) or _beginning_alike(app, shown)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"{head.id} ({_label(head)})" for head in found[:6])
            raise Ambiguous(
                f"{ref!r} may be one of several sessions: {names}.", [head.id for head in found]
            ) from None
        near = _near_titles(app, shown)
        if not near:
            raise
        listed = ", ".join(f"“{title}”" for title in near)
        raise type(missing)(f"{missing} Did you mean {listed}?") from None


def _without_marks(ref: str) -> str:
    shown = " ".join(ref.split())
    for mark in (PINNED, RUNNING, WAITING, ASKING, ENDED):
        shown = shown.removeprefix(mark)
    return shown


def _titled_alike(app: "AppContext", shown: str) -> "list[SessionHead]":
    """Return sessions with this title in any capitals, or whose title was shortened to this."""
    return _matching(app, shown, roles=("title",), label=lambda head: head.title)


def _beginning_alike(app: "AppContext", shown: str) -> "list[SessionHead]":
    """Return sessions without a title that begin with these words: lists show the words instead."""
    return _matching(
        app, shown, roles=(), label=lambda head: head.preview if head.title is None else None
    )


def _matching(
    app: "AppContext",
    shown: str,
    *,
    roles: tuple[str, ...],
    label: "Callable[[SessionHead], str | None]",
) -> "list[SessionHead]":
    """Return sessions whose label is what a person typed, found in the search index."""
    from sessionary.model.tokenizer import fold  # an id or an exact title is found without it

    wanted = " ".join(fold(shown.removesuffix(CUT)).split())
    words = shown.removesuffix(CUT).replace('"', " ").split()
    # The last word of a shortened title may be cut.
    whole = words[:-1] if shown.endswith(CUT) and len(words) > 1 else words
    if not whole:
        return []
    phrase = f'"{" ".join(whole[:8])}"'
    found = {}
    for hit in _search(app, phrase, limit=RECENT, roles=roles):
        text = " ".join(fold(label(hit.session) or "").split())
        if text == wanted or (shown.endswith(CUT) and text.startswith(wanted)):
            found[hit.session.id] = hit.session
    return list(found.values())


def _near_titles(app: "AppContext", shown: str) -> list[str]:
    """Return titles with similar spelling or some of the words."""
    import difflib  # only an unknown name needs it

    heads = _recent(app)
    titles = {head.title.casefold(): head.title for head in heads if head.title}
    near = [
        titles[each] for each in difflib.get_close_matches(shown.casefold(), titles, n=SUGGESTED)
    ]
    found = _search(app, shown, limit=SUGGESTED, roles=("title",))
    near += [hit.session.title for hit in found if hit.session.title]
    return list(dict.fromkeys(near))[:SUGGESTED]


def _recent(app: "AppContext") -> "tuple[SessionHead, ...]":
    """Return the most recent sessions."""
    filters = lists.SessionFilters()
    page = app.store.read(lists.list_sessions, filters, profile=app.profile, limit=RECENT)
    return page.result().items


def _search(app: "AppContext", text: str, *, limit: int, roles: tuple[str, ...]) -> "SearchResult":
    """Return the best hit of each session."""
    from sessionary.actions.search import search  # an id or an exact title is found without it

    options = search.SearchOptions(limit=limit, roles=roles)
    now = app.clock.now()
    return app.store.search(
        search.search, text, profile=app.profile, options=options, now=now
    ).result()


def _label(head: "SessionHead") -> str:
    return head.title or head.preview or "no text"
