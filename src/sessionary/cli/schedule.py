"""`sessionary schedule …`: tasks that run by themselves."""

import asyncio

import click

from sessionary.actions import schedules
from sessionary.cli.console import Console
from sessionary.cli.table import Column, table
from sessionary.cli.times import span
from sessionary.cli.tree import command, group, pass_console
from sessionary.client.client import Sessionary
from sessionary.config import zone_named
from sessionary.model.schedule import Run, RunState, Schedule, Timing
from sessionary.model.source import TERMINAL, Source
from sessionary.model.view import Json, time_text


@command(
    "add", example='sessionary schedule add morning "0 8 * * 1-5" "Summarize my mail" --to telegram'
)
@click.argument("name", metavar="NAME")
@click.argument("timing", metavar="TIMING")
@click.argument("prompt", metavar="PROMPT")
@click.option(
    "--to", default="local", metavar="TARGET", help="local, a platform, platform:chat[:thread]."
)
@click.option("--agent", metavar="NAME", help="Which agent runs it.")
@click.option(
    "--zone", metavar="ZONE", help="Time zone of the timing; the configured one by default."
)
@click.option(
    "--grace", default="1h", metavar="TIME", help="How late a missed run may still begin."
)
@pass_console
def add(console: Console, name: str, timing: str, prompt: str, **options: str | None) -> None:
    """Make a schedule.

    TIMING is five cron fields, @daily and its like, `every 15m`, or `at 2026-12-24T18:00`.
    """
    with console.client(create=True) as client:
        zone = client.config.zone if options["zone"] is None else zone_named(options["zone"])
        plan = schedules.ScheduleSpec(
            name=name,
            timing=Timing(timing, zone),
            prompt=prompt,
            deliver_to=options["to"] or "local",
            agent=options["agent"],
            origin=Source(platform=TERMINAL),
            grace=span(options["grace"] or "1h"),
        )
        made = client.writing(
            schedules.add, plan, profile=client.profile, moment=client.moment()
        ).result()
    at = _when(console, client, made)
    console.answer(_json(made), f"Schedule {made.name} added; it runs next at {at}.")


@command("list", example="sessionary schedule list")
@pass_console
def list_schedules(console: Console) -> None:
    """List the schedules, with when each runs next."""
    with console.client() as client:
        found = client.reading(schedules.list_schedules, profile=client.profile).result()
    if console.json:
        console.emit({"items": [_json(each) for each in found], "next": None})
        return
    if not found:
        console.note(
            'No schedules. Make one with: sessionary schedule add NAME "every 1h" "PROMPT"'
        )
        return
    rows = [
        [
            each.name,
            each.timing.text,
            "paused" if each.paused else _when(console, client, each),
            each.deliver_to,
        ]
        for each in found
    ]
    columns = (Column("NAME", flexible=True), Column("TIMING"), Column("NEXT"), Column("TO"))
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))


@command("runs", example="sessionary schedule runs morning")
@click.argument("name", metavar="NAME")
@click.option("--limit", default=20, type=click.IntRange(1, 1000), help="How many.")
@pass_console
def runs(console: Console, name: str, limit: int) -> None:
    """List the latest runs of a schedule, newest first."""
    with console.client() as client:
        found = client.reading(schedules.runs, name, profile=client.profile, limit=limit).result()
    if console.json:
        console.emit({"items": [_run_json(each) for each in found], "next": None})
        return
    rows = [
        [
            console.time_cell(each.due_at, client),
            each.state,
            each.session_id or "",
            each.reason or "",
        ]
        for each in found
    ]
    columns = (Column("DUE"), Column("STATE"), Column("SESSION"), Column("REASON", flexible=True))
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))


@command("run", example="sessionary schedule run morning")
@click.argument("name", metavar="NAME")
@pass_console
def run(console: Console, name: str) -> None:
    """Run a schedule now, here, and say how it went."""
    # The other schedule commands do not need the engine.
    from sessionary.app.engine import run_schedule

    with console.client() as client:
        done = asyncio.run(run_schedule(client, name))
    console.answer(_run_json(done), f"Schedule {name}: {done.state}, session {done.session_id}.")
    if done.state is not RunState.DONE:
        raise SystemExit(1)


@command("pause", example="sessionary schedule pause morning")
@click.argument("name", metavar="NAME")
@pass_console
def pause(console: Console, name: str) -> None:
    """Let a schedule rest; what it misses meanwhile is not made up for."""
    made, _ = _set_paused(console, name, paused=True)
    console.answer(_json(made), f"Schedule {made.name} rests.")


@command("resume", example="sessionary schedule resume morning")
@click.argument("name", metavar="NAME")
@pass_console
def resume(console: Console, name: str) -> None:
    """Let a schedule go on."""
    made, at = _set_paused(console, name, paused=False)
    console.answer(_json(made), f"Schedule {made.name} runs next at {at}.")


@command("remove", example="sessionary schedule remove morning")
@click.argument("name", metavar="NAME")
@pass_console
def remove(console: Console, name: str) -> None:
    """Take a schedule away; its runs and their sessions stay."""
    with console.client() as client:
        now = client.moment().now
        gone = client.writing(schedules.remove, name, profile=client.profile, now=now).result()
    console.answer(_json(gone), f"Schedule {gone.name} removed; its sessions stay.")


def _set_paused(console: Console, name: str, *, paused: bool) -> tuple[Schedule, str]:
    """The schedule as it is now, and when it runs next."""
    with console.client() as client:
        made = client.writing(
            schedules.pause,
            name,
            profile=client.profile,
            paused=paused,
            now=client.moment().now,
        ).result()
        return made, _when(console, client, made)


def _when(console: Console, client: Sessionary, made: Schedule) -> str:
    return "never" if made.next_at is None else console.time_cell(made.next_at, client)


def _json(made: Schedule) -> Json:
    return {
        "id": made.id,
        "name": made.name,
        "timing": made.timing.text,
        "zone": made.timing.zone.key,
        "prompt": made.prompt,
        "agent": made.agent,
        "deliver_to": made.deliver_to,
        "grace_seconds": int(made.grace.total_seconds()),
        "paused": made.paused,
        "created_at": time_text(made.created_at),
        "next_at": time_text(made.next_at),
    }


def _run_json(made: Run) -> Json:
    return {
        "due_at": time_text(made.due_at),
        "state": made.state,
        "began_at": time_text(made.began_at),
        "ended_at": time_text(made.ended_at),
        "session_id": made.session_id,
        "reason": made.reason,
    }


schedule = group(
    "schedule",
    "Tasks that run by themselves.",
    {
        "add": (add, "Make a schedule."),
        "list": (list_schedules, "List the schedules."),
        "runs": (runs, "List the latest runs of a schedule."),
        "run": (run, "Run a schedule now."),
        "pause": (pause, "Let a schedule rest."),
        "resume": (resume, "Let a schedule go on."),
        "remove": (remove, "Take a schedule away."),
    },
)
