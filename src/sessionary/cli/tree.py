"""The tree of commands: groups that load a command when it is called."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import click

from sessionary.cli.console import Console

F = TypeVar("F", bound=Callable[..., Any])

# The commands of a group by name: the command, or a function that imports it, and its line of help.
CommandTable = Mapping[str, tuple[click.Command | Callable[[], click.Command], str]]

GLOBAL = "Options of every command"
HELP_NAMES = ["-h", "--help"]


def pass_console(function: F) -> F:
    """Give the command the console of its call."""
    return cast(F, click.make_pass_decorator(Console, ensure=True)(function))


def _take(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Put a global option where all commands look, whether it came before or after the command."""
    if value is not None and value is not False and param.name is not None:
        setattr(ctx.ensure_object(Console), param.name, value)


def global_options() -> list[click.Option]:
    """The options that may stand before the command or after it."""

    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, is_eager=True, callback=_take, **more)

    return [
        option("--home", metavar="DIR", help="Where data and sessionary.toml are."),
        option("--database", metavar="URL", help="sqlite:///path or postgresql://…"),
        option("--profile", metavar="NAME", help="Whose sessions."),
        option("--json", is_flag=True, help="Print one JSON document."),
        option("--utc", is_flag=True, help="Show times in UTC instead of this machine's zone."),
        option("--debug", is_flag=True, help="Show the traceback of an error."),
    ]


class Command(click.Command):
    """A command with the global options, and an example in its help."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = HELP_NAMES
        self.example = example
        self.params.extend(global_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then those of every command."""
        _format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        if self.example:
            with formatter.section("Example" if "\n" not in self.example else "Examples"):
                for line in self.example.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(click.Group):
    """A group that imports the module of a command only when the command is called."""

    def __init__(self, *args: Any, lazy: CommandTable, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = HELP_NAMES
        self.lazy = dict(lazy)
        self.no_args_is_help = False
        self.invoke_without_command = True
        self.params.extend(global_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in self.lazy:
            return None
        command, _ = self.lazy[cmd_name]
        return command if isinstance(command, click.Command) else command()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which was perhaps meant."""
        name = args[0]
        if name == "help" and not ctx.ensure_object(Console).json:
            click.echo(ctx.get_help())
            ctx.exit()
        if name not in self.lazy and not name.startswith("-"):
            import difflib  # only a mistyped command needs it

            near = difflib.get_close_matches(name, self.lazy, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" There are: {', '.join(self.lazy)}."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self.lazy.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        _format_options(self, ctx, formatter)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list["click.shell_completion.CompletionItem"]:
        """Offer the names from the table, without loading them."""
        from click.shell_completion import CompletionItem  # no command needs it

        names = [
            CompletionItem(name, help=about)
            for name, (_, about) in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


def _format_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    shared = {option.name for option in global_options()}
    records = [
        (param.name in shared, record)
        for param in command.get_params(ctx)
        if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
    ]
    for is_shared, heading in ((False, "Options"), (True, GLOBAL)):
        rows = [record for shared_one, record in records if shared_one is is_shared]
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)


def command(name: str, *, example: str, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; its docstring is its help."""
    return click.command(name, cls=Command, example=example, **more)


def group(name: str, about: str, lazy: CommandTable) -> Group:
    """Make a group; called without a command it shows its help."""

    def show_help() -> None:
        ctx = click.get_current_context()
        if ctx.invoked_subcommand is None:
            if ctx.ensure_object(Console).json:
                raise click.UsageError("Name a command.", ctx)
            click.echo(ctx.get_help())

    return Group(name, help=about, lazy=lazy, callback=show_help)
