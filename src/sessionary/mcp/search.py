"""Search for agents: the best hit of each task, without their own earlier searches."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from sessionary.actions.search import search
from sessionary.actions.search.search import Hit, SearchOptions, SearchResult
from sessionary.actions.sessions import read
from sessionary.errors import BadInput
from sessionary.mcp import output
from sessionary.mcp.output import HitLine, HitLinePage
from sessionary.model import codec
from sessionary.model import query as queries
from sessionary.model.message import Message, Text, ToolCall, ToolResult
from sessionary.model.query import Query, matches
from sessionary.model.session import Lineage, SessionFolder, SessionHead
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

MAX_HITS = 50
MAX_SHOWN = 500
_PAGE = 100
_MAX_PAGES = 10
_MOST_ANCESTORS = 100
# A fork, a continuation and a subagent work on their parent's task; a reset begins another.
_SAME_TASK = (Lineage.FORK, Lineage.CONTINUATION, Lineage.SUBAGENT)
# Clients put a prefix of theirs before a tool's name: `mcp__sessionary__search_sessions`.
_OWN_TOOLS = re.compile(
    r"(?:.*[^a-z])?(?:search_sessions|resume_pack|get_session_overview|get_usage_summary)"
    r"|.*sessionary.*[^a-z](?:list_sessions|get_messages|list_questions)",
    re.IGNORECASE,
)
_CURSOR = re.compile(r"([^~]{0,200})~((?:[0-9a-z]{1,13}\.)*)")


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """Where a search continues: a page of hits, and the tasks that were already shown."""

    page: str | None = None
    shown: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> "SearchCursor":
        if text is None:
            return cls()
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise BadInput("That cursor is none of ours; begin without one.")
        numbers = tuple(int(each, 36) for each in found[2].split(".") if each)
        return cls(found[1] or None, numbers)

    def __str__(self) -> str:
        numbers = "".join(f"{_base36(no)}." for no in self.shown[-MAX_SHOWN:])
        return f"{self.page or ''}~{numbers}"


def search_tasks(
    tx: Tx,
    text: str,
    *,
    profile: str,
    limit: int,
    filters: SearchOptions,
    folder: SessionFolder | None = None,
    now: datetime,
) -> HitLinePage:
    """Find the best hit of each task, as many as fit into an answer, and the cursor of the rest."""
    place = SearchCursor.parse(filters.cursor)
    options = replace(filters, limit=_PAGE, all_hits=True)
    query = queries.parse(text, now=now)
    shown = list(place.shown)
    kept: list[HitLine] = []
    room = output.MAX_TOKENS
    first: SearchResult | None = None
    page: str | None = place.page
    for _ in range(_MAX_PAGES):
        found = search.search(
            tx, text, profile=profile, options=replace(options, cursor=page), now=now
        )
        first = first or found
        asked = query.as_beginnings() if found.beginnings else query
        asked = asked.relaxed() if found.relaxed else asked
        for hit in found:
            if folder is not None and hit.session.folder is not folder:
                continue
            task = task_of(tx, hit.session)
            if task in shown or is_echo(tx, hit, asked):
                continue
            item = _hit_json(hit)
            room -= output.tokens(item)
            if len(kept) == limit or (room < 0 and kept):
                return _result_json(first, kept, SearchCursor(page, tuple(shown)))
            kept.append(item)
            shown.append(task)
        page = found.next
        if page is None:
            return _result_json(first, kept, None)
    assert first is not None
    return _result_json(first, kept, SearchCursor(page, tuple(shown)))


def task_of(tx: Tx, head: SessionHead) -> int:
    """The number of the session in which a task began."""
    current = head
    for _ in range(_MOST_ANCESTORS):
        if current.lineage not in _SAME_TASK or current.parent_id is None:
            break
        parent = sessions.get(tx, current.parent_id, profile=head.profile)
        if parent is None:
            break
        current = parent
    return current.no


def is_echo(tx: Tx, hit: Hit, query: Query) -> bool:
    """Whether a hit is only an earlier search for the same words, or its result."""
    if hit.role not in ("assistant", "tool"):
        return False
    near = read.read_window(
        tx, hit.session.id, profile=hit.session.profile, around=hit.seq, limit=1
    )
    message = next((each.body for each in near.entries if each.seq == hit.seq), None)
    if not isinstance(message, Message):
        return False
    own = [
        part
        for part in message.parts
        if isinstance(part, ToolCall | ToolResult) and _is_own_tool(part)
    ]
    return bool(own) and not matches(query, _text_without(message, own))


def _is_own_tool(part: ToolCall | ToolResult) -> bool:
    return part.name is not None and _OWN_TOOLS.fullmatch(part.name) is not None


def _text_without(message: Message, own: Iterable[ToolCall | ToolResult]) -> str:
    """The text of a message without these tool calls and results."""
    skipped = list(own)
    pieces = []
    for part in message.parts:
        match part:
            case Text(text):
                pieces.append(text)
            case ToolCall(name=name, arguments=arguments) if part not in skipped:
                pieces.append(f"{name} {codec.encode(arguments)}")
            case ToolResult(content=content) if part not in skipped:
                pieces.append(codec.encode(content))
    return "\n".join(pieces)


def _hit_json(hit: Hit) -> HitLine:
    return {
        "cite": output.citation(hit.session.id, hit.seq),
        "title": hit.session.title,
        "role": hit.role,
        "at": time_text(hit.at),
        "snippet": hit.snippet,
        "in_session": hit.in_session,
    }


def _result_json(
    found: SearchResult, kept: list[HitLine], following: SearchCursor | None
) -> HitLinePage:
    return {
        "items": kept,
        "next": None if following is None else str(following),
        "total": found.total,
        "more": found.more,
        "relaxed": found.relaxed,
        "beginnings": found.beginnings,
        "suggestion": found.suggestion,
        "missing": found.missing,
    }


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    out = ""
    while number:
        number, rest = divmod(number, 36)
        out = digits[rest] + out
    return out or "0"
