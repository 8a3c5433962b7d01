"""`sessionary sessions rename`, `pin`, `archive`, `trash`, … : one change to one session."""

from collections.abc import Callable

import click

from sessionary.actions.sessions import projects
from sessionary.cli.console import Console
from sessionary.cli.refs import find_head, find_session, ref_argument
from sessionary.cli.table import count
from sessionary.cli.tree import command, pass_console
from sessionary.client.session import Session
from sessionary.model.session import SessionHead
from sessionary.model.view import head_json


def _change(
    console: Console, ref: str, change: Callable[[Session], SessionHead], what: str
) -> None:
    """Change the session a person means, and say what it is now."""
    with console.client() as client:
        head = change(find_session(client, ref))
    _tell(console, head, what)


def _tell(console: Console, head: SessionHead, what: str) -> None:
    name = head.title or head.preview or ""
    console.answer(head_json(head), f"{head.id} {what}: {name}" if name else f"{head.id} {what}")


@command("rename", example='sessionary sessions rename 01jx4k "Capitals of Europe"')
@ref_argument
@click.argument("title", metavar="TITLE")
@pass_console
def rename(console: Console, ref: str, title: str) -> None:
    """Give a session a title, or take it away with an empty one."""
    _change(console, ref, lambda session: session.rename(title), "renamed")


@command("pin", example="sessionary sessions pin Capitals")
@ref_argument
@pass_console
def pin(console: Console, ref: str) -> None:
    """Keep a session at the top of lists."""
    _change(console, ref, lambda session: session.pin(), "pinned")


@command("unpin", example="sessionary sessions unpin Capitals")
@ref_argument
@pass_console
def unpin(console: Console, ref: str) -> None:
    """Keep a session at the top no longer."""
    _change(console, ref, lambda session: session.pin(pinned=False), "unpinned")


@command("archive", example="sessionary sessions archive Capitals")
@ref_argument
@pass_console
def archive(console: Console, ref: str) -> None:
    """Put a session out of the way; `list --archived` shows it."""
    _change(console, ref, lambda session: session.archive(), "archived")


@command("unarchive", example="sessionary sessions unarchive Capitals")
@ref_argument
@pass_console
def unarchive(console: Console, ref: str) -> None:
    """Bring a session back from the archive."""
    _change(console, ref, lambda session: session.archive(archived=False), "unarchived")


@command("trash", example="sessionary sessions trash Capitals")
@ref_argument
@pass_console
def trash(console: Console, ref: str) -> None:
    """Put a session and its subagents into the trash for 30 days; `restore` takes them out."""
    _change(console, ref, Session.trash, "trashed")


@command("restore", example="sessionary sessions restore Capitals")
@ref_argument
@pass_console
def restore(console: Console, ref: str) -> None:
    """Take a session out of the trash as it was, with the subagents that went with it."""
    _change(console, ref, Session.restore, "restored")


@command("purge", example="sessionary sessions purge Capitals --yes")
@ref_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_console
def purge(console: Console, ref: str, *, yes: bool) -> None:
    """Delete a session's words for ever.

    What other sessions continue from is kept for them; what it cost stays in the ledger.
    """
    with console.client() as client:
        head = find_head(client, ref)
        name = (
            f"{head.id} ({head.title or head.preview})" if head.preview or head.title else head.id
        )
        said = count(head.message_count, "message")
        console.confirm(f"Session {name} with {said} would be gone for ever.", yes=yes)
        gone = client.find(head.id).purge()
    value = {
        "session_id": gone.session_id,
        "entries": gone.entries,
        "kept_for_others": gone.kept_for_others,
    }
    kept = (
        f"; {count(gone.kept_for_others, 'entry')} kept for forks" if gone.kept_for_others else ""
    )
    console.answer(value, f"{gone.session_id} purged: {count(gone.entries, 'entry')} gone{kept}")


@command("fork", example='sessionary sessions fork Capitals --at 4 --title "Capitals, again"')
@ref_argument
@click.option("--at", type=click.IntRange(1), metavar="SEQ", help="The last entry to take over.")
@click.option("--title", metavar="TITLE", help="The fork's title.")
@pass_console
def fork(console: Console, ref: str, *, at: int | None, title: str | None) -> None:
    """Begin a session whose history is another's up to an entry; nothing is copied."""
    with console.client() as client:
        head = find_session(client, ref).fork(at, title=title).head()
    _tell(console, head, "forked")


@command("end", example="sessionary sessions end Capitals")
@ref_argument
@click.option("--reason", default="closed", show_default=True, help="Why it is over.")
@pass_console
def end(console: Console, ref: str, *, reason: str) -> None:
    """Close a session; the first reason wins."""
    _change(console, ref, lambda session: session.end(reason), "ended")


@command("reopen", example="sessionary sessions reopen Capitals")
@ref_argument
@pass_console
def reopen(console: Console, ref: str) -> None:
    """Let a session go on."""
    _change(console, ref, Session.reopen, "reopened")


@command(
    "move",
    example="sessionary sessions move Capitals Geography\nsessionary sessions move Capitals --none",
)
@ref_argument
@click.argument("project", required=False)
@click.option("--none", "to_none", is_flag=True, help="Into no project.")
@pass_console
def move(console: Console, ref: str, project: str | None, *, to_none: bool) -> None:
    """Put a session into a project, or with --none into none."""
    if (project is None) is not to_none:
        raise click.UsageError("Name a project, or give --none.")
    with console.client() as client:
        head = client.writing(
            projects.move, find_head(client, ref).id, project, profile=client.profile
        ).result()
    _tell(console, head, "moved")


@command("undo", example="sessionary sessions undo Capitals\nsessionary sessions undo Capitals 3")
@ref_argument
@click.argument("rounds", type=click.IntRange(1), default=1, metavar="[N]")
@pass_console
def undo(console: Console, ref: str, rounds: int) -> None:
    """Take back the last N messages of the person and what followed; nothing is deleted."""
    _change(console, ref, lambda session: session.undo(rounds), "undone")
