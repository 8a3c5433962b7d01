"""`sessionary projects …`."""

import click

from sessionary.actions.sessions import projects as project_actions
from sessionary.cli.console import Column, Console
from sessionary.cli.tree import command, group, pass_console
from sessionary.model.view import project_json


@command("list", example="sessionary projects list")
@pass_console
def list_projects(console: Console) -> None:
    """List the projects with their number of sessions."""
    with console.open() as app:
        found = app.store.read(project_actions.list_projects, profile=app.profile).result()
    console.print_list(
        [project_json(each) for each in found],
        (Column("NAME", flexible=True), Column("SESSIONS", right=True), Column("COLOUR")),
        [[each.name, str(each.sessions), each.colour or ""] for each in found],
        empty="No projects. Create one with: sessionary projects add NAME",
    )


@command("add", example="sessionary projects add Geography --colour '#3366cc'")
@click.argument("name", metavar="NAME")
@click.option("--colour", metavar="#RRGGBB", help="Its colour.")
@pass_console
def add(console: Console, name: str, *, colour: str | None) -> None:
    """Create a project."""
    with console.open(create=True) as app:
        made = app.store.write(
            project_actions.add, name, profile=app.profile, moment=app.moment(), colour=colour
        ).result()
    console.answer(project_json(made), f"Project {made.name} added.")


@command("rename", example="sessionary projects rename Geography Places")
@click.argument("name", metavar="NAME")
@click.argument("new_name", metavar="NEW")
@pass_console
def rename(console: Console, name: str, new_name: str) -> None:
    """Rename a project."""
    with console.open() as app:
        made = app.store.write(
            project_actions.change, name, profile=app.profile, new_name=new_name
        ).result()
    console.answer(project_json(made), f"Project {name} is now {made.name}.")


@command("colour", example="sessionary projects colour Geography '#3366cc'")
@click.argument("name", metavar="NAME")
@click.argument("colour", metavar="#RRGGBB")
@pass_console
def colour(console: Console, name: str, colour: str) -> None:
    """Set a project's colour."""
    with console.open() as app:
        made = app.store.write(
            project_actions.change, name, profile=app.profile, colour=colour
        ).result()
    console.answer(project_json(made), f"Project {made.name} is now {made.colour}.")


@command("remove", example="sessionary projects remove Geography")
@click.argument("name", metavar="NAME")
@pass_console
def remove(console: Console, name: str) -> None:
    """Delete a project; its sessions stay, without a project."""
    with console.open() as app:
        gone = app.store.write(project_actions.remove, name, profile=app.profile).result()
    console.answer(project_json(gone), f"Project {gone.name} removed; its sessions stay.")


projects = group(
    "projects",
    "List and change projects.",
    [list_projects, add, rename, colour, remove],
)
