"""`sessionary sessions show`."""

from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import click

from sessionary.actions.sessions import read
from sessionary.actions.sessions.holds import Hold, list_holds
from sessionary.actions.sessions.lists import MAX_LIMIT
from sessionary.cli import console, times
from sessionary.cli.console import BOLD, DIM, Console, count, money
from sessionary.cli.sessions.refs import find_head, ref_argument
from sessionary.cli.tree import command, pass_console
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.session import SessionHead
from sessionary.model.terminal import one_line, safe_terminal
from sessionary.model.transcript import RECORD
from sessionary.model.turn import Turn, TurnState
from sessionary.model.view import entry_json, head_json, hold_json, turn_json

if TYPE_CHECKING:
    from sessionary.app.context import AppContext

SHOWN_TO_PEOPLE = 100
PAGE = 500
TOOL_TEXT = 300
# Green, cyan, magenta and yellow can be read on light and on dark backgrounds.
ROLE_COLOURS = {Role.USER: "1;32", Role.ASSISTANT: "1;36", Role.SYSTEM: "1;35", Role.TOOL: "1;33"}


@command(
    "show",
    example="sessionary sessions show Capitals --limit 20\n"
    "sessionary sessions show 01jx4k --context --json",
)
@ref_argument
@click.option(
    "--limit", type=click.IntRange(1, MAX_LIMIT), metavar="N", help="The last N messages."
)
@click.option(
    "--before", type=click.IntRange(1), metavar="SEQ", help="Only messages before this entry."
)
@click.option(
    "--after", type=click.IntRange(0), metavar="SEQ", help="Only messages after this entry."
)
@click.option(
    "--around", type=click.IntRange(1), metavar="SEQ", help="Only messages around this entry."
)
@click.option("--all", "everything", is_flag=True, help="The whole transcript.")
@click.option(
    "--raw",
    is_flag=True,
    help="Every entry of the log, as JSON: retracted messages and retractions too.",
)
@click.option("--context", is_flag=True, help="What the model reads.")
@click.option("--plain", is_flag=True, help="Do not render Markdown.")
@pass_console
def show(console: Console, ref: str, **asked: Any) -> None:
    """Print a session's transcript.

    REF is an id, the beginning of one, or a title.
    """
    _refuse_contradictions(asked)
    with console.open() as app:
        head = find_head(app, ref)
        with console.paged():
            if asked["context"]:
                _show_context(console, app, head)
            elif asked["raw"]:
                _show_raw(console, app, head)
            elif asked["everything"]:
                _show_all(console, _Printer(console, app, plain=asked["plain"]), head)
            else:
                _show_window(console, _Printer(console, app, plain=asked["plain"]), head, asked)


