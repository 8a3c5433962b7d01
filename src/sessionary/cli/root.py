"""`sessionary` itself: every command by name, loaded when it is called."""

import json
from typing import Any

import click

import sessionary
from sessionary.cli.console import Console
from sessionary.cli.tree import Group, group

COMMANDS = {
    "serve": ("serve:serve", "Run Sessionary."),
    "chat": ("chat:chat", "Talk with an agent."),
    "sessions": ("sessions:sessions", "List, read and change sessions."),
    "ls": ("listing:list_sessions", "Short for `sessions list`."),
    "show": ("showing:show", "Short for `sessions show`."),
    "search": ("search:search", "Find what was said."),
    "export": ("exporting:export", "Write sessions as JSONL, Markdown or HTML."),
    "import": ("importing:import_", "Read the records of other tools, or Sessionary JSONL."),
    "prune": ("prune:prune", "Delete sessions that ended long ago."),
    "pack": ("pack:pack", "Compress sessions that have been quiet for long."),
    "erase": ("erase:erase", "Erase a person for ever."),
    "erasures": ("erase:erasures", "Show the receipts of what was erased."),
    "schedule": ("schedule:schedule", "Tasks that run by themselves."),
    "access": ("access:access", "Who may reach the agent."),
    "deliveries": ("deliveries:deliveries", "What was sent to chats, and what could not be."),
    "channels": ("channels:channels", "Where people reach the agent."),
    "agents": ("agents:agents", "The agents of this configuration."),
    "config": ("agents:config", "Check the configuration."),
    "tokens": ("tokens:tokens", "Programs that may use the HTTP interface."),
    "password": ("password:password", "What lets browsers in."),
    "mcp": ("mcp:mcp", "Serve the record to agents over MCP."),
    "usage": ("usage:usage", "Report tokens and cost."),
    "route": ("route:route", "Say which conversation a message belongs to."),
    "bindings": ("bindings:bindings", "See and change which chat is on which session."),
    "projects": ("projects:projects", "List and change projects."),
    "scan-secrets": ("secrets:scan_secrets", "Find keys and tokens in messages."),
    "verify": ("upkeep:verify", "Check that the record agrees with itself."),
    "rebuild": ("upkeep:rebuild", "Make counts, previews and sums again from the log."),
    "doctor": ("doctor:doctor", "Examine the store and the machine under it."),
    "backup": ("backup:backup", "Copy the store into a file while it is in use."),
    "restore": ("restore:restore", "Put a backup in the place of the store."),
    "migrate": ("migrate:migrate", "Copy the store to another database."),
    "move-home": ("move_home:move_home", "Move a home of the program's former name."),
    "stats": ("upkeep:stats", "Count what is in the store."),
    "demo": ("demo:demo", "Fill an empty store to look around in."),
    "completion": ("completion:completion", "Print the completion script of a shell."),
}


def _version(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if not value or ctx.resilient_parsing:
        return
    if ctx.ensure_object(Console).json:
        click.echo(json.dumps({"version": sessionary.__version__}))
    else:
        click.echo(f"sessionary {sessionary.__version__}")
    ctx.exit()


def _root() -> Group:
    made = group("sessionary", "The session layer for AI agents.", COMMANDS)
    made.params.append(
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            expose_value=False,
            callback=_version,
            help="Print the version.",
        )
    )
    return made


root = _root()
