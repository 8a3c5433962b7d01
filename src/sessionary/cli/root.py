"""`sessionary` itself: every command by name, loaded when it is called.

Our own commands are a table here; the others are plug-ins, found by the entry point group `sessionary.commands`.
Finding ours in the same way would add 35 ms to the 75 ms of a short command, so the metadata of the installed packages
is read only for help, to complete a command's name, and for a name that is not ours.
"""

from itertools import groupby
from typing import Any

import click

import sessionary
from sessionary import config
from sessionary.cli.console import Console
from sessionary.cli.tree import LazyGroup, command, pass_console
from sessionary.errors import PluginFailed, SessionaryError
from sessionary.plugins import PluginGroup

SHELLS = ("bash", "zsh", "fish")
OUR_COMMANDS = {
    "serve": "Run the server: agents, channels, schedules, web interface.",
    "proxy": "Pass requests to model APIs on, and record them.",
    "chat": "Talk with an agent.",
    "sessions": "List, read and change sessions.",
    "ls": "Short for `sessions list`.",
    "show": "Short for `sessions show`.",
    "turns": "List turns, and see what the model was sent.",
    "questions": "List and answer what turns ask people.",
    "policy": "See which tool calls are asked about, and why.",
    "search": "Search messages and titles.",
    "export": "Write sessions as JSONL, Markdown or HTML.",
    "import": "Import the records of other tools, or Sessionary JSONL.",
    "prune": "Delete sessions that ended long ago.",
    "pack": "Compress sessions that have been inactive for long.",
    "erase": "Erase a person's data forever.",
    "erasures": "List the receipts of erasures.",
    "schedule": "Manage scheduled tasks.",
    "access": "Manage who may write to the agent.",
    "deliveries": "List and manage outgoing messages.",
    "channels": "List and check channels.",
    "agents": "List the configured agents.",
    "config": "Check and show the configuration.",
    "tokens": "Manage tokens for the HTTP interface.",
    "password": "Manage how browsers log in.",
    "mcp": "Run the MCP server.",
    "acp": "Serve an editor that speaks ACP.",
    "usage": "Report tokens and cost.",
    "route": "Explain which session a message goes to.",
    "bindings": "See and change which session a chat is on.",
    "projects": "List and change projects.",
    "scan-secrets": "Find keys and tokens in messages.",
    "verify": "Check that the store is consistent.",
    "rebuild": "Recompute counts, previews and sums from the log.",
    "doctor": "Diagnose the store and this machine.",
    "backup": "Back up the store while it is in use.",
    "restore": "Replace the store with a backup.",
    "migrate": "Copy the store to another database.",
    "move-home": "Move a home of the program's former name.",
    "stats": "Count what is in the store.",
    "demo": "Fill an empty store with example sessions.",
    "completion": "Print the completion script of a shell.",
}
COMMANDS: PluginGroup[click.Command] = PluginGroup(
    "sessionary.commands", "command", click.Command, reserved=[*OUR_COMMANDS, "help"]
)


def load_command(name: str) -> click.Command:
    """Import the module of one of our commands."""
    match name:
        case "sessions" | "ls" | "show":
            from sessionary.cli import sessions

            return sessions.sessions if name == "sessions" else sessions.load_command(name)
        case "turns":
            from sessionary.cli.turns import turns

            return turns
        case "questions" | "policy":
            from sessionary.cli import questions

            return questions.COMMANDS[name]
        case "search":
            from sessionary.cli.sessions.search import search

            return search
        case "export":
            from sessionary.cli.sessions.export import export

            return export
        case "projects":
            from sessionary.cli.sessions.projects import projects

            return projects
        case "import":
            from sessionary.cli.imports import import_

            return import_
        case "serve" | "mcp" | "acp" | "demo":
            from sessionary.cli import serve

            return serve.COMMANDS[name]
        case "proxy":
            from sessionary.cli import proxy

            return proxy.COMMANDS[name]
        case "chat":
            from sessionary.cli.chat import chat

            return chat
        case "schedule":
            from sessionary.cli.schedule import schedule

            return schedule
        case "deliveries":
            from sessionary.cli.deliveries import deliveries

            return deliveries
        case "usage":
            from sessionary.cli.usage import usage

            return usage
        case "access" | "tokens" | "password":
            from sessionary.cli import access

            return access.COMMANDS[name]
        case "agents" | "channels" | "config":
            from sessionary.cli import configuration

            return configuration.COMMANDS[name]
        case "route" | "bindings":
            from sessionary.cli import routes

            return routes.COMMANDS[name]
        case "prune" | "pack" | "erase" | "erasures" | "scan-secrets":
            from sessionary.cli import retention

            return retention.COMMANDS[name]
        case "backup" | "restore" | "migrate" | "move-home":
            from sessionary.cli import backup

            return backup.COMMANDS[name]
        case "completion":
            return completion
        case _:
            from sessionary.cli import upkeep

            return upkeep.COMMANDS[name]


@command(
    "completion",
    example='eval "$(sessionary completion bash)"     # in ~/.bashrc\n'
    "sessionary completion fish > ~/.config/fish/completions/sessionary.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_console
def completion(console: Console, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and session names."""
    from click.shell_completion import get_completion_class  # only completion needs it

    complete = get_completion_class(shell)
    assert complete is not None
    made = complete(root, {}, "sessionary", config.COMPLETION_VARIABLE)
    # click's own `source` runs the shell to learn its version; the script is the same without.
    script = made.source_template % made.source_vars()
    # Bash splits what it is given into words: a title must be quoted.
    script = script.replace("COMPREPLY+=($value)", 'COMPREPLY+=("$(printf %q "$value")")')
    console.answer({"shell": shell, "script": script}, script)


def _version(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if not value or ctx.resilient_parsing:
        return
    if ctx.ensure_object(Console).json:
        import json  # saves 2 ms for everyone without --json

        click.echo(json.dumps({"version": sessionary.__version__}))
    else:
        click.echo(f"sessionary {sessionary.__version__}")
    ctx.exit()


class RootGroup(LazyGroup):
    """Our commands, then those of plug-ins, which are listed without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of our commands in their order, then those of plug-ins."""
        return [*super().list_commands(ctx), *COMMANDS.names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; raise `PluginFailed` for a plug-in that cannot be used."""
        if cmd_name in self.lines:
            return super().get_command(ctx, cmd_name)
        if cmd_name not in COMMANDS.names:
            return None
        try:
            return COMMANDS.load(cmd_name)
        except PluginFailed:
            if ctx.resilient_parsing:  # a shell asks for completions: there are none
                return None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a plug-in raises is one line that names its package."""
        try:
            return super().invoke(ctx)
        except (SessionaryError, click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            name = ctx.invoked_subcommand
            is_reported = isinstance(error, BrokenPipeError) or getattr(error, "filename", None)
            if name is None or name in self.lines or is_reported:
                raise
            raise COMMANDS.failed(
                name,
                error,
                what="failed",
                advice="The same command with --debug shows where.",
                committed="unknown",
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List our commands, then those of each package."""
        super().format_commands(ctx, formatter)
        plugins = [each for each in COMMANDS.installed if each.name in COMMANDS.names]
        for package, commands in groupby(sorted(plugins, key=str), key=str):
            with formatter.section(f"Commands of {package}"):
                formatter.write_dl([(each.name, "") for each in commands])


root = RootGroup("sessionary", "The session layer for AI agents.", OUR_COMMANDS, load_command)
root.params.append(
    click.Option(
        ["-V", "--version"],
        is_flag=True,
        expose_value=False,
        callback=_version,
        help="Print the version.",
    )
)
