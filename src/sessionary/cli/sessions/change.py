"""`sessionary sessions append`, `rename`, `pin`, `trash`, …: one change to one session."""

import asyncio
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sessionary.actions.retention import purge as purging
from sessionary.actions.sessions import append as appending
from sessionary.actions.sessions import choice, edit, holds, pins, projects, revise
from sessionary.cli.console import Console, count, read_input
from sessionary.cli.sessions.refs import find_head, ref_argument
from sessionary.cli.times import clock_time, parse_time, span
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput, Conflict
from sessionary.model.message import MAX_SEQ, Role, message
from sessionary.model.session import Kind, Opening, SessionHead
from sessionary.model.source import TERMINAL, Person, Source
from sessionary.model.usage import Usage
from sessionary.model.view import head_json, hold_json

if TYPE_CHECKING:
    from sessionary.app.context import AppContext


# The words for what a session has if nothing was chosen.
CHOICE_DEFAULTS = {"agent": "default", "model": "default", "persona": "none", "tools": "all"}
# Changes the session with an id, and returns it as it is then.
Change = Callable[["AppContext", str], SessionHead]


def _change(console: Console, ref: str, change: Change, what: str) -> None:
    """Change the session that a person names, and print it as it is now."""
    with console.open() as app:
        head = change(app, find_head(app, ref).id)
    _tell(console, head, what, now=app.clock.now())


def _tell(console: Console, head: SessionHead, what: str, *, now: datetime) -> None:
    name = head.title or head.preview or ""
    text = f"{head.id} {what}: {name}" if name else f"{head.id} {what}"
    console.answer(head_json(head, now=now), text)


def _change_command(name: str, about: str, change: Change, what: str) -> click.Command:
    """Make a command that takes nothing but a session."""

    @command(name, example=f"sessionary sessions {name} Capitals", help=about)
    @ref_argument
    @pass_console
    def change_session(console: Console, ref: str) -> None:
        _change(console, ref, change, what)

    return change_session


def _set_pinned(app: "AppContext", id: str, *, pinned: bool) -> SessionHead:
    return app.store.write(edit.pin, id, profile=app.profile, pinned=pinned).result()


def _set_archived(app: "AppContext", id: str, *, archived: bool) -> SessionHead:
    return app.store.write(edit.archive, id, profile=app.profile, archived=archived).result()


def _trash(app: "AppContext", id: str) -> SessionHead:
    return app.store.write(edit.trash, id, profile=app.profile, moment=app.moment()).result()


def _restore(app: "AppContext", id: str) -> SessionHead:
    return app.store.write(edit.restore, id, profile=app.profile).result()


def _reopen(app: "AppContext", id: str) -> SessionHead:
    return app.store.write(edit.reopen, id, profile=app.profile).result()


pin = _change_command(
    "pin", "Keep a session at the top of lists.", partial(_set_pinned, pinned=True), "pinned"
)
unpin = _change_command(
    "unpin",
    "No longer keep a session at the top of lists.",
    partial(_set_pinned, pinned=False),
    "unpinned",
)


def _pin_command(name: str, about: str, change: Callable[..., SessionHead], what: str) -> Any:
    """Make a command that pins or unpins a message."""

    @command(name, example=f"sessionary sessions {name} Capitals 12", help=about)
    @ref_argument
    @click.argument("seq", type=click.IntRange(1, MAX_SEQ), metavar="SEQ")
    @pass_console
    def change_pin(console: Console, ref: str, seq: int) -> None:
        with console.open() as app:
            id = find_head(app, ref).id
            head = app.store.write(
                change, id, seq, profile=app.profile, by=None, moment=app.moment()
            ).result()
        _tell(console, head, f"{what} message {seq}", now=app.clock.now())

    return change_pin


pin_message = _pin_command(
    "pin-message",
    "Keep a message for the model: it reads it word for word also after a compaction.",
    pins.pin_message,
    "pinned",
)
unpin_message = _pin_command(
    "unpin-message",
    "Unpin a message; a later compaction summarizes it like any other.",
    pins.unpin_message,
    "unpinned",
)
archive = _change_command(
    "archive",
    "Hide a session from the list; `list --archived` shows it.",
    partial(_set_archived, archived=True),
    "archived",
)
unarchive = _change_command(
    "unarchive",
    "Bring a session back from the archive.",
    partial(_set_archived, archived=False),
    "unarchived",
)
trash = _change_command(
    "trash",
    "Move a session and its subagents to the trash for 30 days; `restore` takes them out.",
    _trash,
    "trashed",
)
restore = _change_command(
    "restore",
    "Take a session out of the trash, with the subagents that were trashed with it.",
    _restore,
    "restored",
)
reopen = _change_command("reopen", "Open an ended session again.", _reopen, "reopened")


