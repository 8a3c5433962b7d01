"""`sessionary usage`."""

import csv
import sys
from collections.abc import Iterator, Sequence

import click

from sessionary.actions import budgets
from sessionary.actions import usage as usage_actions
from sessionary.cli import times
from sessionary.cli.console import Column, Console, money
from sessionary.cli.tree import command, pass_console
from sessionary.model.access import BudgetStatus
from sessionary.model.usage import TOKEN_FIELDS, UsageTotal
from sessionary.model.view import budget_json, usage_json
from sessionary.store.tables.usage import GROUPS

FORMULA = ("=", "+", "-", "@", "\t", "\r")


@command(
    "usage",
    example="sessionary usage --by model --since 30d\nsessionary usage --by day --csv\n"
    "sessionary usage --budgets",
)
@click.option(
    "--by", type=click.Choice(GROUPS), default="day", show_default=True, help="What to group by."
)
@click.option("--since", metavar="T", help="Since a date, a time, or 7d for seven days ago.")
@click.option("--until", metavar="T", help="Until a date or time.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--budgets", "of_budgets", is_flag=True, help="Show the budgets and what is left.")
@pass_console
def usage(
    console: Console,
    *,
    by: str,
    since: str | None,
    until: str | None,
    as_csv: bool,
    of_budgets: bool,
) -> None:
    """Report tokens and cost.

    Costs are estimates, unless a provider reported them. An unknown cost is shown as ?, not as 0.
    """
    if as_csv and console.json:
        raise click.UsageError("--csv and --json exclude each other.")
    if of_budgets:
        if as_csv or since is not None or until is not None:
            raise click.UsageError(
                "--budgets shows the current day and month: leave out --since, --until and --csv."
            )
        _report_budgets(console)
        return
    with console.open() as app:
        now, zone = app.moment().now, console.zone(app)
        rows = app.store.read(
            usage_actions.sum_usage,
            by,
            profile=app.profile,
            since=None if since is None else times.parse_time(since, now=now, zone=zone),
            until=None
            if until is None
            else times.parse_time(until, now=now, zone=zone, at_end=True),
        ).result()
    if console.json:
        console.emit({"items": [usage_json(row) for row in rows], "next": None, "by": by})
    elif as_csv:
        _print_csv(rows)
    elif rows:
        _print_table(console, rows, by=by)
        _tell_unknown(console, rows)
    else:
        console.note("No model calls.")


def _report_budgets(console: Console) -> None:
    with console.open() as app:
        found = app.store.read(
            budgets.list_status, app.budgets(), profile=app.profile, now=app.moment().now
        ).result()
    if console.json:
        console.emit({"items": [budget_json(status) for status in found], "next": None})
    elif found:
        columns = [Column("BUDGET", flexible=True), Column("PER")]
        columns += [Column(name, right=True) for name in ("USED", "LIMIT", "RESERVED", "%")]
        columns += [Column("BEGINS AGAIN (UTC)"), Column("WARNED")]
        console.print_table(columns, [line for status in found for line in _budget_lines(status)])
    else:
        console.note("There are no budgets. Set one in sessionary.toml, such as [budget.person].")


def _budget_lines(status: BudgetStatus) -> Iterator[list[str]]:
    """Yield a line for the limit in tokens and one for the limit in money, as far as there are."""
    warned = ", ".join(f"{threshold} %" for threshold in status.warned)
    again = f"{status.resets_at:%Y-%m-%d %H:%M}"
    name = status.scope if ":" in status.scope else f"each {status.scope}"
    for used, limit, reserved, show in (
        (status.used_tokens, status.limit_tokens, status.reserved_tokens, "{:,}".format),
        (status.used_microusd, status.limit_microusd, status.reserved_microusd, money),
    ):
        if limit is not None:
            share = f"{used * 100 // limit} %"
            yield [name, status.per, show(used), show(limit), show(reserved), share, again, warned]


def _print_table(console: Console, rows: Sequence[UsageTotal], *, by: str) -> None:
    columns = [Column(by.upper(), flexible=True)]
    columns += [
        Column(heading, right=True)
        for heading in ("CALLS", "INPUT", "OUTPUT", "CACHE-R", "CACHE-W", "REASONING", "COST")
    ]
    lines = [_line(row.group or "(none)", row) for row in rows]
    if len(rows) > 1:
        lines.append(_line("total", _sum(rows)))
    console.print_table(columns, lines)


def _line(name: str, row: UsageTotal) -> list[str]:
    partly = "+?" if 0 < row.unknown_cost_calls < row.calls else ""
    tokens = [f"{getattr(row, field):,}" for field in TOKEN_FIELDS]
    return [name, f"{row.calls:,}", *tokens, money(row.cost_microusd) + partly]


def _sum(rows: Sequence[UsageTotal]) -> UsageTotal:
    fields = [name for name in UsageTotal.__struct_fields__ if name != "group"]
    return UsageTotal(None, *(sum(getattr(row, name) for row in rows) for name in fields))


def _tell_unknown(console: Console, rows: Sequence[UsageTotal]) -> None:
    total = _sum(rows)
    if total.unknown_cost_calls:
        share = total.unknown_cost_calls / total.calls
        console.note(
            f"{total.unknown_cost_calls:,} of {total.calls:,} calls ({share:.0%}) have no known "
            "price; their cost is not in the sums."
        )


def _print_csv(rows: Sequence[UsageTotal]) -> None:
    items = [usage_json(row) for row in rows]
    names = list(usage_json(UsageTotal()))
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for item in items:
        # A spreadsheet evaluates text that begins like a formula.
        group = item["group"] or ""
        writer.writerow(item | {"group": f"'{group}" if group.startswith(FORMULA) else group})
