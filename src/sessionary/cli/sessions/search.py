"""`sessionary search`."""

import sys
from datetime import datetime, tzinfo
from typing import Any

import click

from sessionary import config
from sessionary.actions.search.search import (
    COUNTED_STEPS,
    MOST_HITS,
    SORTS,
    Hit,
    SearchOptions,
    SearchResult,
    result_json,
)
from sessionary.actions.search.search import search as run_search
from sessionary.cli import indexing, times
from sessionary.cli.console import Console, count
from sessionary.cli.sessions.refs import REF, find_head
from sessionary.cli.tree import command, pass_console
from sessionary.model.search_text import TITLE
from sessionary.model.snippet import CLOSE, OPEN
from sessionary.model.terminal import display_width, fit, one_line, safe_terminal

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


@command(
    "search",
    example="sessionary search connection refused --source telegram\n"
    "sessionary search '\"never again\" -draft after:30d'\n"
    "sessionary search --json -- -flag | jq -r '.items[].snippet'",
)
@click.argument("query", nargs=-1, required=True, metavar="QUERY…")
@click.option(
    "--sort", type=click.Choice(SORTS), default="relevance", show_default=True, help="Sort order."
)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_HITS),
    default=20,
    show_default=True,
    metavar="N",
    help="How many hits.",
)
@click.option("--source", metavar="S", help="Only from this platform.")
@click.option("--session", type=REF, metavar="REF", help="Only within this session.")
@click.option("--all-hits", is_flag=True, help="Every hit, not only the best of each session.")
@click.option("--tools", is_flag=True, help="Search tool output and reasoning too.")
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def search(console: Console, query: tuple[str, ...], **asked: Any) -> None:
    """Search messages and titles.

    All words must match. "A phrase" matches words in that order, -word excludes, word* matches a prefix;
    OR, AND and NOT are operators. Filters: role: source: from: in: session: tool: before: after:
    """
    with console.open() as app:
        if asked["session"] is not None:
            asked["session"] = find_head(app, asked["session"]).id
        indexing.catch_up(console, app)
        options = SearchOptions(
            sort=asked["sort"],
            limit=asked["limit"],
            cursor=asked["cursor"],
            all_hits=asked["all_hits"],
            steps=asked["tools"],
            session=asked["session"],
            source=asked["source"],
        )
        now, zone = app.clock.now(), console.zone(app)
        found = app.store.search(
            run_search, " ".join(query), profile=app.profile, options=options, now=now
        ).result()
    if console.json:
        console.emit(result_json(found, now=now))
        return
    for hit in found:
        _print_hit(console, hit, now=now, zone=zone)
    _tell_the_rest(console, found)


def _print_hit(console: Console, hit: Hit, *, now: datetime, zone: tzinfo | None) -> None:
    head = hit.session
    name = one_line(head.title or head.preview or "(no text)")
    where = f"{head.source.platform}, {times.ago(hit.at, now=now, zone=zone)}"
    more = f", {hit.in_session:,} hits" if hit.in_session > 1 else ""
    place = head.id if hit.role == TITLE else f"{head.id} --around {hit.seq}"
    if console.is_terminal:
        room = max(20, console.width - display_width(where + more) - 2)
        console.print(f"{fit(name, min(room, display_width(name)))}  {where}{more}")
    else:
        console.print(f"{name}  {where}{more}")
    # The styles come last, after the text was made safe.
    line = safe_terminal(one_line(f"{hit.role}: {hit.snippet}"))
    is_bold = console.is_terminal and not config.is_plain_terminal()
    marks = (BOLD, PLAIN) if is_bold else (OPEN, CLOSE)
    sys.stdout.write("  " + line.replace(OPEN, marks[0]).replace(CLOSE, marks[1]) + "\n")
    console.print(f"  sessionary sessions show {place}\n")


def _tell_the_rest(console: Console, found: SearchResult) -> None:
    """Print what the answer leaves out, and what to ask next."""
    if found.behind:
        console.note(
            f"The index is not complete: {count(found.behind, 'change')} not searched yet. "
            "Search again, or see `sessionary doctor`."
        )
    if found.missing is not None:
        console.note(found.missing)
    if found.beginnings and found.hits:
        console.note(
            f"Nothing matches exactly; these hits have words that begin so: {found.words}."
        )
    elif found.relaxed and found.hits:
        console.note(f"Nothing has all of these words; these hits have some: {found.words}.")
    if not found.hits:
        console.note(f"Nothing found: {found.words}.")
    elif found.more:
        console.note(f"More than {found.total - 1:,} hits: {found.words}.")
    else:
        console.note(f"{count(found.total, 'hit')}: {found.words}.")
    if found.suggestion is not None:
        console.note(f"Did you mean: {found.suggestion}")
    if found.step_hits:
        many = f"{COUNTED_STEPS}+" if found.step_hits >= COUNTED_STEPS else f"{found.step_hits}"
        console.note(f"{many} more in tool output and reasoning; see them with --tools.")
    console.note_more(found.next)
