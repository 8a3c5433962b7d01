"""Wait for the search index, and show on a terminal how far it is."""

import time
from typing import TYPE_CHECKING

from sessionary.cli.console import Console

if TYPE_CHECKING:
    from sessionary.app.context import AppContext

# How long the index is updated between two progress messages.
STEP_SECONDS = 0.3


def catch_up(console: Console, app: "AppContext") -> int:
    """Bring the index up to date; return how many changes it took in.

    Ends early if the index does not come further, because nothing can be written: the next answer
    says what is missing.
    """
    began = time.monotonic()
    state = app.store.catch_up(0).result()
    total = before = state.behind
    while state.behind:
        watermark = state.watermark
        state = app.store.catch_up(STEP_SECONDS).result()
        total = max(total, state.behind)
        if state.behind >= before and state.watermark == watermark:
            break
        before = state.behind
        if state.behind and not console.json:
            console.progress(
                _progress(total - state.behind, total, seconds=time.monotonic() - began)
            )
    console.end_progress()
    return total - state.behind


def _progress(done: int, total: int, *, seconds: float) -> str:
    rate = done / max(seconds, 0.001)
    remaining = round((total - done) / max(rate, 0.001))
    minutes, rest = divmod(remaining, 60)
    left = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"Indexing: {done:,} of {total:,} changes, {rate:,.0f} per second, about {left} left"
