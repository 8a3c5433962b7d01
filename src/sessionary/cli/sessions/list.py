"""`sessionary sessions list`."""

from datetime import datetime, tzinfo
from typing import Any

import click

from sessionary.actions.sessions import lists
from sessionary.actions.sessions.lists import SortOrder
from sessionary.cli import times
from sessionary.cli.console import Column, Console, count, money, table
from sessionary.cli.sessions.refs import ASKING, ENDED, PINNED, RUNNING, WAITING
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput
from sessionary.model.session import Kind, SessionFolder, SessionHead

SHORTEST_ID = 12
ROOM_FOR_COST = 90
AUTOMATION = (Kind.JOB, Kind.SUBAGENT)
FOLDERS = {
    "archived": SessionFolder.ARCHIVE,
    "trash": SessionFolder.TRASH,
    "automation": SessionFolder.AUTOMATION,
}
COLUMNS = (
    Column("ID"),
    Column("ACTIVE", right=True),
    Column("SOURCE"),
    Column("MSGS", right=True),
    Column("COST", right=True),
    Column("TITLE", flexible=True),
)


@command(
    "list",
    example="sessionary sessions list --since 7d --source telegram\n"
    "sessionary sessions list --json --limit 200 | jq -r '.items[].title'",
)
@click.option("--source", metavar="S", help="Only from this platform.")
@click.option("--kind", type=click.Choice([str(kind) for kind in Kind]), help="Only of this kind.")
@click.option("--project", metavar="P", help="Only in this project.")
@click.option("--model", metavar="M", help="Only with this model.")
@click.option("--archived", is_flag=True, help="Sessions in the archive.")
@click.option("--trash", is_flag=True, help="Sessions in the trash.")
@click.option("--automation", is_flag=True, help="Sessions of jobs and subagents.")
@click.option("--since", metavar="T", help="Active since a date, a time, or 7d for seven days ago.")
@click.option("--until", metavar="T", help="Last active before then.")
@click.option("--open/--ended", "is_open", default=None, help="Only open, or only ended sessions.")
@click.option("--pinned", is_flag=True, help="Only pinned sessions.")
@click.option("--pinned-first", is_flag=True, help="Pinned sessions first.")
@click.option("--text", metavar="WORDS", help="Only with these words in the title or preview.")
@click.option(
    "--sort",
    type=click.Choice([str(each) for each in SortOrder]),
    help="Sort order (default: activity).",
)
@click.option(
    "--limit",
    type=click.IntRange(1, lists.MAX_LIMIT),
    default=50,
    show_default=True,
    metavar="N",
    help="How many to list.",
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_sessions(console: Console, **asked: Any) -> None:
    """List sessions, newest activity first."""
    folder = _folder(asked)
    if asked["sort"] not in (None, SortOrder.ACTIVITY) and (
        asked["pinned"] or asked["pinned_first"]
    ):
        raise click.UsageError("--pinned and --pinned-first need --sort activity.")
    with console.open() as app:
        now = app.moment().now
        filters = _filters(asked, folder=folder, now=now, zone=console.zone(app))
        action = lists.list_pinned_first if asked["pinned_first"] else lists.list_sessions
        page = app.store.read(
            action,
            filters,
            profile=app.profile,
            limit=asked["limit"],
            cursor=asked["cursor"],
        ).result()
        zone = console.zone(app)
    if console.json:
        # A list for people does not need the JSON of messages and parts.
        from sessionary.model.view import head_json

        items = [head_json(head, now=now) for head in page.items]
        console.emit({"items": items, "next": page.next} | page.hidden.to_json())
        return
    if page.items and console.is_terminal:
        rows = _short_rows(page.items, now=now, zone=zone)
        console.print(_fitted(rows, width=console.width))
    elif page.items:
        console.print(_full_table(page.items, now=now))
    else:
        console.note(
            "No sessions." if folder is SessionFolder.CHATS else f"No sessions in the {folder}."
        )
    _note_the_rest(console, page)


def _folder(asked: dict[str, Any]) -> SessionFolder:
    wanted = [folder for name, folder in FOLDERS.items() if asked[name]]
    if len(wanted) > 1:
        raise click.UsageError("--archived, --trash and --automation exclude each other.")
    if not wanted and asked["kind"] in AUTOMATION:
        return SessionFolder.AUTOMATION
    return wanted[0] if wanted else SessionFolder.CHATS


def _filters(
    asked: dict[str, Any], *, folder: SessionFolder, now: datetime, zone: tzinfo | None
) -> lists.SessionFilters:
    since, until = asked["since"], asked["until"]
    begin = None if since is None else times.parse_time(since, now=now, zone=zone)
    end = None if until is None else times.parse_time(until, now=now, zone=zone, at_end=True)
    if begin is not None and end is not None and begin >= end:
        raise BadInput(f"--since {since} is not before --until {until}.")
    return lists.SessionFilters(
        folder=folder,
        platform=asked["source"],
        kind=None if asked["kind"] is None else Kind(asked["kind"]),
        project=asked["project"],
        model=asked["model"],
        since=begin,
        until=end,
        is_open=asked["is_open"],
        pinned=asked["pinned"],
        text=asked["text"],
        order=SortOrder(asked["sort"] or SortOrder.ACTIVITY),
    )


def _short_rows(
    heads: tuple[SessionHead, ...], *, now: datetime, zone: tzinfo | None
) -> list[list[str]]:
    length = _unique_length([head.id for head in heads])
    return [
        [
            head.id[:length],
            times.ago(head.last_active_at, now=now, zone=zone),
            head.source.platform[:14],
            f"{head.message_count:,}",
            money(head.usage.cost_microusd) if head.usage.calls else "",
            _name(head, now=now),
        ]
        for head in heads
    ]


def _unique_length(ids: list[str]) -> int:
    """Return how much of the ids must be shown to tell them apart."""
    longest = max(map(len, ids))
    for length in range(SHORTEST_ID, longest):
        if len({each[:length] for each in ids}) == len(ids):
            return length
    return longest


def _fitted(rows: list[list[str]], *, width: int) -> str:
    columns = list(COLUMNS)
    if width < ROOM_FOR_COST or not any(row[4] for row in rows):
        columns = [column for column in columns if column.heading != "COST"]
        rows = [row[:4] + row[5:] for row in rows]
    return table(columns, rows, width=width)


def _full_table(heads: tuple[SessionHead, ...], *, now: datetime) -> str:
    """Return the table for a pipe: always the same columns, nothing shortened."""
    columns = (
        Column("ID"),
        Column("ACTIVE"),
        Column("SOURCE"),
        Column("MSGS", right=True),
        Column("TITLE"),
    )
    rows = [
        [
            head.id,
            times.second(head.last_active_at),
            head.source.platform.replace(" ", "_"),
            str(head.message_count),
            _name(head, now=now),
        ]
        for head in heads
    ]
    return table(columns, rows, width=None)


def _name(head: SessionHead, *, now: datetime) -> str:
    waiting = ASKING if head.waits_for_people else WAITING if head.is_orphaned(now) else RUNNING
    marks = "".join(
        sign
        for sign, holds in (
            (PINNED, head.pinned),
            (waiting, head.running),
            (ENDED, not head.is_open),
        )
        if holds
    )
    return marks + (head.title or head.preview or "(no text)")


def _note_the_rest(console: Console, page: lists.SessionPage) -> None:
    console.note_more(page.next)
    hidden = page.hidden
    if not hidden.total:
        return
    kinds = (
        (hidden.automation, "automation session", "--automation"),
        (hidden.archived, "archived session", "--archived"),
    )
    there = [(count(number, what), option) for number, what, option in kinds if number]
    least = "At least " if hidden.is_at_least else ""
    are, options = (" and ".join(each[0] for each in there), " or ".join(o for _, o in there))
    console.note(f"{least}{are} not shown; see them with {options}.")
