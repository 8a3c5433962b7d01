"""`sessionary turns …`: the turns of a session, and what the model was sent in them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from sessionary.actions.sessions import model_calls
from sessionary.actions.sessions.model_calls import ListedTurn, SentContext
from sessionary.cli.console import BOLD, DIM, Column, Console, count
from sessionary.cli.sessions.refs import find_head, ref_argument
from sessionary.cli.times import second
from sessionary.cli.tree import command, group, pass_console
from sessionary.model import codec
from sessionary.model.terminal import display_width, one_line, safe_terminal
from sessionary.model.transcript import Chat, chat_text
from sessionary.model.turn import Turn, TurnState
from sessionary.processes import has_ended, short_name


@command("list", example="sessionary turns list Capitals\nsessionary turns list 01jx4k --json")
@ref_argument
@click.option(
    "--limit", default=50, type=click.IntRange(1, 1000), metavar="N", help="How many to list."
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_turns(console: Console, ref: str, *, limit: int, cursor: str | None) -> None:
    """List a session's turns, newest first.

    REF is an id, the beginning of one, or a title.
    """
    with console.open() as app:
        head = find_head(app, ref)
        page = app.store.read(
            model_calls.list_turns, head.id, profile=app.profile, limit=limit, cursor=cursor
        ).result()
        now = app.moment().now
    console.print_list(
        [
            {**model_calls.listed_turn_json(each, now=now), "waiting": is_orphaned(each.turn, now)}
            for each in page.items
        ],
        (
            Column("ID"),
            Column("BEGAN"),
            Column("STATE"),
            Column("CALLS"),
            Column("ENTRY"),
            Column("AGENT"),
            Column("NOTE", flexible=True),
        ),
        [
            [
                each.turn.id,
                second(each.turn.began_at),
                state_of(each.turn, now=now),
                str(each.calls),
                str(each.turn.first_seq),
                each.turn.agent or "",
                one_line(note_of(each, now=now), 200),
            ]
            for each in page.items
        ],
        empty="No turns: nobody has asked an agent in this session.",
        cursor=page.next,
    )


def is_orphaned(turn: Turn, now: datetime) -> bool:
    """Whether a turn waits for another process to continue it: its own has stopped, died or does not respond."""
    is_running = turn.state is TurnState.RUNNING
    return turn.is_orphaned(now) or (is_running and has_ended(turn.holder))


def state_of(turn: Turn, *, now: datetime) -> str:
    """Return the state of a turn in words."""
    if turn.state is TurnState.WAITING:
        return "waiting for an answer"
    return "waiting to go on" if is_orphaned(turn, now) else str(turn.state)


def note_of(listed: ListedTurn, *, now: datetime) -> str:
    """Return why a turn failed, how often it was continued, and who runs it."""
    turn = listed.turn
    notes = [turn.reason.rstrip(".")] if turn.reason else []
    if turn.resumed:
        times = count(turn.resumed, "time")
        why = f" ({turn.resume_reason})" if turn.resume_reason else ""
        notes.append(f"continued {times}{why}, last by {short_name(turn.holder) or 'nobody'}")
    elif is_orphaned(turn, now):
        ended = "has ended" if has_ended(turn.holder) else "stopped responding"
        notes.append(turn.resume_reason or f"{short_name(turn.holder)} {ended}")
    return "; ".join(notes)


@command(
    "context",
    example="sessionary turns context 01k0r2\nsessionary turns context 01k0r2 --call 1 --json",
)
@click.argument("turn_id", metavar="TURN_ID")
@click.option(
    "--call",
    "number",
    type=click.IntRange(1),
    metavar="N",
    help="The model call of the turn, from 1; by default the last.",
)
@pass_console
def show_context(console: Console, turn_id: str, *, number: int | None) -> None:
    """Print what the model was sent in a turn.

    The messages are made again from the log, by the same rules as when they were sent. TURN_ID is a turn's id, or the
    beginning of only one; `turns list` shows them.
    """
    with console.open() as app:
        found = app.store.read(model_calls.find_turn, turn_id, profile=app.profile).result()
        sent = app.store.read(
            model_calls.read_sent_context, found.id, profile=app.profile, number=number
        ).result()
        now = app.moment().now
    if console.json:
        console.emit(model_calls.sent_context_json(sent, now=now))
        return
    with console.paged():
        facts = [(name, value) for name, value in _facts(sent, now=now) if value]
        width = max(display_width(name) for name, _ in facts)
        for name, value in facts:
            console.print(f"{name:{width}}  {one_line(value)}")
        _print_messages(console, sent)


def _facts(sent: SentContext, *, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what a reader wants to know before the messages."""
    turn, call = sent.turn, sent.call
    yield "turn", f"{turn.id} ({state_of(turn, now=now)})"
    yield "session", turn.session_id
    yield "call", f"{call.number} of {sent.calls}" + ("" if call.answer_seq else ", no answer")
    window = "" if sent.window is None else f", reads {sent.window:,} tokens"
    yield "model", f"{sent.model or 'not recorded'}{window}"
    yield "tokens", "" if call.tokens is None else f"{call.tokens:,}, as the provider counted them"
    kinds = [f"{kind} {tokens:,}" for kind, tokens in sent.tokens_by_kind.items() if tokens]
    yield "estimated", " · ".join(kinds)
    compaction = sent.compaction
    if compaction is not None:
        body = compaction.body
        if body.through:
            yield "compacted", f"entries 1 to {body.through} are a summary (entry {compaction.seq})"
        yield "word for word", ", ".join(map(str, body.kept))
    yield "shortened", ", ".join(f"entry {seq}" for seq in sent.shortened)
    yield "settings", codec.encode(dict(sent.settings)) if sent.settings else ""
    if turn.resumed:
        yield "continued", f"{count(turn.resumed, 'time')}: {turn.resume_reason or ''}"


def _print_messages(console: Console, sent: SentContext) -> None:
    if sent.system_prompt is not None:
        _print_heading(console, "system prompt", "")
        console.print(sent.system_prompt)
    if sent.tools:
        _print_heading(console, "tools", ", ".join(str(each.get("name")) for each in sent.tools))
    body = None if sent.compaction is None else sent.compaction.body
    for seq, chat in zip(sent.seqs, sent.messages, strict=True):
        notes = [f"#{seq}"] if seq else ["summary"]
        if body is not None and 0 < seq <= body.through:
            notes.append("kept word for word")
        if seq in sent.shortened:
            notes.append("shortened")
        _print_heading(console, str(chat["role"]), " · ".join(notes))
        _print_chat(console, chat)


def _print_heading(console: Console, title: str, notes: str) -> None:
    styled = console.style(safe_terminal(one_line(title)), BOLD)
    console.print_styled(f"\n{styled} {safe_terminal(one_line(notes))}".rstrip())


def _print_chat(console: Console, chat: Chat) -> None:
    extra: dict[str, Any] = {**chat}
    text = chat_text(extra.pop("content"))
    if text:
        console.print(text)
    for name in ("reasoning", "tool_calls", "tool_call_id"):
        if name in extra:
            value = extra[name] if isinstance(extra[name], str) else codec.encode(extra[name])
            console.print_styled(
                console.style(safe_terminal(f"  {name}: {value}", keep_newlines=True), DIM)
            )


turns = group("turns", "List turns, and see what the model was sent.", [list_turns, show_context])
