"""The tools: short answers with citations, in one profile."""

from dataclasses import dataclass
from typing import Any

from sessionary.actions import usage
from sessionary.actions.sessions import append, edit, lists, log, read
from sessionary.clock import Clock, Ids, Moment
from sessionary.errors import BadInput
from sessionary.formats.message_input import read_message
from sessionary.mcp import output, search
from sessionary.mcp.output import Json
from sessionary.model import transcript
from sessionary.model.message import Compaction, Entry, Message, Role
from sessionary.model.session import SessionFolder, SessionHead, TitleBy
from sessionary.model.view import time_text, usage_json
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries
from sessionary.store.tables import sessions as session_table

MAX_TRANSCRIPT = 60_000
# How much of each message an overview shows: the first that fits into an answer.
OVERVIEW_TEXTS = (output.MAX_TEXT, 1000, 200)
_LONGEST_NUMBER = 9
MIN_BUDGET = 200
MAX_BUDGET = 100_000
# How much of the budget the beginning and the summary may take.
_FIRST = 0.2
_SUMMARY = 0.35
_PAGE = 200
# The budget is in tokens, texts are cut by characters: this few are less than a token.
_CHARACTERS_PER_TOKEN = 3
_MIN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class SessionTools:
    """The tools of one client, in one profile."""

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
            search.search_tasks,
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
            _list_page, filters, profile=self.profile, limit=limit, cursor=cursor
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
        items = [output.message_json(entry) for entry in window.entries]
        kept = (
            output.fit(items, from_end=after is None)
            if around is None
            else output.fit_around(items, around)
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
        rows = await self.store.read(usage.sum_usage, by, profile=self.profile)
        begin = _parse_offset(cursor)
        kept = output.fit([output.usage_row_json(row) for row in rows[begin:]])
        end = begin + len(kept)
        return {"rows": kept, "next": str(end) if end < len(rows) else None}

    async def resume_pack(self, session: str, budget_tokens: int = 4000) -> Json:
        """All one needs to go on with a session, within a budget of tokens (an estimate)."""
        if budget_tokens < MIN_BUDGET:
            raise BadInput(f"A pack needs at least {MIN_BUDGET} tokens.")
        budget = min(budget_tokens, MAX_BUDGET)
        return await self.store.read(
            build_resume_pack, session, profile=self.profile, budget=budget
        )

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
        return {"cite": output.citation(done.session_id, done.seq), "repeated": done.repeated}

    async def rename_session(self, session: str, title: str) -> Json:
        """Give a session a title; a person's stays."""
        head = await self.store.write(_rename, session, title, profile=self.profile)
        return {"session": head.id, "title": head.title}

    async def transcript(self, session: str) -> str:
        """The end of a transcript as text, for the resource `session://{id}`."""
        window = await self.store.read(_window, session, profile=self.profile, limit=200)
        kept: list[str] = []
        room = MAX_TRANSCRIPT
        for item in map(output.message_json, reversed(window.entries)):
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
    head = read.find(tx, ref, profile=profile)
    return read.read_window(tx, head.id, profile=profile, **where)


def _overview(tx: Tx, ref: str, *, profile: str) -> Json:
    head = read.find(tx, ref, profile=profile)
    first = read.read_window(tx, head.id, profile=profile, after=0, limit=3).entries
    last = read.read_window(tx, head.id, profile=profile, limit=6).entries
    seen = {entry.seq for entry in first}
    facts = output.head_json(head) | {
        "began_at": time_text(head.began_at),
        "parent": head.parent_id,
        "usage": usage_json(head.usage),
    }
    made: Json = {}
    for longest in OVERVIEW_TEXTS:
        made = facts | {
            "first": [output.message_json(entry, longest) for entry in first],
            "last": [
                output.message_json(entry, longest) for entry in last if entry.seq not in seen
            ],
        }
        if output.tokens(made) <= output.MAX_TOKENS:
            break
    return made


def _list_page(
    tx: Tx, filters: lists.SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> Json:
    page = lists.list_sessions(tx, filters, profile=profile, limit=limit, cursor=cursor)
    kept = output.fit([output.head_json(head) for head in page.items])
    if len(kept) < len(page.items):
        # Read a shorter page, so that its cursor is right.
        page = lists.list_sessions(tx, filters, profile=profile, limit=len(kept), cursor=cursor)
    return {"sessions": kept, "next": page.next}


def _parse_offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > _LONGEST_NUMBER:
        raise BadInput("That cursor is none of ours; begin without one.")
    return int(cursor)


def _append(
    tx: Tx, ref: str, saying: append.NewMessage, *, profile: str, moment: Moment
) -> log.Appended:
    head = read.find(tx, ref, profile=profile)
    return append.append_to_session(tx, head.id, saying, profile=profile, moment=moment)


def _rename(tx: Tx, ref: str, title: str, *, profile: str) -> SessionHead:
    head = read.find(tx, ref, profile=profile)
    return edit.rename(tx, head.id, title, profile=profile, by=TitleBy.AGENT)


def build_resume_pack(tx: Tx, ref: str, *, profile: str, budget: int) -> Json:
    """Collect a session's facts, first prompt, latest summary, and as many of its last messages as fit."""
    head = read.find(tx, ref, profile=profile)
    made: Json = {
        "session": head.id,
        "title": head.title,
        "model": head.model,
        "source": output.cut(head.source.platform, 100),
        "began_at": time_text(head.began_at),
        "last_active_at": time_text(head.last_active_at),
        "continues": head.parent_id,
        "left_out": head.message_count,
        "tokens_estimate": budget,
        "messages": [],
    }
    first = _first_prompt(tx, head)
    if first is not None:
        made["first_prompt"] = _cut_to_tokens(first, _FIRST * budget)
    summary = _summary(tx, head)
    if summary is not None:
        made["summary"] = _cut_to_tokens(summary, _SUMMARY * budget)
    kept = _last_messages(tx, head, room=budget - output.tokens(made))
    made |= {"messages": kept, "left_out": head.message_count - len(kept)}
    while kept and output.tokens(made) > budget:
        kept.pop(0)
        made["left_out"] += 1
    made["tokens_estimate"] = output.tokens(made)
    return made


def _last_messages(tx: Tx, head: SessionHead, *, room: float) -> list[Json]:
    """The last messages that fit; the first that does not fit is cut, if enough of it remains."""
    kept: list[Json] = []
    before: int | None = None
    while True:
        window = read.read_window(tx, head.id, profile=head.profile, before=before, limit=_PAGE)
        for entry in reversed([each for each in window.entries if _is_conversation(each)]):
            item = output.message_json(entry)
            cost = output.tokens(item)
            if cost > room:
                left = int((room - output.tokens(item | {"text": ""})) * _CHARACTERS_PER_TOKEN)
                return [*_cut_message(entry, left), *kept[::-1]]
            room -= cost
            kept.append(item)
        if not window.more_before or not window.entries:
            return kept[::-1]
        before = window.entries[0].seq


def _cut_message(entry: Entry, characters: int) -> list[Json]:
    return [output.message_json(entry, characters)] if characters >= _MIN_CHARACTERS else []


def _is_conversation(entry: Entry) -> bool:
    body = entry.body
    return (
        isinstance(body, Message) and body.role in (Role.USER, Role.ASSISTANT) and bool(body.text)
    )


def _first_prompt(tx: Tx, head: SessionHead) -> str | None:
    window = read.read_window(tx, head.id, profile=head.profile, after=0, limit=_PAGE)
    bodies = (entry.body for entry in window.entries)
    prompts = (each.text for each in bodies if isinstance(each, Message) and each.role is Role.USER)
    return next((text for text in prompts if text), None)


def _summary(tx: Tx, head: SessionHead) -> str | None:
    mark = transcript.latest_compaction(entries.marks(tx, session_table.segments(tx, head.no)))
    return mark.body.summary if mark is not None and isinstance(mark.body, Compaction) else None


def _cut_to_tokens(text: str, tokens: float) -> str:
    return output.cut(text, max(_MIN_CHARACTERS, int(tokens * _CHARACTERS_PER_TOKEN)))
