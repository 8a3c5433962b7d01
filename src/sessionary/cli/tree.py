"""The tree of commands: what they share, and groups that load a command when it is called."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import click

from sessionary.cli.console import Console

F = TypeVar("F", bound=Callable[..., Any])

GLOBAL = "Options of every command"
HELP_NAMES = ["-h", "--help"]


def pass_console(function: F) -> F:
    """Pass the console of this call to the command."""
    return cast(F, click.make_pass_decorator(Console, ensure=True)(function))


def _set_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Set a global option on the console, whether it came before or after the command."""
    if value is not None and value is not False and param.name is not None:
        setattr(ctx.ensure_object(Console), param.name, value)


def global_options() -> list[click.Option]:
    """Return the options that may come before or after the command."""

    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, is_eager=True, callback=_set_option, **more)

    return [
        option("--home", metavar="DIR", help="The directory of the store and sessionary.toml."),
        option("--database", metavar="URL", help="The store: sqlite:///path or postgresql://…"),
        option("--profile", metavar="NAME", help="The profile whose sessions to use."),
        option("--json", is_flag=True, help="Print one JSON document."),
        option("--utc", is_flag=True, help="Show times in UTC instead of this machine's zone."),
        option("--debug", is_flag=True, help="Show the traceback of an error."),
    ]


def _show_help_of(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _help_option(command: click.Command, ctx: click.Context) -> click.Option | None:
    """Return the option --help as click makes it, but in English: looking for translations takes 2 ms."""
    names = command.get_help_option_names(ctx)
    if command._help_option is None and names:
        command._help_option = click.Option(
            [*names, "_help"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            help="Show this message and exit.",
            callback=_show_help_of,
        )
    return command._help_option


class CliCommand(click.Command):
    """A command with the global options, and an example in its help."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = HELP_NAMES
        self.example = example
        self.params.extend(global_options())

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option --help."""
        return _help_option(self, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the global ones."""
        _format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        if self.example:
            with formatter.section("Example" if "\n" not in self.example else "Examples"):
                for line in self.example.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class LazyGroup(click.Group):
    """A group that loads a command when it is called; without a command it shows its help."""

    def __init__(
        self,
        name: str,
        about: str,
        commands: Mapping[str, str],
        load: Callable[[str], click.Command],
    ) -> None:
        """`commands` has the names, with a line of help for each."""
        super().__init__(name, help=about, callback=_show_help)
        self.context_settings["help_option_names"] = HELP_NAMES
        self.lines = commands
        self._load = load
        self.no_args_is_help = False
        self.invoke_without_command = True
        self.params.extend(global_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in their order."""
        return list(self.lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        return self._load(cmd_name) if cmd_name in self.lines else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest a similar one."""
        name = args[0]
        if name == "help" and not ctx.ensure_object(Console).json:
            click.echo(ctx.get_help())
            ctx.exit()
        is_option = name.startswith("-")
        if not ctx.resilient_parsing and not is_option and self.get_command(ctx, name) is None:
            import difflib  # only a mistyped command needs it

            names = self.list_commands(ctx)
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" Commands: {', '.join(names)}."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lines.items()))

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option --help."""
        return _help_option(self, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        _format_options(self, ctx, formatter)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list["click.shell_completion.CompletionItem"]:
        """Offer the commands without loading them."""
        from click.shell_completion import CompletionItem  # no command needs it

        names = [
            CompletionItem(name, help=self.lines.get(name))
            for name in self.list_commands(ctx)
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


def command(name: str, *, example: str, **more: Any) -> Callable[[Callable[..., Any]], CliCommand]:
    """Make a function a command; its docstring is its help."""
    return click.command(name, cls=CliCommand, example=example, **more)


def group(name: str, about: str, commands: Iterable[click.Command]) -> LazyGroup:
    """Make a group of commands that share a module. Their line of help is how their docstring begins."""
    by_name = {each.name or "": each for each in commands}
    lines = {
        key: re.split(r"[:;,]|[.](?=\s|$)", each.help or "")[0] + "."
        for key, each in by_name.items()
    }
    return LazyGroup(name, about, lines, by_name.__getitem__)


def _show_help() -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        if ctx.ensure_object(Console).json:
            raise click.UsageError("Name a command.", ctx)
        click.echo(ctx.get_help())