def _refuse_contradictions(asked: dict[str, Any]) -> None:
    named = {"--all": "everything"} | {
        f"--{name}": name for name in ("raw", "context", "before", "after", "around")
    }
    given = [flag for flag, name in named.items() if asked[name] not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")


def _show_window(
    console: Console, printer: "_Printer", head: SessionHead, asked: dict[str, Any]
) -> None:
    app = printer.app
    limit = asked["limit"] or (MAX_LIMIT if console.json else SHOWN_TO_PEOPLE)
    window = app.store.read(
        read.read_window,
        head.id,
        profile=app.profile,
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
        console.emit({**_about(app, head), "items": items, "next": edge})
        return
    printer.heading(head)
    for entry in shown:
        printer.entry(entry)
    if edge is not None:
        how = f"--after {edge}" if forward else f"--before {edge}, or --all"
        console.note(f"There are {'later' if forward else 'earlier'} messages: {how}")


def _show_all(console: Console, printer: "_Printer", head: SessionHead) -> None:
    if console.json:
        items = (entry_json(entry) for entry in _walk(printer.app, head))
        console.emit_items(items, before=_about(printer.app, head))
        return
    printer.heading(head)
    for entry in _walk(printer.app, head):
        printer.entry(entry)


def _about(app: "AppContext", head: SessionHead) -> dict[str, Any]:
    held = [hold_json(each.reason, each.until) for each in _holds(app, head)]
    turn = _running_turn(app, head)
    return {
        "session": _session_json(app, head),
        "holds": held,
        "pins": list(read.list_pinned(head)),
        "turn": None if turn is None else turn_json(turn, now=app.moment().now),
    }


def _running_turn(app: "AppContext", head: SessionHead) -> Turn | None:
    if not head.running:
        return None
    return app.store.read(read.get_running_turn, head.id, profile=app.profile).result()


def _holds(app: "AppContext", head: SessionHead) -> list[Hold]:
    return app.store.read(list_holds, head, now=app.moment().now).result()


def _json_text(value: Any, *, ensure_ascii: bool = True) -> str:
    import json  # saves 2 ms for everyone who sees messages of texts only

    return json.dumps(value, ensure_ascii=ensure_ascii)


def _show_raw(console: Console, app: "AppContext", head: SessionHead) -> None:
    items = (entry_json(entry) for entry in _walk_log(app, head))
    if console.json:
        console.emit_items(items, before={"session": _session_json(app, head)})
        return
    for item in items:
        console.print(_json_text(item))


def _origin(app: "AppContext", head: SessionHead) -> read.SessionOrigin:
    return app.store.read(read.get_origin, head.id, profile=app.profile).result()


def _session_json(app: "AppContext", head: SessionHead) -> dict[str, Any]:
    """Return a head as JSON, with where the session comes from."""
    origin = _origin(app, head)
    shown = head_json(head, now=app.clock.now())
    return shown | {"workspace": origin.workspace, "imported": origin.imported}


def _show_context(console: Console, app: "AppContext", head: SessionHead) -> None:
    chats = app.store.read(read.read_context, head.id, profile=app.profile).result()
    if console.json:
        console.emit({"items": chats, "next": None})
        return
    for chat in chats:
        content = chat["content"]
        console.print(f"[{chat['role']}]")
        console.print(content if isinstance(content, str) else _json_text(content))
        for name in ("reasoning", "tool_calls", "tool_call_id"):
            if name in chat:
                console.print(f"  {name}: {_json_text(chat[name], ensure_ascii=False)}")
        console.print()


def _walk(app: "AppContext", head: SessionHead) -> Iterator[Entry]:
    """Yield the whole transcript; each page is a read of its own, so none stays open for long."""
    after, more = 0, True
    while more:
        window = app.store.read(
            read.read_window, head.id, profile=app.profile, limit=PAGE, after=after
        ).result()
        yield from window.entries
        more = window.more_after
        after = window.entries[-1].seq if window.entries else after


def _walk_log(app: "AppContext", head: SessionHead) -> Iterator[Entry]:
    after = 0
    while page := app.store.read(
        read.read_log, head.id, profile=app.profile, after=after, limit=PAGE
    ).result():
        yield from page
        after = page[-1].seq


class _Printer:
    """Prints a transcript, with coloured roles and rendered Markdown if the terminal can show them."""

    def __init__(self, console: Console, app: "AppContext", *, plain: bool) -> None:
        self._console = console
        self.app = app
        self._zone = console.zone(app)
        self._renders = console.has_styles and not plain

    def heading(self, head: SessionHead) -> None:
        """Print the title, id and facts of a session."""
        facts = [
            head.source.description,
            count(head.message_count, "message"),
            f"began {times.clock_time(head.began_at, zone=self._zone)}",
        ]
        if head.model:
            facts.append(head.model)
        if head.usage.calls:
            facts.append(money(head.usage.cost_microusd))
        if head.ended_at is not None:
            facts.append(f"ended ({head.end_reason})")
        if head.project:
            facts.append(f"project {head.project}")
        name = safe_terminal(one_line(head.title or head.preview or "(no text)"))
        held = [_hold_line(each, zone=self._zone) for each in _holds(self.app, head)]
        place = _place(_origin(self.app, head))
        turn = _running_turn(self.app, head)
        running = [] if turn is None else self._turn_lines(turn)
        pinned = [f"#{seq}" for seq in read.list_pinned(head)]
        lines = [head.id, " · ".join(facts), *([place] if place else []), *held, *running]
        lines += [f"pinned: {', '.join(pinned)}"] if pinned else []
        rest = [safe_terminal(one_line(line)) for line in lines]
        self._console.print_styled("\n".join([self._console.style(name, BOLD), *rest, ""]))

    def _turn_lines(self, turn: Turn) -> list[str]:
        """Return what the running turn is doing, and what it asks if it waits for people."""
        lines = [_turn_line(turn, now=self.app.moment().now)]
        if turn.state is TurnState.WAITING:
            from sessionary.actions import questions  # few turns wait for people
            from sessionary.cli.questions import summary

            asked = self.app.store.read(questions.of_turn, turn.id).result()
            lines += [f"question {each.code}: {summary(each)}" for each in asked if each.is_open]
        return lines

    def entry(self, entry: Entry) -> None:
        """Print one entry."""
        console = self._console
        moment = times.clock_time(entry.at, zone=self._zone)
        match entry.body:
            case Message(role=Role.SYSTEM) as record if RECORD in record.extra:
                line = safe_terminal(f"--- {one_line(record.text)} · {moment}")
                console.print_styled(console.style(line, DIM) + "\n")
            case Message() as message:
                person = f" ({one_line(message.person.label, 60)})" if message.person else ""
                role = safe_terminal(f"{message.role}{person}")
                styled = console.style(role, ROLE_COLOURS[message.role])
                lines = [f"#{entry.seq} {styled} · {moment}"]
                lines += [text for part in message.parts if (text := self._part(part))]
                console.print_styled("\n".join(lines) + "\n")
            case Compaction(summary="") as mark:
                console.print(f"--- {mark.heading} · {moment}\n")
            case Compaction(summary, through) as mark:
                heading = mark.heading.replace("Summary", f"Summary of 1 to {through}")
                console.print(f"--- {heading} · {moment}\n{summary}\n---\n")
            case _:
                console.print(f"--- {entry.body} · {moment}\n")

    def _part(self, part: Any) -> str:
        match part:
            case Text(text) if self._renders:
                return console.render_markdown(text, width=self._console.width)
            case Text(text):
                return safe_terminal(text, keep_newlines=True)
            case Reasoning(text):
                quoted = "\n".join(f"  | {line}" for line in text.splitlines())
                return self._console.style(safe_terminal(quoted, keep_newlines=True), DIM)
            case ToolCall() | ToolResult():
                return self._console.style(safe_terminal(tool_line(part)), DIM)
            case Attachment(blob=blob, media_type=media_type, name=name):
                return safe_terminal(
                    f"  [{one_line(name or blob[:12], 80)}, {one_line(media_type, 80)}]"
                )
            case _:
                return safe_terminal(f"  [{one_line(_json_text(part.data), TOOL_TEXT)}]")


def _turn_line(turn: Turn, *, now: datetime) -> str:
    """Return in one line what the running turn is doing."""
    if turn.state is TurnState.WAITING:
        line = "turn waiting for an answer"
    elif turn.is_orphaned(now):
        line = f"turn waiting to go on: {turn.resume_reason or 'its process stopped responding'}"
    else:
        line = f"turn running in {turn.holder}"
    if turn.resumed:
        line += f" · continued {count(turn.resumed, 'time')}"
    return line


def _hold_line(hold: Hold, *, zone: tzinfo | None) -> str:
    end = "" if hold.until is None else f" (until {times.clock_time(hold.until, zone=zone)})"
    return f"held: {hold.reason}{end}"


def _place(origin: read.SessionOrigin) -> str:
    """Return the tool, directory and branch in one line; empty if none is known."""
    facts = []
    if origin.imported is not None:
        facts.append(f"imported from {origin.imported.get('tool') or origin.imported.get('from')}")
    workspace = origin.workspace or {}
    if isinstance(workspace.get("path"), str):
        facts.append(workspace["path"])
    if isinstance(workspace.get("branch"), str):
        facts.append(f"branch {workspace['branch']}")
    return " · ".join(facts)


def tool_line(part: ToolCall | ToolResult) -> str:
    """Return a tool call or its result in one line."""
    if isinstance(part, ToolCall):
        given = part.arguments if isinstance(part.arguments, str) else _json_text(part.arguments)
        return f"  -> {one_line(part.name, 80)} {one_line(given or '', TOOL_TEXT)}"
    text = part.content if isinstance(part.content, str) else _json_text(part.content)
    # Of a call that was cut off, the text says that its outcome is unknown.
    is_failed = part.is_error and part.extra.get("outcome") != "unknown"
    return f"  <- {'failed: ' if is_failed else ''}{one_line(text, TOOL_TEXT)}"
