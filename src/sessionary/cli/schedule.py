"""`sessionary schedule …`: tasks that run at set times."""

import asyncio

import click

from sessionary.actions import schedules
from sessionary.app.context import AppContext
from sessionary.cli.console import Column, Console
from sessionary.cli.times import span
from sessionary.cli.tree import command, group, pass_console
from sessionary.config import zone_named
from sessionary.model.schedule import RunState, Schedule, Timing
from sessionary.model.source import TERMINAL, Source
from sessionary.model.view import run_json, schedule_json


@command(
    "add", example='sessionary schedule add morning "0 8 * * 1-5" "Summarize my mail" --to telegram'
)
@click.argument("name", metavar="NAME")
@click.argument("timing", metavar="TIMING")
@click.argument("prompt", metavar="PROMPT")
@click.option(
    "--to",
    default="local",
    metavar="TARGET",
    show_default=True,
    help="Where the reply goes: local (only into the store), a platform, or platform:chat[:thread].",
)
@click.option("--agent", metavar="NAME", help="Which agent runs it.")
@click.option("--zone", metavar="ZONE", help="Time zone of TIMING; by default the configured one.")
@click.option(
    "--grace",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How late a missed run may still begin.",
)
@pass_console
def add(console: Console, name: str, timing: str, prompt: str, **options: str | None) -> None:
    """Create a schedule.

    TIMING is five cron fields, a shortcut such as @daily, `every 15m`, or `at 2026-12-24T18:00`.
    """
    with console.open(create=True) as app:
        zone = app.config.zone if options["zone"] is None else zone_named(options["zone"])
        plan = schedules.ScheduleSpec(
            name=name,
            timing=Timing(timing, zone),
            prompt=prompt,
            deliver_to=options["to"] or "local",
            agent=options["agent"],
            origin=Source(platform=TERMINAL),
            grace=span(options["grace"] or "1h"),
        )
        made = app.store.write(
            schedules.add, plan, profile=app.profile, moment=app.moment()
        ).result()
    at = _next_run(console, app, made)
    console.answer(schedule_json(made), f"Schedule {made.name} added; it runs next at {at}.")


@command("list", example="sessionary schedule list")
@pass_console
def list_schedules(console: Console) -> None:
    """List the schedules and their next runs."""
    with console.open() as app:
        found = app.store.read(schedules.list_schedules, profile=app.profile).result()
    console.print_list(
        [schedule_json(each) for each in found],
        (Column("NAME", flexible=True), Column("TIMING"), Column("NEXT"), Column("TO")),
        [
            [
                each.name,
                each.timing.text,
                "paused" if each.paused else _next_run(console, app, each),
                each.deliver_to,
            ]
            for each in found
        ],
        empty='No schedules. Create one with: sessionary schedule add NAME "every 1h" "PROMPT"',
    )


@command("runs", example="sessionary schedule runs morning")
@click.argument("name", metavar="NAME")
@click.option(
    "--limit", default=20, type=click.IntRange(1, 1000), metavar="N", help="How many to list."
)
@pass_console
def runs(console: Console, name: str, limit: int) -> None:
    """List the latest runs of a schedule, newest first."""
    with console.open() as app:
        found = app.store.read(schedules.list_runs, name, profile=app.profile, limit=limit).result()
    console.print_list(
        [run_json(each) for each in found],
        (Column("DUE"), Column("STATE"), Column("SESSION"), Column("REASON", flexible=True)),
        [
            [
                console.time_cell(each.due_at, app),
                each.state,
                each.session_id or "",
                each.reason or "",
            ]
            for each in found
        ],
        empty=f"Schedule {name} has not run yet.",
    )


@command("run", example="sessionary schedule run morning")
@click.argument("name", metavar="NAME")
@pass_console
def run(console: Console, name: str) -> None:
    """Run a schedule now, in this process, and print the result."""
    # The other schedule commands do not need the engine.
    from sessionary.app.engine import run_schedule

    with console.open() as app:
        done = asyncio.run(run_schedule(app, name))
    console.answer(run_json(done), f"Schedule {name}: {done.state}, session {done.session_id}.")
    if done.state is not RunState.DONE:
        raise SystemExit(1)


@command("pause", example="sessionary schedule pause morning")
@click.argument("name", metavar="NAME")
@pass_console
def pause(console: Console, name: str) -> None:
    """Pause a schedule; missed runs are not made up for."""
    made, _ = _set_paused(console, name, paused=True)
    console.answer(schedule_json(made), f"Schedule {made.name} is paused.")


@command("resume", example="sessionary schedule resume morning")
@click.argument("name", metavar="NAME")
@pass_console
def resume(console: Console, name: str) -> None:
    """Resume a paused schedule."""
    made, at = _set_paused(console, name, paused=False)
    console.answer(schedule_json(made), f"Schedule {made.name} runs next at {at}.")


@command("remove", example="sessionary schedule remove morning")
@click.argument("name", metavar="NAME")
@pass_console
def remove(console: Console, name: str) -> None:
    """Remove a schedule; its runs and their sessions stay."""
    with console.open() as app:
        now = app.moment().now
        gone = app.store.write(schedules.remove, name, profile=app.profile, now=now).result()
    console.answer(schedule_json(gone), f"Schedule {gone.name} removed; its sessions stay.")


def _set_paused(console: Console, name: str, *, paused: bool) -> tuple[Schedule, str]:
    """Pause or resume a schedule; return it with the time of its next run."""
    with console.open() as app:
        made = app.store.write(
            schedules.pause,
            name,
            profile=app.profile,
            paused=paused,
            now=app.moment().now,
        ).result()
        return made, _next_run(console, app, made)


def _next_run(console: Console, app: AppContext, made: Schedule) -> str:
    return "never" if made.next_at is None else console.time_cell(made.next_at, app)


schedule = group(
    "schedule",
    "Manage scheduled tasks.",
    [add, list_schedules, runs, run, pause, resume, remove],
)
