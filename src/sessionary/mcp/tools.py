"""The tools: short answers with citations, in one profile."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from sessionary.actions import budgets, questions, usage
from sessionary.actions.budgets import Budgets
from sessionary.actions.search.search import SearchOptions
from sessionary.actions.sessions import append, edit, lists, log, read
from sessionary.clock import Clock, Ids, Moment
from sessionary.errors import BadInput
from sessionary.formats.message_input import read_message
from sessionary.mcp import output, search
from sessionary.mcp.output import (
    AppendedLine,
    HitLinePage,
    MessageLine,
    MessageWindow,
    QuestionLinePage,
    RenamedSession,
    ResumePack,
    SessionBriefPage,
    SessionFacts,
    UsagePage,
)
from sessionary.model.message import MAX_SEQ, Entry, Message, Role
from sessionary.model.session import SessionFolder, SessionHead, TitleBy
from sessionary.model.terminal import one_line
from sessionary.model.view import time_text, usage_json
from sessionary.store.database import Store, Tx

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
# How many used-up budgets are named, and how much of each name is shown.
_MOST_SCOPES = 20
_LONGEST_SCOPE = 100


SessionRef = Annotated[
    str, Field(description="A session: its id, the beginning of its id, or its title.")
]
Cursor = Annotated[str | None, Field(description="`next` of the previous answer, to get more.")]
Sort = Annotated[Literal["relevance", "newest"], Field(description="The order of the hits.")]
FolderName = Annotated[
    Literal["chats", "automation", "archive"] | None,
    Field(description="Only chats, only jobs and subagents, or only archived sessions."),
]
Platform = Annotated[str | None, Field(description="Only this platform, such as telegram or web.")]
ProjectName = Annotated[str | None, Field(description="Only this project, by name.")]
PersonName = Annotated[
    str | None, Field(description="Only what this person wrote: a name or an id.")
]
Since = Annotated[
    str | None, Field(description="Only from this time on: 2026-11-15 or 2026-11-15T09:30:00Z.")
]
Until = Annotated[
    str | None, Field(description="Only before this time: 2026-11-15 or 2026-11-15T09:30:00Z.")
]
SeqNumber = Annotated[int | None, Field(ge=0, le=MAX_SEQ)]
RoleName = Annotated[
    Literal["user", "assistant", "system", "tool"], Field(description="Who wrote the message.")
]
GroupName = Annotated[
    Literal["day", "model", "provider", "source", "project", "session"],
    Field(description="By what to sum."),
]


@dataclass(frozen=True, slots=True)
class SessionTools:
    """The tools of one client, in one profile."""

    store: Store
    profile: str
    clock: Clock
    ids: Ids
    budgets: Budgets = field(default_factory=dict)

    async def search_sessions(
        self,
        query: Annotated[
            str,
            Field(
                description='Words, "a phrase", -without, prefix*, OR. Any text is a legal query.'
            ),
        ],
        limit: Annotated[int, Field(ge=1, le=search.MAX_HITS, description="How many hits.")] = 10,
        cursor: Cursor = None,
        sort: Sort = "relevance",
        source: Platform = None,
        folder: FolderName = None,
        person: PersonName = None,
        project: ProjectName = None,
        since: Since = None,
        until: Until = None,
    ) -> HitLinePage:
        """Search the text of all sessions.

        Returns the best hit of each task with a citation `session_id#seq`. Read more with get_messages.
        """
        now = self.clock.now()
        filters = SearchOptions(
            sort=sort,
            cursor=cursor,
            source=source,
            person=person,
            project=project,
            since=_parse_time("since", since),
            until=_parse_time("until", until),
        )
        return await self.store.search(
            search.search_tasks,
            query,
            profile=self.profile,
            limit=limit,
            filters=filters,
            folder=None if folder is None else SessionFolder(folder),
            now=now,
        )

    async def list_sessions(
        self,
        limit: Annotated[int, Field(ge=1, le=200, description="How many sessions.")] = 20,
        cursor: Cursor = None,
        source: Platform = None,
        folder: FolderName = None,
        project: ProjectName = None,
        since: Since = None,
        until: Until = None,
    ) -> SessionBriefPage:
        """List sessions, the most recently active first."""
        filters = lists.SessionFilters(
            folder=SessionFolder.CHATS if folder is None else SessionFolder(folder),
            platform=source,
            project=project,
            since=_parse_time("since", since),
            until=_parse_time("until", until),
        )
        return await self.store.read(
            _list_page, filters, profile=self.profile, limit=limit, cursor=cursor
        )

    async def get_session_overview(self, session: SessionRef) -> SessionFacts:
        """Get the facts of a session, its first and its last messages."""
        return await self.store.read(_overview, session, profile=self.profile)

    async def get_messages(
        self,
        session: SessionRef,
        around: Annotated[
            SeqNumber, Field(description="Messages on both sides of this seq.")
        ] = None,
        before: Annotated[SeqNumber, Field(description="Messages before this seq.")] = None,
        after: Annotated[SeqNumber, Field(description="Messages after this seq.")] = None,
        limit: Annotated[int, Field(ge=1, le=200, description="How many messages.")] = 20,
    ) -> MessageWindow:
        """Read part of a transcript: around, before or after a message, or its end.

        Give at most one of `around`, `before` and `after`.
        """
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
            "items": kept,
            "more_before": window.more_before or shown[:1] != seqs[:1],
            "more_after": window.more_after or shown[-1:] != seqs[-1:],
        }

    async def list_questions(
        self,
        limit: Annotated[int, Field(ge=1, le=200, description="How many questions.")] = 20,
        cursor: Cursor = None,
    ) -> QuestionLinePage:
        """List what agents ask people and nobody has answered yet, newest first.

        No tool answers them: what an agent wants to do is approved by a person, never by an agent. People answer in the
        chat where they were asked, in the workbench, or with `sessionary questions`.
        """
        return await self.store.read(
            _question_page, profile=self.profile, limit=limit, cursor=cursor
        )

    async def get_usage_summary(self, by: GroupName = "model", cursor: Cursor = None) -> UsagePage:
        """Sum the tokens and the cost of model calls; name the budgets that are used up."""
        rows = await self.store.read(usage.sum_usage, by, profile=self.profile)
        limits = await self.store.read(
            budgets.list_status, self.budgets, profile=self.profile, now=self.clock.now()
        )
        used_up = [each.scope for each in limits if each.is_used_up][:_MOST_SCOPES]
        begin = _parse_offset(cursor)
        kept = output.fit([output.usage_row_json(row) for row in rows[begin:]])
        end = begin + len(kept)
        return {
            "items": kept,
            "next": str(end) if end < len(rows) else None,
            "used_up_budgets": [one_line(scope, _LONGEST_SCOPE) for scope in used_up],
        }

    async def resume_pack(
        self,
        session: SessionRef,
        budget_tokens: Annotated[
            int,
            Field(
                ge=MIN_BUDGET, le=MAX_BUDGET, description="How large the answer may be, in tokens."
            ),
        ] = 4000,
    ) -> ResumePack:
        """Get what is needed to continue a session, within a token budget (estimated).

        Its facts, the first prompt, the current summary, and as many of the last messages as fit.
        """
        return await self.store.read(
            build_resume_pack, session, profile=self.profile, budget=budget_tokens
        )

    async def append_message(
        self,
        session: SessionRef,
        role: RoleName,
        text: Annotated[str, Field(description="The text of the message.")],
        idempotency_key: Annotated[
            str | None,
            Field(description="A key of your choice: the same key again adds nothing."),
        ] = None,
    ) -> AppendedLine:
        """Add a message to a session. No agent answers it."""
        done = await self.store.write(
            _append,
            session,
            append.NewMessage(read_message(role, text).message, idempotency_key=idempotency_key),
            profile=self.profile,
            moment=Moment(self.clock.now(), self.ids),
        )
        return {
            "cite": output.citation(done.session_id, done.seq),
            "session_id": done.session_id,
            "seq": done.seq,
            "repeated": done.repeated,
        }

    async def rename_session(
        self,
        session: SessionRef,
        title: Annotated[str, Field(description="The new title.")],
    ) -> RenamedSession:
        """Give a session a title. A title that a person gave it stays."""
        head = await self.store.write(_rename, session, title, profile=self.profile)
        return {"session_id": head.id, "title": head.title}

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


def _overview(tx: Tx, ref: str, *, profile: str) -> SessionFacts:
    head = read.find(tx, ref, profile=profile)
    first = read.read_window(tx, head.id, profile=profile, after=0, limit=3).entries
    last = read.read_window(tx, head.id, profile=profile, limit=6).entries
    seen = {entry.seq for entry in first}
    made: SessionFacts = {
        **output.head_json(head),
        "began_at": time_text(head.began_at),
        "parent_id": head.parent_id,
        "usage": usage_json(head.usage),
        "first": [],
        "last": [],
    }
    for longest in OVERVIEW_TEXTS:
        made["first"] = [output.message_json(entry, longest) for entry in first]
        made["last"] = [
            output.message_json(entry, longest) for entry in last if entry.seq not in seen
        ]
        if output.tokens(made) <= output.MAX_TOKENS:
            break
    return made


def _list_page(
    tx: Tx, filters: lists.SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> SessionBriefPage:
    page = lists.list_sessions(tx, filters, profile=profile, limit=limit, cursor=cursor)
    kept = output.fit([output.head_json(head) for head in page.items])
    if len(kept) < len(page.items):
        # Read a shorter page, so that its cursor is right.
        page = lists.list_sessions(tx, filters, profile=profile, limit=len(kept), cursor=cursor)
    return {"items": kept, "next": page.next}


def _question_page(tx: Tx, *, profile: str, limit: int, cursor: str | None) -> QuestionLinePage:
    page = questions.list_questions(tx, profile=profile, limit=limit, only_open=True, cursor=cursor)
    kept = output.fit([output.question_json(each) for each in page.items])
    if len(kept) < len(page.items):
        # Read a shorter page, so that its cursor is right.
        page = questions.list_questions(
            tx, profile=profile, limit=len(kept), only_open=True, cursor=cursor
        )
    return {"items": kept, "next": page.next}


def _parse_offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > _LONGEST_NUMBER:
        raise BadInput("That cursor is none of ours; begin without one.")
    return int(cursor)


def _parse_time(name: str, text: str | None) -> datetime | None:
    """The time that a text names; a day begins at midnight in UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"'{name}' is a time like 2026-11-15 or 2026-11-15T09:30:00Z, not {one_line(text, 60)!r}."
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _append(
    tx: Tx, ref: str, saying: append.NewMessage, *, profile: str, moment: Moment
) -> log.Appended:
    head = read.find(tx, ref, profile=profile)
    return append.append_to_session(tx, head.id, saying, profile=profile, moment=moment)