@command("rename", example='sessionary sessions rename 01jx4k "Capitals of Europe"')
@ref_argument
@click.argument("title", metavar="TITLE")
@pass_console
def rename(console: Console, ref: str, title: str) -> None:
    """Give a session a title; an empty one removes it."""
    with console.open() as app:
        id = find_head(app, ref).id
        head = app.store.write(edit.rename, id, title, profile=app.profile).result()
    _tell(console, head, "renamed", now=app.clock.now())


@command(
    "choose",
    example="sessionary sessions choose Capitals --model gpt-5-mini --tools 'files_*'\n"
    "sessionary sessions choose Capitals --agent default --persona none",
)
@ref_argument
@click.option("--agent", metavar="NAME", help="Which agent answers; `default`: the default one.")
@click.option("--model", metavar="NAME", help="Which model answers; `default`: the agent's own.")
@click.option("--persona", metavar="NAME", help="Which persona the agent has, or `none`.")
@click.option(
    "--tools", metavar="NAMES", help="Which tools it may use: names or patterns, `all` or `none`."
)
@pass_console
def choose_settings(console: Console, ref: str, **asked: str | None) -> None:
    """Choose the agent, model, persona or tools of a session.

    The change is recorded in the session's log. While a turn is running, it takes effect with the next one.
    """
    changes: dict[str, Any] = {
        name: None if value == CHOICE_DEFAULTS[name] else value
        for name, value in asked.items()
        if value is not None
    }
    if not changes:
        raise click.UsageError("Give --agent, --model, --persona or --tools.")
    if changes.get("tools") is not None:
        names = changes["tools"].replace(",", " ").split()
        changes["tools"] = [] if names == ["none"] else names
    from sessionary.app.context import user_name  # `--help` does not need it

    with console.open() as app:
        head = app.store.write(
            choice.choose,
            find_head(app, ref),
            changes,
            by=Person(user_name()),
            moment=app.moment(),
            catalog=app.catalog,
        ).result()
    _tell(console, head, "changed", now=app.clock.now())


@command("purge", example="sessionary sessions purge Capitals --yes")
@ref_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_console
def purge(console: Console, ref: str, *, yes: bool) -> None:
    """Delete a session's messages forever.

    Messages that forks of it continue from are kept for them. Its usage stays in the reports.
    """
    with console.open() as app:
        head = find_head(app, ref)
        name = (
            f"{head.id} ({head.title or head.preview})" if head.preview or head.title else head.id
        )
        messages = count(head.message_count, "message")
        console.confirm(f"Session {name} with {messages} would be deleted forever.", yes=yes)
        gone = app.store.write(
            purging.purge, head.id, profile=app.profile, moment=app.moment()
        ).result()
    value = {
        "session_id": gone.session_id,
        "entries": gone.entries,
        "kept_for_others": gone.kept_for_others,
    }
    kept = (
        f"; {count(gone.kept_for_others, 'entry')} kept for forks" if gone.kept_for_others else ""
    )
    console.answer(value, f"{gone.session_id} purged: {count(gone.entries, 'entry')} deleted{kept}")


@command("fork", example='sessionary sessions fork Capitals --at 4 --title "Capitals, again"')
@ref_argument
@click.option("--at", type=click.IntRange(1), metavar="SEQ", help="The last entry to include.")
@click.option("--title", metavar="TITLE", help="The fork's title.")
@pass_console
def fork(console: Console, ref: str, *, at: int | None, title: str | None) -> None:
    """Begin a session with another's history up to an entry; nothing is copied."""
    with console.open() as app:
        head = app.store.write(
            edit.fork,
            find_head(app, ref).id,
            profile=app.profile,
            moment=app.moment(),
            at_seq=at,
            title=title,
        ).result()
    _tell(console, head, "forked", now=app.clock.now())


@command("stop", example="sessionary sessions stop Capitals")
@ref_argument
@click.option("--reason", default="stopped by you", show_default=True, help="Why it is stopped.")
@pass_console
def stop(console: Console, ref: str, *, reason: str) -> None:
    """Stop the running turn of a session.

    What it has written so far is kept. A turn that waits for a server to go on, or for an answer to its question, is
    ended, too.
    """
    from sessionary.app import ask  # loads the engine, which other changes do not need

    with console.open() as app:
        head = find_head(app, ref)
        was_running, has_ended = asyncio.run(ask.stop_turn(app, head, reason=reason))
    if not was_running:
        raise Conflict(f"No turn is running in session {head.id}; nothing was changed.")
    what = "was stopped" if has_ended else "is asked to stop; the process that runs it ends it"
    console.answer(
        {"session_id": head.id, "stopping": True, "ended": has_ended},
        f"The turn in session {head.id} {what}.",
    )


