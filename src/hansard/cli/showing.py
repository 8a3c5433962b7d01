"""`hansard sessions show`."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from hansard.actions import read
from hansard.actions.listing import MAX_LIMIT
from hansard.cli import times
from hansard.cli.console import Console
from hansard.cli.refs import ref_argument
from hansard.cli.table import count, money
from hansard.cli.tree import command, pass_console
from hansard.model.entry import Compaction, Entry, Message
from hansard.model.part import Attachment, Reasoning, Text, ToolCall, ToolResult
from hansard.model.session import SessionHead
from hansard.model.terminal import one_line
from hansard.model.view import entry_json, head_json

if TYPE_CHECKING:
    from hansard.app.house import House

SHOWN_TO_PEOPLE = 100
PAGE = 500
TOOL_TEXT = 300


@command(
    "show",
    example="hansard sessions show Capitals --limit 20\n"
    "hansard sessions show 01jx4k --context --json",
)
@ref_argument
@click.option("--limit", type=click.IntRange(1, MAX_LIMIT), help="The last N messages.")
@click.option("--before", type=click.IntRange(1), metavar="SEQ", help="Those before an entry.")
@click.option("--after", type=click.IntRange(0), metavar="SEQ", help="Those after an entry.")
@click.option("--around", type=click.IntRange(1), metavar="SEQ", help="Those around an entry.")
@click.option("--all", "everything", is_flag=True, help="The whole transcript.")
@click.option("--raw", is_flag=True, help="The log itself: what was taken back, and marks, too.")
@click.option("--context", is_flag=True, help="What the model reads.")
@pass_console
def show(console: Console, ref: str, **asked: Any) -> None:
    """Print a session's transcript.

    REF is an id, the beginning of one, or a title.
    """
    _refuse_contradictions(asked)
    with console.house() as house:
        head = house.head(ref)
        if asked["context"]:
            _show_context(console, house, head)
        elif asked["raw"]:
            _show_raw(console, house, head)
        elif asked["everything"]:
            _show_all(console, house, head)
        else:
            _show_window(console, house, head, asked)


def _refuse_contradictions(asked: dict[str, Any]) -> None:
    named = {"--all": "everything"} | {
        f"--{name}": name for name in ("raw", "context", "before", "after", "around")
    }
    given = [flag for flag, name in named.items() if asked[name] not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")


def _show_window(
    console: Console, house: "House", head: SessionHead, asked: dict[str, Any]
) -> None:
    limit = asked["limit"] or (MAX_LIMIT if console.json else SHOWN_TO_PEOPLE)
    window = house.reading(
        read.window,
        head.id,
        profile=house.profile,
        limit=limit,
        before=asked["before"],
        after=asked["after"],
        around=asked["around"],
    ).result()
    shown = window.entries
    forward = asked["after"] is not None
    more = (window.more_after if forward else window.more_before) and bool(shown)
    edge = str(shown[-1 if forward else 0].seq) if more else None
    if console.json:
        items = [entry_json(entry) for entry in shown]
        console.emit({"session": head_json(head), "items": items, "next": edge})
        return
    console.print(_heading(house, head))
    for entry in shown:
        console.print(_entry_text(house, entry))
    if edge is not None:
        how = f"--after {edge}" if forward else f"--before {edge}, or --all"
        console.note(f"There are {'later' if forward else 'earlier'} messages: {how}")


def _show_all(console: Console, house: "House", head: SessionHead) -> None:
    if console.json:
        items = (entry_json(entry) for entry in _walk(house, head))
        console.emit_items(items, before={"session": head_json(head)})
        return
    console.print(_heading(house, head))
    for entry in _walk(house, head):
        console.print(_entry_text(house, entry))


def _show_raw(console: Console, house: "House", head: SessionHead) -> None:
    items = (entry_json(entry) for entry in _walk_log(house, head))
    if console.json:
        console.emit_items(items, before={"session": head_json(head)})
        return
    for item in items:
        console.print(json.dumps(item))


def _show_context(console: Console, house: "House", head: SessionHead) -> None:
    chats = house.reading(read.context, head.id, profile=house.profile).result()
    if console.json:
        console.emit({"items": chats, "next": None})
        return
    for chat in chats:
        content = chat["content"]
        console.print(f"[{chat['role']}]")
        console.print(content if isinstance(content, str) else json.dumps(content))
        for name in ("reasoning", "tool_calls", "tool_call_id"):
            if name in chat:
                console.print(f"  {name}: {json.dumps(chat[name], ensure_ascii=False)}")
        console.print()


def _walk(house: "House", head: SessionHead) -> Iterator[Entry]:
    """The whole transcript, a page at a time: no reader stays open for long."""
    after, more = 0, True
    while more:
        window = house.reading(
            read.window, head.id, profile=house.profile, limit=PAGE, after=after
        ).result()
        yield from window.entries
        more = window.more_after
        after = window.entries[-1].seq if window.entries else after


def _walk_log(house: "House", head: SessionHead) -> Iterator[Entry]:
    after = 0
    while page := house.reading(
        read.log_of, head.id, profile=house.profile, after=after, limit=PAGE
    ).result():
        yield from page
        after = page[-1].seq


def _heading(house: "House", head: SessionHead) -> str:
    zone = house.config.zone
    facts = [
        head.source.description,
        count(head.message_count, "message"),
        f"began {times.clock_time(head.began_at, zone=zone)}",
    ]
    if head.model:
        facts.append(head.model)
    if head.usage.calls:
        facts.append(money(head.usage.cost_microusd))
    if head.ended_at is not None:
        facts.append(f"ended ({head.end_reason})")
    if head.project:
        facts.append(f"project {head.project}")
    lines = [head.title or head.preview or "(no words)", head.id, " · ".join(facts)]
    return "\n".join(one_line(line) for line in lines) + "\n"


def _entry_text(house: "House", entry: Entry) -> str:
    when = times.clock_time(entry.at, zone=house.config.zone)
    match entry.body:
        case Message() as said:
            person = f" ({one_line(said.person.label, 60)})" if said.person else ""
            lines = [f"#{entry.seq} {said.role}{person} · {when}"]
            lines += [line for part in said.parts if (line := _part_text(part))]
            return "\n".join(lines) + "\n"
        case Compaction(summary, through):
            return f"--- summary of 1 to {through}, for the model · {when}\n{summary}\n---\n"
        case _:
            return f"--- {entry.body} · {when}\n"


def _part_text(part: Any) -> str:
    match part:
        case Text(text):
            return text
        case Reasoning(text):
            return "\n".join(f"  | {line}" for line in text.splitlines())
        case ToolCall(id=_, name=name, arguments=arguments):
            given = arguments if isinstance(arguments, str) else json.dumps(arguments)
            return f"  -> {one_line(name, 80)} {one_line(given or '', TOOL_TEXT)}"
        case ToolResult(content=content, is_error=is_error):
            text = content if isinstance(content, str) else json.dumps(content)
            return f"  <- {'failed: ' if is_error else ''}{one_line(text, TOOL_TEXT)}"
        case Attachment(blob=blob, media_type=media_type, name=name):
            return f"  [{one_line(name or blob[:12], 80)}, {one_line(media_type, 80)}]"
        case _:
            return f"  [{one_line(json.dumps(part.data), TOOL_TEXT)}]"
