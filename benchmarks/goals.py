"""Goals as bounds: what is to be reached in words, and the figure that was reached."""

from collections.abc import Callable

from benchmarks.measure import Goal, Results

Figure = Callable[[Results], float]


def at_least(
    bound: float, what: str, figure: Figure, *, of: str = "", only_slow: bool = False
) -> Goal:
    """The figure is this or more; `what` says in which unit, `of` whose it is."""
    return Goal(
        _text(of, f"at least {bound:,g} {what}"),
        lambda got: figure(got) >= bound,
        only_slow=only_slow,
        figure=lambda got: shown(figure(got)),
    )


def at_most(
    bound: float, what: str, figure: Figure, *, of: str = "", only_slow: bool = False
) -> Goal:
    """The figure is this or less."""
    return Goal(
        _text(of, f"at most {bound:,g} {what}"),
        lambda got: figure(got) <= bound,
        only_slow=only_slow,
        figure=lambda got: shown(figure(got)),
    )


def steady(name: str) -> Goal:
    """The slowest of a hundred are not much slower than the rest."""
    return at_most(
        3, "times p50", lambda got: got.p99(name) / got.p50(name), of="p99", only_slow=True
    )


def shown(value: float) -> str:
    """A figure with as many digits as mean something."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _text(of: str, bound: str) -> str:
    return f"{of}: {bound}" if of else bound