@command("end", example="sessionary sessions end Capitals")
@ref_argument
@click.option("--reason", default="closed", show_default=True, help="Why it ended.")
@pass_console
def end(console: Console, ref: str, *, reason: str) -> None:
    """Close a session. One that has ended keeps its reason."""
    with console.open() as app:
        id, moment = find_head(app, ref).id, app.moment()
        head = app.store.write(
            edit.end, id, profile=app.profile, moment=moment, reason=reason
        ).result()
    _tell(console, head, "ended", now=app.clock.now())


@command(
    "move",
    example="sessionary sessions move Capitals Geography\nsessionary sessions move Capitals --none",
)
@ref_argument
@click.argument("project", required=False)
@click.option("--none", "to_none", is_flag=True, help="Take it out of its project.")
@pass_console
def move(console: Console, ref: str, project: str | None, *, to_none: bool) -> None:
    """Move a session to a project, or out of one with --none."""
    if (project is None) is not to_none:
        raise click.UsageError("Name a project, or give --none.")
    with console.open() as app:
        head = app.store.write(
            projects.move_session, find_head(app, ref).id, project, profile=app.profile
        ).result()
    _tell(console, head, "moved", now=app.clock.now())


@command("undo", example="sessionary sessions undo Capitals\nsessionary sessions undo Capitals 3")
@ref_argument
@click.argument("rounds", type=click.IntRange(1), default=1, metavar="[N]")
@pass_console
def undo(console: Console, ref: str, rounds: int) -> None:
    """Take back the person's last N messages and the replies to them; nothing is deleted."""
    with console.open() as app:
        id, now = find_head(app, ref).id, app.clock.now()
        head = app.store.write(revise.undo, id, profile=app.profile, rounds=rounds, at=now).result()
    _tell(console, head, "undone", now=app.clock.now())


NEW = "new"
ONLY_WITH_NEW = ("title", "source", "chat", "kind")
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
TOKEN_COUNT = click.IntRange(0)


@command(
    "append",
    example='sessionary sessions append new --role user "What is the capital of Portugal?"\n'
    "git log -1 | sessionary sessions append Capitals --role user -\n"
    "sessionary sessions append Capitals --role assistant -- --lisbon",
)
@ref_argument
@click.argument("text", metavar="TEXT")
@click.option(
    "--role",
    # A tool result belongs to a call, which a text cannot name.
    type=click.Choice([str(role) for role in Role if role is not Role.TOOL]),
    default=str(Role.USER),
    show_default=True,
    help="Who wrote it.",
)
@click.option(
    "--idempotency-key",
    "idempotency_key",
    metavar="KEY",
    help="A message with the same key is added once.",
)
@click.option("--person", metavar="ID", help="The id of the person who wrote it.")
@click.option("--title", metavar="TITLE", help="With new: the session's title.")
@click.option("--source", metavar="PLATFORM", help="With new: the platform (default: terminal).")
@click.option("--chat", metavar="ID", help="With new: the chat on that platform.")
@click.option("--kind", type=click.Choice([str(kind) for kind in Kind]), help="With new: its kind.")
@click.option("--model", metavar="M", help="The model that was called.")
@click.option("--provider", metavar="P", help="Who serves the model.")
@click.option("--input-tokens", type=TOKEN_COUNT, metavar="N", help="Tokens that the call read.")
@click.option("--output-tokens", type=TOKEN_COUNT, metavar="N", help="Tokens that the call wrote.")
@click.option(
    "--cache-read-tokens", type=TOKEN_COUNT, metavar="N", help="Tokens read from the cache."
)
@click.option(
    "--cache-write-tokens", type=TOKEN_COUNT, metavar="N", help="Tokens written to the cache."
)
@pass_console
def append(console: Console, ref: str, text: str, **asked: Any) -> None:
    """Add one message to a session; it is stored when the command ends.

    REF is an id, the beginning of one, a title, or `new` for a new session. TEXT `-` reads standard
    input; a text that begins with a dash must follow `--`.
    """
    if ref != NEW:
        for name in ONLY_WITH_NEW:
            if asked[name] is not None:
                raise click.UsageError(f"--{name} needs REF new.")
    content = read_input() if text == "-" else text
    if not content:
        raise BadInput("There is no text to append; nothing was written.")
    person = None if asked["person"] is None else Person(asked["person"])
    with console.open(create=ref == NEW) as app:
        new = appending.NewMessage(
            message(asked["role"], content, person=person),
            idempotency_key=asked["idempotency_key"],
            usage=app.priced(_usage(asked)),
        )
        if ref == NEW:
            pending = app.store.write(
                appending.append_to_new_session, _opening(app, asked), new, moment=app.moment()
            )
        else:
            id = find_head(app, ref).id
            pending = app.store.write(
                appending.append_to_session, id, new, profile=app.profile, moment=app.moment()
            )
        done = pending.result()
    value = {"id": done.id, "session_id": done.session_id, "seq": done.seq}
    again = " (already stored)" if done.repeated else ""
    console.answer(value | {"repeated": done.repeated}, f"{done.session_id} #{done.seq}{again}")


