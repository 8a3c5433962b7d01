"""The tools themselves: short answers with citations, in one profile."""

from dataclasses import dataclass
from typing import Any

from sessionary.actions import usage
from sessionary.actions.sessions import append, edit, lists, log, read
from sessionary.clock import Clock, Ids, Moment
from sessionary.errors import BadInput
from sessionary.formats.message_input import read_message
from sessionary.mcp import bounds, finding, packing
from sessionary.mcp.bounds import Json
from sessionary.model.session import SessionFolder, SessionHead, TitleBy
from sessionary.model.view import time_text, usage_json
from sessionary.store.database import Store, Tx

LONGEST_TRANSCRIPT = 60_000
# How much of each message an overview shows: as much as an answer holds.
OVERVIEW_TEXTS = (bounds.LONGEST_TEXT, 1000, 200)
_LONGEST_NUMBER = 9


@dataclass(frozen=True, slots=True)
class Tools:
    """What one client may do with one profile."""

    store: Store
    profile: str
    clock: Clock
    ids: Ids

    async def search_sessions(
        self, query: str, limit: int = 10, cursor: str | None = None, sort: str = "relevance"
    ) -> Json:
        """Find messages in all sessions; one best hit per task, with a citation each.

        `cursor` is `next` of an earlier answer. `sort` is relevance or newest.
        """
        pending = self.store.search(
            finding.find,
            query,
            profile=self.profile,
            limit=limit,
            sort=sort,
            cursor=cursor,
            now=self.clock.now(),
        )
        return await pending

    async def list_sessions(
        self,
        limit: int = 20,
        cursor: str | None = None,
        source: str | None = None,
        project: str | None = None,
    ) -> Json:
        """The sessions that were last active, newest first."""
        filters = lists.SessionFilters(folder=SessionFolder.CHATS, platform=source, project=project)
        return await self.store.read(
            _listed, filters, profile=self.profile, limit=limit, cursor=cursor
        )

    async def get_session_overview(self, session: str) -> Json:
        """What a session is about: its facts, its first and last messages, its prompts."""
        return await self.store.read(_overview, session, profile=self.profile)

    async def get_messages(
        self,
        session: str,
        around: int | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 20,
    ) -> Json:
        """A stretch of a transcript: around, before or after a message's number, or its end."""
        window = await self.store.read(
            _window,
            session,
            profile=self.profile,
            around=around,
            before=before,
            after=after,
            limit=limit,
        )
        items = [bounds.message_of(entry) for entry in window.entries]
        kept = (
            bounds.fitting(items, from_end=after is None)
            if around is None
            else bounds.around(items, around)
        )
        seqs = [item["seq"] for item in items]
        shown = [item["seq"] for item in kept]
        return {
            "messages": kept,
            "more_before": window.more_before or shown[:1] != seqs[:1],
            "more_after": window.more_after or shown[-1:] != seqs[-1:],
        }

    async def get_usage_summary(self, by: str = "model", cursor: str | None = None) -> Json:
        """Tokens and cost by day, model, provider, source, project or session."""
        rows = await self.store.read(usage.report, by, profile=self.profile)
        begin = _number(cursor)
        kept = bounds.fitting([bounds.usage_of(row) for row in rows[begin:]])
        end = begin + len(kept)
        return {"rows": kept, "next": str(end) if end < len(rows) else None}

    async def resume_pack(self, session: str, budget_tokens: int = 4000) -> Json:
        """All one needs to go on with a session, within a budget of tokens (an estimate)."""
        if budget_tokens < packing.SMALLEST_BUDGET:
            raise BadInput(f"A pack needs at least {packing.SMALLEST_BUDGET} tokens.")
        budget = min(budget_tokens, packing.LARGEST_BUDGET)
        return await self.store.read(packing.pack, session, profile=self.profile, budget=budget)

    async def append_message(
        self, session: str, role: str, text: str, idempotency_key: str | None = None
    ) -> Json:
        """Add one message to a session, without running an agent."""
        done = await self.store.write(
            _append,
            session,
            append.NewMessage(read_message(role, text).message, idempotency_key=idempotency_key),
            profile=self.profile,
            moment=Moment(self.clock.now(), self.ids),
        )
        return {"cite": bounds.citation(done.session_id, done.seq), "repeated": done.repeated}

    async def rename_session(self, session: str, title: str) -> Json:
        """Give a session a title; a person's stays."""
        head = await self.store.write(_rename, session, title, profile=self.profile)
        return {"session": head.id, "title": head.title}

    async def transcript(self, session: str) -> str:
        """The end of a transcript as text, for the resource `session://{id}`."""
        window = await self.store.read(_window, session, profile=self.profile, limit=200)
        kept: list[str] = []
        room = LONGEST_TRANSCRIPT
        for item in map(bounds.message_of, reversed(window.entries)):
            who = item.get("role") or item["kind"]
            line = f"[{item['cite']}] {who}: {item.get('text', '')}"
            room -= len(line)
            if room < 0 and kept:
                break
            kept.append(line)
        if window.more_before or len(kept) < len(window.entries):
            kept.append("[What came before is left out; get_messages gives it, with `before`.]")
        return "\n\n".join(reversed(kept))


def _window(tx: Tx, /, ref: str, *, profile: str, **where: Any) -> read.TranscriptWindow:
    head = read.resolve(tx, ref, profile=profile)
    return read.window(tx, head.id, profile=profile, **where)


def _overview(tx: Tx, ref: str, *, profile: str) -> Json:
    head = read.resolve(tx, ref, profile=profile)
    first = read.window(tx, head.id, profile=profile, after=0, limit=3).entries
    last = read.window(tx, head.id, profile=profile, limit=6).entries
    seen = {entry.seq for entry in first}
    facts = bounds.head_of(head) | {
        "began_at": time_text(head.began_at),
        "parent": head.parent_id,
        "usage": usage_json(head.usage),
    }
    made: Json = {}
    for longest in OVERVIEW_TEXTS:
        made = facts | {
            "first": [bounds.message_of(entry, longest) for entry in first],
            "last": [bounds.message_of(entry, longest) for entry in last if entry.seq not in seen],
        }
        if bounds.tokens(made) <= bounds.MOST_TOKENS:
            break
    return made


def _listed(
    tx: Tx, filters: lists.SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> Json:
    page = lists.list_sessions(tx, filters, profile=profile, limit=limit, cursor=cursor)
    kept = bounds.fitting([bounds.head_of(head) for head in page.items])
    if len(kept) < len(page.items):
        # A shorter page, so that its cursor is where the next begins.
        page = lists.list_sessions(tx, filters, profile=profile, limit=len(kept), cursor=cursor)
    return {"sessions": kept, "next": page.next}


def _number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > _LONGEST_NUMBER:
        raise BadInput("That cursor is none of ours; begin without one.")
    return int(cursor)


def _append(
    tx: Tx, ref: str, saying: append.NewMessage, *, profile: str, moment: Moment
) -> log.Appended:
    head = read.resolve(tx, ref, profile=profile)
    return append.append_to(tx, head.id, saying, profile=profile, moment=moment)


def _rename(tx: Tx, ref: str, title: str, *, profile: str) -> SessionHead:
    head = read.resolve(tx, ref, profile=profile)
    return edit.rename(tx, head.id, title, profile=profile, by=TitleBy.AGENT)
