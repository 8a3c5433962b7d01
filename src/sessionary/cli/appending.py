"""`sessionary sessions append`."""

from typing import TYPE_CHECKING, Any

import click

from sessionary.cli.console import Console, read_input
from sessionary.cli.refs import find_session, ref_argument
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput
from sessionary.model.message import Role
from sessionary.model.session import Kind
from sessionary.model.source import TERMINAL, Person, Source
from sessionary.model.usage import Usage

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary
    from sessionary.client.session import Session

NEW = "new"
ONLY_WITH_NEW = ("title", "source", "chat", "kind")
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
COUNT = click.IntRange(0)


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
    # What a tool answers belongs to a call, which a text cannot name.
    type=click.Choice([str(role) for role in Role if role is not Role.TOOL]),
    default=str(Role.USER),
    show_default=True,
    help="Who says it.",
)
@click.option(
    "--idempotency-key", "idempotency_key", metavar="KEY", help="The same key twice adds it once."
)
@click.option("--person", metavar="ID", help="Who wrote it.")
@click.option("--title", metavar="TITLE", help="With new: the session's title.")
@click.option("--source", metavar="PLATFORM", help="With new: where it comes from (terminal).")
@click.option("--chat", metavar="ID", help="With new: the chat on that platform.")
@click.option("--kind", type=click.Choice([str(kind) for kind in Kind]), help="With new: its kind.")
@click.option("--model", metavar="M", help="The model that was called.")
@click.option("--provider", metavar="P", help="Whose model it was.")
@click.option("--input-tokens", type=COUNT, help="What the call read.")
@click.option("--output-tokens", type=COUNT, help="What the call wrote.")
@click.option("--cache-read-tokens", type=COUNT, help="What it read from the cache.")
@click.option("--cache-write-tokens", type=COUNT, help="What it wrote to the cache.")
@pass_console
def append(console: Console, ref: str, text: str, **asked: Any) -> None:
    """Add one message to a session, durable when this ends.

    REF is an id, the beginning of one, a title, or `new` for a session that begins with this
    message. TEXT `-` reads standard input; text that begins with a dash follows `--`.
    """
    if ref != NEW:
        for name in ONLY_WITH_NEW:
            if asked[name] is not None:
                raise click.UsageError(f"--{name} goes with REF new only.")
    words = read_input() if text == "-" else text
    if not words:
        raise BadInput("There is no text to append; nothing was written.")
    person = None if asked["person"] is None else Person(asked["person"])
    with console.client(create=ref == NEW) as client:
        session = _new_session(client, asked) if ref == NEW else find_session(client, ref)
        done = session.append(
            asked["role"],
            words,
            idempotency_key=asked["idempotency_key"],
            usage=_usage(asked),
            person=person,
        )
    value = {"id": done.id, "session_id": done.session_id, "seq": done.seq}
    again = " (it was there already)" if done.repeated else ""
    console.answer(value | {"repeated": done.repeated}, f"{done.session_id} #{done.seq}{again}")


def _new_session(client: "Sessionary", asked: dict[str, Any]) -> "Session":
    source = Source(platform=asked["source"] or TERMINAL, chat_id=asked["chat"])
    return client.new_session(source, title=asked["title"], kind=Kind(asked["kind"] or Kind.CHAT))


def _usage(asked: dict[str, Any]) -> Usage | None:
    tokens: dict[str, Any] = {name: asked[name] or 0 for name in TOKENS}
    if asked["model"] is None:
        if any(asked[name] is not None for name in (*TOKENS, "provider")):
            raise click.UsageError("Tokens are counted for a model: add --model.")
        return None
    return Usage(model=asked["model"], provider=asked["provider"], **tokens)