def _opening(app: "AppContext", asked: dict[str, Any]) -> Opening:
    source = Source(platform=asked["source"] or TERMINAL, chat_id=asked["chat"])
    kind = Kind(asked["kind"] or Kind.CHAT)
    return Opening(app.profile, source, kind=kind, title=asked["title"])


def _usage(asked: dict[str, Any]) -> Usage | None:
    tokens: dict[str, Any] = {name: asked[name] or 0 for name in TOKENS}
    if asked["model"] is None:
        if any(asked[name] is not None for name in (*TOKENS, "provider")):
            raise click.UsageError("Token counts need --model.")
        return None
    return Usage(model=asked["model"], provider=asked["provider"], **tokens)


@command(
    "hold",
    example='sessionary sessions hold Capitals --reason "the build is running" --until 2h\n'
    "sessionary sessions hold Capitals --reason audit --until 2026-12-31",
)
@ref_argument
@click.option("--reason", required=True, metavar="TEXT", help="Why it must not be reset.")
@click.option(
    "--until", metavar="TIME", help="A date, a time, or a span from now. Default: until released."
)
@pass_console
def hold(console: Console, ref: str, *, reason: str, until: str | None) -> None:
    """Keep a session from being reset by its policy, until a time or until it is released.

    An explicit command (/new, a switch, `sessions end`) still ends it.
    """
    with console.open() as app:
        zone = app.config.zone
        end = None if until is None else _hold_end(until, now=app.moment().now, zone=zone)
        id = find_head(app, ref).id
        made = app.store.write(
            holds.add_hold, id, reason, profile=app.profile, moment=app.moment(), until=end
        ).result()
    moment = "until it is released" if end is None else f"until {clock_time(end, zone=zone)}"
    value = {"session_id": id, **hold_json(made.reason, made.until)}
    console.answer(value, f"{id} is held {moment}: {made.reason}")


@command(
    "release",
    example='sessionary sessions release Capitals --reason "the build is running"\n'
    "sessionary sessions release Capitals",
)
@ref_argument
@click.option("--reason", metavar="TEXT", help="Which hold. Default: all of them.")
@pass_console
def release(console: Console, ref: str, *, reason: str | None) -> None:
    """Release one hold of a session, or all of them."""
    with console.open() as app:
        id = find_head(app, ref).id
        gone = app.store.write(
            holds.release_hold, id, reason, profile=app.profile, moment=app.moment()
        ).result()
    items = [hold_json(each.reason, each.until) for each in gone]
    names = ", ".join(each.reason for each in gone)
    text = f"{id} is released: {names}" if gone else f"{id} was not held."
    console.answer({"session_id": id, "items": items, "next": None}, text)


def _hold_end(text: str, *, now: datetime, zone: tzinfo) -> datetime:
    """Read a time in the future; a span counts from now."""
    try:
        length = span(text)
    except BadInput:
        return parse_time(text, now=now, zone=zone, at_end=True)
    try:
        return now + length
    except OverflowError:
        raise BadInput(f"{text!r} from now is after the year 9999.") from None


COMMANDS: dict[str, click.Command] = {
    "append": append,
    "rename": rename,
    "choose": choose_settings,
    "pin": pin,
    "unpin": unpin,
    "pin-message": pin_message,
    "unpin-message": unpin_message,
    "archive": archive,
    "unarchive": unarchive,
    "trash": trash,
    "restore": restore,
    "purge": purge,
    "fork": fork,
    "stop": stop,
    "end": end,
    "reopen": reopen,
    "hold": hold,
    "release": release,
    "move": move,
    "undo": undo,
}