def _rename(tx: Tx, ref: str, title: str, *, profile: str) -> SessionHead:
    head = read.find(tx, ref, profile=profile)
    return edit.rename(tx, head.id, title, profile=profile, by=TitleBy.AGENT)


def build_resume_pack(tx: Tx, ref: str, *, profile: str, budget: int) -> ResumePack:
    """Collect a session's facts, first prompt, latest summary, and as many of its last messages as fit."""
    head = read.find(tx, ref, profile=profile)
    made: ResumePack = {
        "session_id": head.id,
        "title": head.title,
        "model": head.model,
        "source": output.cut(head.source.platform, 100),
        "began_at": time_text(head.began_at),
        "last_active_at": time_text(head.last_active_at),
        "parent_id": head.parent_id,
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
    made["messages"], made["left_out"] = kept, head.message_count - len(kept)
    while kept and output.tokens(made) > budget:
        kept.pop(0)
        made["left_out"] += 1
    made["tokens_estimate"] = output.tokens(made)
    return made


def _last_messages(tx: Tx, head: SessionHead, *, room: float) -> list[MessageLine]:
    """The last messages that fit; the first that does not fit is cut, if enough of it remains."""
    kept: list[MessageLine] = []
    before: int | None = None
    while True:
        window = read.read_window(tx, head.id, profile=head.profile, before=before, limit=_PAGE)
        for entry in reversed([each for each in window.entries if _is_conversation(each)]):
            item = output.message_json(entry)
            cost = output.tokens(item)
            if cost > room:
                left = int((room - output.tokens({**item, "text": ""})) * _CHARACTERS_PER_TOKEN)
                return [*_cut_message(entry, left), *kept[::-1]]
            room -= cost
            kept.append(item)
        if not window.more_before or not window.entries:
            return kept[::-1]
        before = window.entries[0].seq


def _cut_message(entry: Entry, characters: int) -> list[MessageLine]:
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
    compaction = read.get_compaction(tx, head)
    return None if compaction is None else compaction.summary


def _cut_to_tokens(text: str, tokens: float) -> str:
    return output.cut(text, max(_MIN_CHARACTERS, int(tokens * _CHARACTERS_PER_TOKEN)))
