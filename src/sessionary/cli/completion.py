"""`sessionary completion`."""

import click

from sessionary import config
from sessionary.cli.console import Console
from sessionary.cli.tree import command, pass_console

SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    example='eval "$(sessionary completion bash)"     # in ~/.bashrc\n'
    "sessionary completion fish > ~/.config/fish/completions/sessionary.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_console
def completion(console: Console, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and session names."""
    from click.shell_completion import get_completion_class

    from sessionary.cli.root import root  # at the top this import would be circular

    complete = get_completion_class(shell)
    assert complete is not None
    made = complete(root, {}, "sessionary", config.COMPLETION_VARIABLE)
    # click's own `source` runs the shell to learn its version; the script is the same without.
    script = made.source_template % made.source_vars()
    # Bash takes what it is given for words: a title has to come quoted.
    script = script.replace("COMPREPLY+=($value)", 'COMPREPLY+=("$(printf %q "$value")")')
    console.answer({"shell": shell, "script": script}, script)
