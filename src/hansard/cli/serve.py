"""`hansard serve`."""

from hansard.cli.console import Console, shown_url
from hansard.cli.tree import command, pass_console

NOT_YET = (
    "The web workbench, channels and agents are not part of this version yet; "
    "the command line and the Python interface are."
)


@command("serve", example="hansard serve")
@pass_console
def serve(console: Console) -> None:
    """Set the store up and say what there is.

    The web workbench, channels and agents are not part of this version yet.
    """
    with console.house(create=True) as house:
        is_empty = not house.sessions(limit=1).items
        where = shown_url(house.store.url)
    value = {
        "database": where,
        "empty": is_empty,
        "serving": False,
        "message": NOT_YET,
    }
    lines = [
        f"The store at {where} is ready{' and empty' if is_empty else ''}.",
        NOT_YET,
        'Try: hansard sessions append new --role user "hello" && hansard sessions list',
    ]
    console.answer(value, "\n".join(lines))
