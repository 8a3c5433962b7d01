"""The tools themselves: short answers with citations, in one profile."""

from dataclasses import dataclass
from typing import Any

from hansard.actions import listing, log, read, resolve, say, search, sessions, usage
from hansard.clock import Clock, Ids, Occasion
from hansard.errors import BadInput
from hansard.mcp import bounds
from hansard.model.entry import Compaction, Entry, Message, Role, message
from hansard.model.session import SessionHead, Shelf, TitleBy
from hansard.model.tokens import estimate
from hansard.model.view import time_text, usage_json
from hansard.store.database import Store, Tx

Json = dict[str, Any]
SMALLEST_BUDGET = 200
_PACKED = 400


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
        """Find messages in all sessions; one best hit per session, with a citation each."""
        wish = search.Wish(sort=sort, limit=limit, cursor=cursor)
        now = self.clock.now()
        found = await self.store.search(
            search.search, query, profile=self.profile, wish=wish, now=now
        )
        hits = [
            {
                "cite": bounds.citation(hit.session.id, hit.seq),
                "title": hit.session.title,
                "role": hit.role,
                "at": time_text(hit.at),
                "snippet": hit.snippet,
                "hits_in_session": hit.in_session,
            }
            for hit in found
        ]
        kept, cut = bounds.fitting(hits)
        return {
            "hits": kept,
            "total": found.total,
            "more_than_counted": found.more,
            "any_word_instead_of_all": found.relaxed,
            "did_you_mean": found.suggestion,
            "next": found.next,
            "cut": cut,
        }

    async def list_sessions(
        self,
        limit: int = 20,
        cursor: str | None = None,
        source: str | None = None,
        project: str | None = None,
    ) -> Json:
        """The sessions that were last active, newest first."""
        filters = listing.Filters(shelf=Shelf.CHATS, platform=source, project=project)
        page = await self.store.read(
            listing.listing, filters, profile=self.profile, limit=limit, cursor=cursor
        )
        return {"sessions": [bounds.head_of(head) for head in page.items], "next": page.next}

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
        kept, cut = bounds.fitting([bounds.message_of(entry) for entry in window.entries])
        return {
            "messages": kept,
            "more_before": window.more_before,
            "more_after": window.more_after or cut,
        }

    async def get_usage_summary(self, by: str = "model") -> Json:
        """Tokens and cost by day, model, provider, source, project or session."""
        rows = await self.store.read(usage.report, by, profile=self.profile)
        kept, cut = bounds.fitting([usage_json(row) for row in rows])
        return {"rows": kept, "cut": cut}

    async def resume_pack(self, session: str, budget_tokens: int = 4000) -> Json:
        """All one needs to go on with a session, within a budget of tokens (an estimate)."""
        if budget_tokens < SMALLEST_BUDGET:
            raise BadInput(f"A pack needs at least {SMALLEST_BUDGET} tokens.")
        return await self.store.read(
            _pack, session, profile=self.profile, budget=min(budget_tokens, 100_000)
        )

    async def append_message(
        self, session: str, role: str, text: str, idempotency_key: str | None = None
    ) -> Json:
        """Add one message to a session, without running an agent."""
        done = await self.store.write(
            _append,
            session,
            say.Saying(message(role, text), idem=idempotency_key),
            profile=self.profile,
            when=Occasion(self.clock.now(), self.ids),
        )
        return {"cite": bounds.citation(done.session_id, done.seq), "repeated": done.repeated}

    async def rename_session(self, session: str, title: str) -> Json:
        """Give a session a title; a person's stays."""
        head = await self.store.write(_rename, session, title, profile=self.profile)
        return {"session": head.id, "title": head.title}

    async def transcript(self, session: str) -> str:
        """The end of a transcript as text, for the resource `session://{id}`."""
        window = await self.store.read(_window, session, profile=self.profile, limit=200)
        lines = [
            f"[{item['cite']}] {item.get('role', 'mark')}: {item.get('text', '')}"
            for item in map(bounds.message_of, window.entries)
        ]
        return bounds.cut("\n\n".join(lines), bounds.LONGEST_ANSWER)


def _window(tx: Tx, /, ref: str, *, profile: str, **where: Any) -> read.Window:
    head = resolve.resolve(tx, ref, profile=profile)
    return read.window(tx, head.id, profile=profile, **where)


def _overview(tx: Tx, ref: str, *, profile: str) -> Json:
    head = resolve.resolve(tx, ref, profile=profile)
    first = read.window(tx, head.id, profile=profile, after=0, limit=3).entries
    last = read.window(tx, head.id, profile=profile, limit=6).entries
    seen = {entry.seq for entry in first}
    return bounds.head_of(head) | {
        "began_at": time_text(head.began_at),
        "parent": head.parent_id,
        "usage": usage_json(head.usage),
        "first": [bounds.message_of(entry) for entry in first],
        "last": [bounds.message_of(entry) for entry in last if entry.seq not in seen],
    }


def _pack(tx: Tx, ref: str, *, profile: str, budget: int) -> Json:
    """The first question, the summary that holds, and as much of the end as fits."""
    head = resolve.resolve(tx, ref, profile=profile)
    entries = read.window(tx, head.id, profile=profile, limit=_PACKED).entries
    summary = next(
        (e.body.summary for e in reversed(entries) if isinstance(e.body, Compaction)), None
    )
    pack: Json = {"session": head.id, "title": head.title, "first_prompt": head.preview}
    if summary is not None:
        pack["summary"] = bounds.cut(summary, budget * 2)
    room = budget - estimate(pack)
    kept: list[Json] = []
    for entry in reversed([entry for entry in entries if _worth_packing(entry)]):
        item = bounds.message_of(entry)
        room -= estimate(item)
        if room < 0:
            break
        kept.append(item)
    kept.reverse()
    left_out = head.message_count - len(kept)
    return pack | {"messages": kept, "left_out": left_out, "tokens_estimate": budget - max(room, 0)}


def _worth_packing(entry: Entry) -> bool:
    said = entry.body
    return (
        isinstance(said, Message) and said.role in (Role.USER, Role.ASSISTANT) and bool(said.text)
    )


def _append(tx: Tx, ref: str, saying: say.Saying, *, profile: str, when: Occasion) -> log.Appended:
    head = resolve.resolve(tx, ref, profile=profile)
    return say.say_in(tx, head.id, saying, profile=profile, when=when)


def _rename(tx: Tx, ref: str, title: str, *, profile: str) -> SessionHead:
    head = resolve.resolve(tx, ref, profile=profile)
    return sessions.rename(tx, head.id, title, profile=profile, by=TitleBy.AGENT)
