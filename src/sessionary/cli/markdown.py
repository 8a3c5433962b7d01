"""Markdown as a terminal shows it."""

from io import StringIO

from sessionary.model.terminal import display_width, safe_terminal

# Longer texts are shown as they were written: laying them out takes seconds.
LONGEST = 50_000


def render(text: str, *, width: int) -> str:
    """Lay Markdown out for a terminal. What would steer the terminal is made harmless first."""
    harmless = safe_terminal(text, keep_newlines=True)
    if len(harmless) > LONGEST or not harmless.strip():
        return harmless
    # Late imports: rich takes 60 ms to load, and most commands show no Markdown.
    from rich.console import Console
    from rich.markdown import Markdown

    out = StringIO()
    console = Console(
        file=out, width=width, force_terminal=True, color_system="standard", legacy_windows=False
    )
    # No hyperlinks: a terminal would show the text of a link and hide where it leads.
    console.print(Markdown(harmless, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def split_blocks(text: str) -> tuple[str, str]:
    """Split a growing Markdown text into blocks that are whole and the one that still grows.

    A blank line ends a block, unless it is inside a fence or a list goes on behind it.
    """
    lines = text.split("\n")
    end = 0
    fence = ""
    for place, line in enumerate(lines[:-1]):
        stripped = line.lstrip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip("`~ "):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif not stripped and place > 0 and _begins_block(lines[place + 1]):
            end = place + 1
    return "\n".join(lines[:end]).rstrip("\n"), "\n".join(lines[end:]) if end else text


def _begins_block(line: str) -> bool:
    """Whether a line behind a blank one belongs to something new: it is there, and not indented."""
    return bool(line.strip()) and not line[0].isspace() and not _is_list_item(line)


def _is_list_item(line: str) -> bool:
    mark = line.split(maxsplit=1)[0]
    return mark in ("-", "*", "+") or (mark[:-1].isdigit() and mark[-1] in ".)")


def rows(text: str, *, width: int) -> int:
    """How many rows of a terminal a text takes as it was written."""
    lines = safe_terminal(text, keep_newlines=True).split("\n")
    return sum(max(1, -(-display_width(line) // max(1, width))) for line in lines)
