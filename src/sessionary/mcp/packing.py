"""A pack: all one needs to go on with a session elsewhere, within a budget of tokens."""

from sessionary.actions.sessions import read
from sessionary.mcp import bounds
from sessionary.mcp.bounds import Json
from sessionary.model import transcript
from sessionary.model.message import Compaction, Entry, Message, Role
from sessionary.model.session import SessionHead
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions

SMALLEST_BUDGET = 200
LARGEST_BUDGET = 100_000
# How much of the budget the beginning and the summary may take.
_FIRST = 0.2
_SUMMARY = 0.35
_PAGE = 200
# A budget is of tokens, a text is cut by characters: these are less than a token each.
_PER_TOKEN = 3
_SHORTEST = 40


def pack(tx: Tx, ref: str, *, profile: str, budget: int) -> Json:
    """The facts, the first question, the summary that holds, and as much of the end as fits."""
    head = read.resolve(tx, ref, profile=profile)
    made: Json = {
        "session": head.id,
        "title": head.title,
        "model": head.model,
        "source": bounds.cut(head.source.platform, 100),
        "began_at": time_text(head.began_at),
        "last_active_at": time_text(head.last_active_at),
        "continues": head.parent_id,
        "left_out": head.message_count,
        "tokens_estimate": budget,
        "messages": [],
    }
    first = _first_prompt(tx, head)
    if first is not None:
        made["first_prompt"] = _shortened(first, _FIRST * budget)
    summary = _summary(tx, head)
    if summary is not None:
        made["summary"] = _shortened(summary, _SUMMARY * budget)
    kept = _end(tx, head, room=budget - bounds.tokens(made))
    made |= {"messages": kept, "left_out": head.message_count - len(kept)}
    while kept and bounds.tokens(made) > budget:
        kept.pop(0)
        made["left_out"] += 1
    made["tokens_estimate"] = bounds.tokens(made)
    return made


def _end(tx: Tx, head: SessionHead, *, room: float) -> list[Json]:
    """The last things that were said; the one that does not fit is cut, if that leaves some of it."""
    kept: list[Json] = []
    before: int | None = None
    while True:
        window = read.window(tx, head.id, profile=head.profile, before=before, limit=_PAGE)
        for entry in reversed([each for each in window.entries if _is_worth(each)]):
            item = bounds.message_of(entry)
            cost = bounds.tokens(item)
            if cost > room:
                left = int((room - bounds.tokens(item | {"text": ""})) * _PER_TOKEN)
                return [*_cut(entry, left), *kept[::-1]]
            room -= cost
            kept.append(item)
        if not window.more_before or not window.entries:
            return kept[::-1]
        before = window.entries[0].seq


def _cut(entry: Entry, characters: int) -> list[Json]:
    return [bounds.message_of(entry, characters)] if characters >= _SHORTEST else []


def _is_worth(entry: Entry) -> bool:
    said = entry.body
    return (
        isinstance(said, Message) and said.role in (Role.USER, Role.ASSISTANT) and bool(said.text)
    )


def _first_prompt(tx: Tx, head: SessionHead) -> str | None:
    window = read.window(tx, head.id, profile=head.profile, after=0, limit=_PAGE)
    said = (entry.body for entry in window.entries)
    prompts = (each.text for each in said if isinstance(each, Message) and each.role is Role.USER)
    return next((text for text in prompts if text), None)


def _summary(tx: Tx, head: SessionHead) -> str | None:
    mark = transcript.latest_compaction(entries.marks(tx, sessions.segments(tx, head.no)))
    return mark.body.summary if mark is not None and isinstance(mark.body, Compaction) else None


def _shortened(text: str, tokens: float) -> str:
    return bounds.cut(text, max(_SHORTEST, int(tokens * _PER_TOKEN)))
