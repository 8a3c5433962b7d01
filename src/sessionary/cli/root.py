"""`sessionary` itself: every command by name, loaded when it is called."""

import json
from functools import partial
from typing import Any

import click

import sessionary
from sessionary.cli.console import Console
from sessionary.cli.tree import Group, group

COMMANDS = {
    "serve": "Run Sessionary.",
    "chat": "Talk with an agent.",
    "sessions": "List, read and change sessions.",
    "ls": "Short for `sessions list`.",
    "show": "Short for `sessions show`.",
    "search": "Find what was said.",
    "export": "Write sessions as JSONL, Markdown or HTML.",
    "import": "Read the records of other tools, or Sessionary JSONL.",
    "prune": "Delete sessions that ended long ago.",
    "pack": "Compress sessions that have been quiet for long.",
    "erase": "Erase a person for ever.",
    "erasures": "Show the receipts of what was erased.",
    "schedule": "Tasks that run by themselves.",
    "access": "Who may reach the agent.",
    "deliveries": "What was sent to chats, and what could not be.",
    "channels": "Where people reach the agent.",
    "agents": "The agents of this configuration.",
    "config": "Check the configuration.",
    "tokens": "Programs that may use the HTTP interface.",
    "password": "What lets browsers in.",
    "mcp": "Serve the record to agents over MCP.",
    "usage": "Report tokens and cost.",
    "route": "Say which conversation a message belongs to.",
    "bindings": "See and change which chat is on which session.",
    "projects": "List and change projects.",
    "scan-secrets": "Find keys and tokens in messages.",
    "verify": "Check that the record agrees with itself.",
    "rebuild": "Make counts, previews and sums again from the log.",
    "doctor": "Examine the store and the machine under it.",
    "backup": "Copy the store into a file while it is in use.",
    "restore": "Put a backup in the place of the store.",
    "migrate": "Copy the store to another database.",
    "move-home": "Move a home of the program's former name.",
    "stats": "Count what is in the store.",
    "demo": "Fill an empty store to look around in.",
    "completion": "Print the completion script of a shell.",
}


def load_command(name: str) -> click.Command:
    """Import the module of one command: importing all of them takes ten times as long."""
    match name:
        case "serve":
            from sessionary.cli.serve import serve

            return serve
        case "chat":
            from sessionary.cli.chat import chat

            return chat
        case "sessions":
            from sessionary.cli.sessions import sessions

            return sessions
        case "ls":
            from sessionary.cli.listing import list_sessions

            return list_sessions
        case "show":
            from sessionary.cli.showing import show

            return show
        case "search":
            from sessionary.cli.search import search

            return search
        case "export":
            from sessionary.cli.exporting import export

            return export
        case "import":
            from sessionary.cli.imports import import_

            return import_
        case "prune":
            from sessionary.cli.prune import prune

            return prune
        case "pack":
            from sessionary.cli.pack import pack

            return pack
        case "erase":
            from sessionary.cli.erase import erase

            return erase
        case "erasures":
            from sessionary.cli.erase import erasures

            return erasures
        case "schedule":
            from sessionary.cli.schedule import schedule

            return schedule
        case "access":
            from sessionary.cli.access import access

            return access
        case "deliveries":
            from sessionary.cli.deliveries import deliveries

            return deliveries
        case "channels":
            from sessionary.cli.channels import channels

            return channels
        case "agents":
            from sessionary.cli.agents import agents

            return agents
        case "config":
            from sessionary.cli.agents import config

            return config
        case "tokens":
            from sessionary.cli.tokens import tokens

            return tokens
        case "password":
            from sessionary.cli.password import password

            return password
        case "mcp":
            from sessionary.cli.mcp import mcp

            return mcp
        case "usage":
            from sessionary.cli.usage import usage

            return usage
        case "route":
            from sessionary.cli.route import route

            return route
        case "bindings":
            from sessionary.cli.bindings import bindings

            return bindings
        case "projects":
            from sessionary.cli.projects import projects

            return projects
        case "scan-secrets":
            from sessionary.cli.secrets import scan_secrets

            return scan_secrets
        case "verify":
            from sessionary.cli.upkeep import verify

            return verify
        case "rebuild":
            from sessionary.cli.upkeep import rebuild

            return rebuild
        case "doctor":
            from sessionary.cli.doctor import doctor

            return doctor
        case "backup":
            from sessionary.cli.backup import backup

            return backup
        case "restore":
            from sessionary.cli.restore import restore

            return restore
        case "migrate":
            from sessionary.cli.migrate import migrate

            return migrate
        case "move-home":
            from sessionary.cli.move_home import move_home

            return move_home
        case "stats":
            from sessionary.cli.upkeep import stats

            return stats
        case "demo":
            from sessionary.cli.demo import demo

            return demo
        case "completion":
            from sessionary.cli.completion import completion

            return completion
        case _:
            raise AssertionError(name)


def _version(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if not value or ctx.resilient_parsing:
        return
    if ctx.ensure_object(Console).json:
        click.echo(json.dumps({"version": sessionary.__version__}))
    else:
        click.echo(f"sessionary {sessionary.__version__}")
    ctx.exit()


def _root() -> Group:
    made = group(
        "sessionary",
        "The session layer for AI agents.",
        {name: (partial(load_command, name), about) for name, about in COMMANDS.items()},
    )
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
