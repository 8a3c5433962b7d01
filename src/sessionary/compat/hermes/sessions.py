"""What a Hermes program does to one session: lifecycle, messages, titles, token counts, chains of continuations."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from sessionary.actions import usage
from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, log, read, revise, titles
from sessionary.actions.sessions.append import NewMessage, append_after_end
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.rows import BILLING, COSTS, FURTHER, KEPT, PRICING, TOKENS, Json
from sessionary.errors import Ambiguous
from sessionary.model.session import Kind, Lineage, Opening, SessionHead
from sessionary.model.source import Source
from sessionary.model.title import clean_title, matches_continuation
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as session_table
from sessionary.store.tables import usage as usage_table
from sessionary.store.tables.entries import entry_no

UNKNOWN = "unknown"
_JOBS = frozenset({"cron"})
_MILLION = 1_000_000
COMPRESSION = "compression"
ORPHANED = "orphaned_compression"
_GHOST_AGE = timedelta(days=1)
_ORPHAN_AGE = timedelta(days=7)
_PAGE = 200
# What a session is opened with; every other keyword is kept beside it.
_OF_OPENING = frozenset(
    {"model", "model_config", "system_prompt", "user_id", "parent_session_id", "session_id"}
)


def create(
    tx: Tx, id: str, source: str, given: Mapping[str, Any], *, profile: str, moment: Moment
) -> SessionHead:
    """Open a session under the program's own id; an existing one stays as it is."""
    parent_id = given.get("parent_session_id")
    parent = None if parent_id is None else rows.find_session(tx, parent_id, profile=profile)
    descent = Lineage.SUBAGENT if parent is None else lineage_of_child(parent)
    opening = Opening(
        profile,
        Source(source or UNKNOWN, user_id=given.get("user_id")),
        kind=_kind(source, None if parent is None else descent),
        model=given.get("model"),
        settings=rows.jsonable(given.get("model_config") or None),
        system_prompt=given.get("system_prompt"),
    )
    head = edit.open_with_id(tx, id, opening, moment=moment, parent=parent, lineage=descent)
    further = {name: value for name, value in given.items() if name not in _OF_OPENING}
    if parent is None:
        further["parent_session_id"] = parent_id  # there is no such session: it is only noted
    keep_further(tx, head, further, overwrites=False)
    return head


def keep_further(
    tx: Tx, head: SessionHead, given: Mapping[str, object], *, overwrites: bool = True
) -> None:
    """Keep keywords that have no column here with the session; without `overwrites` the first value stays."""
    new = {name: rows.jsonable(value) for name, value in given.items() if value is not None}
    if not new:
        return

    def merged(kept: Json) -> Json:
        before = kept.get(FURTHER, {})
        return kept | {FURTHER: before | new if overwrites else new | before}

    edit.update_extra(tx, head, KEPT, merged)


def keep(tx: Tx, id: str, given: Mapping[str, object], *, profile: str) -> bool:
    """Keep further values with a session; return whether it exists."""
    head = rows.find_session(tx, id, profile=profile)
    if head is not None:
        keep_further(tx, head, given)
    return head is not None


def change_kept(
    tx: Tx, id: str, change: Callable[[Json], Json], *, profile: str, model: str | None = None
) -> bool:
    """Change what only Hermes programs use, and the model if one is given; return whether the session exists."""
    head = rows.find_session(tx, id, profile=profile)
    if head is None:
        return False
    edit.update_extra(tx, head, KEPT, change)
    if model is not None:
        session_table.set_model(tx, head.no, model)
    return True


def archive(tx: Tx, id: str, *, archived: bool, profile: str) -> bool:
    """Move a session with its whole compressed chain into the archive, or out of it."""
    head = rows.find_session(tx, id, profile=profile)
    if head is None:
        return False
    chain = {
        each.no: each for each in (*ancestors(tx, head, only_chain=True), *continuations(tx, head))
    }
    for _, each in sorted(chain.items()):
        edit.archive(tx, each.id, profile=profile, archived=archived)
    return True


def rewind(tx: Tx, id: str, seq: int, *, profile: str, moment: Moment) -> int:
    """Retract a message and all behind it; return how many messages that were."""
    before = log.lock_session(tx, id, profile=profile).message_count
    revise.retract(tx, id, profile=profile, after=seq - 1, at=moment.now, reason="rewrite")
    return before - log.lock_session(tx, id, profile=profile).message_count


def end(tx: Tx, id: str, reason: str, *, profile: str, moment: Moment) -> None:
    """End a session, if it exists; the first reason wins."""
    if rows.find_session(tx, id, profile=profile) is not None:
        edit.end(tx, id, profile=profile, moment=moment, reason=reason or UNKNOWN)


def reopen(tx: Tx, id: str, *, profile: str) -> None:
    """Reopen a session."""
    if rows.find_session(tx, id, profile=profile) is not None:
        edit.reopen(tx, id, profile=profile)


def set_prompt(tx: Tx, id: str, text: str | None, *, profile: str) -> None:
    """Replace the system prompt."""
    if rows.find_session(tx, id, profile=profile) is not None:
        edit.set_system_prompt(tx, id, text, profile=profile)


def count_usage(
    tx: Tx,
    id: str,
    given: Mapping[str, Any],
    further: Mapping[str, object],
    *,
    absolute: bool,
    profile: str,
    moment: Moment,
) -> None:
    """Update the token counts; an unknown id gets a session."""
    head = create(tx, id, UNKNOWN, {}, profile=profile, moment=moment)
    keep_further(tx, head, further)
    _update_counts(tx, head, given, absolute=absolute, moment=moment)


def append(
    tx: Tx, id: str, given: Iterable[Mapping[str, Any]], *, profile: str, moment: Moment
) -> list[int]:
    """Append messages and return their numbers."""
    numbers: list[int] = []
    for each in given:
        saying = NewMessage(rows.parse_message(each), at=rows.message_time(each))
        done = append_after_end(tx, id, saying, profile=profile, moment=moment)
        numbers.append(entry_no(done.session_no, done.seq))
    return numbers


def clear(tx: Tx, id: str, *, profile: str, moment: Moment) -> None:
    """Retract all messages; they stay in the log."""
    if rows.find_session(tx, id, profile=profile) is None:
        return
    head = log.lock_session(tx, id, profile=profile)
    if head.message_count:
        revise.retract(tx, id, profile=profile, after=0, at=moment.now, reason="rewrite")


def rewrite(
    tx: Tx, id: str, given: Sequence[Mapping[str, Any]], *, profile: str, moment: Moment
) -> None:
    """Replace all messages."""
    clear(tx, id, profile=profile, moment=moment)
    append(tx, id, given, profile=profile, moment=moment)


def delete(tx: Tx, id: str, *, profile: str, moment: Moment) -> bool:
    """Purge a session and return whether it existed; its children stay."""
    if rows.find_session(tx, id, profile=profile) is None:
        return False
    purge.purge(tx, id, profile=profile, moment=moment, with_subagents=False)
    if rows.handoff(tx, id)["state"] is not None:
        rows.set_handoff(tx, id, {})
    return True


def all_heads(
    tx: Tx, *, profile: str, platform: str | None = None, by_activity: bool = False
) -> Iterator[SessionHead]:
    """Every session, newest first, page by page."""
    skip = 0
    while heads := session_table.list_heads(
        tx,
        profile=profile,
        platform=platform,
        without=(),
        roots_only=False,
        by_activity=by_activity,
        limit=_PAGE,
        skip=skip,
    ):
        yield from heads
        skip += len(heads)


def delete_ghosts(tx: Tx, *, profile: str, moment: Moment) -> list[str]:
    """Delete what a terminal opened, left without a message or a title, and ended over a day ago."""
    since = moment.now - _GHOST_AGE
    ghosts = [
        head.id
        for head in all_heads(tx, profile=profile, platform="tui")
        if head.title is None
        and not head.is_open
        and not head.message_count
        and head.began_at < since
    ]
    for id in ghosts:
        delete(tx, id, profile=profile, moment=moment)
    return ghosts


def end_orphans(tx: Tx, *, profile: str, moment: Moment) -> int:
    """End continuations of over a week ago that no model was called for; return how many."""
    since = moment.now - _ORPHAN_AGE
    orphans = [
        head
        for head in all_heads(tx, profile=profile)
        if head.is_open
        and head.began_at < since
        and head.message_count
        and _is_compressed(_parent(tx, head))
        and not rows.kept_fields(tx, head).get("api_call_count")
    ]
    for head in orphans:
        end(tx, head.id, ORPHANED, profile=profile, moment=moment)
    return len(orphans)


def _is_compressed(parent: SessionHead | None) -> bool:
    return parent is not None and parent.end_reason == COMPRESSION


def find_by_prefix(tx: Tx, text: str | None, *, profile: str) -> str | None:
    """Return the id itself, or the only one with this prefix."""
    if not isinstance(text, str) or not text:
        return None
    head = rows.find_session(tx, text, profile=profile)
    if head is not None:
        return head.id
    try:
        return read.find_by_prefix(tx, text, profile=profile)
    except Ambiguous:
        return None


def rename(
    tx: Tx, id: str, title: str | None, *, profile: str, only_if_empty: bool = False
) -> bool:
    """Set or remove the title; return whether the session exists, and had none if that is asked."""
    head = rows.find_session(tx, id, profile=profile)
    if head is None or (only_if_empty and head.title is not None):
        return False
    wanted = clean_title(title or "")
    holder = None if wanted is None else find_by_title(tx, wanted, profile=profile)
    if holder is not None and holder != id:
        raise ValueError(f"Title '{wanted}' is already in use by session {holder}")
    titles.set_title(tx, head, title or "")
    return True


def find_by_title(tx: Tx, title: str | None, *, profile: str) -> str | None:
    """The session with exactly this title."""
    return (
        None
        if not title
        else session_table.id_by_title(tx, session_table.column(title), profile=profile)
    )


def find_latest_by_title(tx: Tx, title: str | None, *, profile: str) -> str | None:
    """Return the numbered continuation that began last, or else the session with exactly this title."""
    if not title:
        return None
    numbered = [
        session_table.get_by_no(tx, no)
        for name, no in session_table.numbered_titles(tx, title, profile=profile)
        if matches_continuation(title, name) is not None
    ]
    if numbered:
        return max(numbered, key=lambda head: (head.began_at, head.no)).id
    return find_by_title(tx, title, profile=profile)


def _kind(source: str, descent: Lineage | None) -> Kind:
    if descent is Lineage.SUBAGENT:
        return Kind.SUBAGENT
    return Kind.JOB if source in _JOBS else Kind.CHAT


def _update_counts(
    tx: Tx, head: SessionHead, given: Mapping[str, Any], *, absolute: bool, moment: Moment
) -> None:
    """Add to a session's counts, or with `absolute` set them."""
    session_table.lock_session_no(tx, head.no)
    head = session_table.get_by_no(tx, head.no)
    before = rows.kept_fields(tx, head)
    after = edit.update_extra(
        tx, head, KEPT, lambda kept: _merge_counts(kept, given, absolute=absolute)
    )
    used = {name: int(given.get(name) or 0) for name in TOKENS}
    spent = {name: _difference(before, after, name) for name in COSTS}
    if absolute:
        used = {name: count - getattr(head.usage, name) for name, count in used.items()}
    if min(used.values()) < 0 or min(spent.values()) < 0:
        usage_table.delete_calls(tx, head.no, _call_prefix(head))
        rest = session_table.get_by_no(tx, head.no).usage
        used = {name: max(0, int(given.get(name) or 0) - getattr(rest, name)) for name in TOKENS}
        spent = {name: float(after.get(name) or 0) for name in COSTS}
    _record_usage(tx, head, given, used=used, spent=spent, moment=moment)


def _merge_counts(kept: Json, given: Mapping[str, Any], *, absolute: bool) -> Json:
    """Merge costs and call counts (added), pricing fields (latest) and billing fields (first)."""
    calls = int(given.get("api_call_count") or 0)
    kept["api_call_count"] = calls if absolute else int(kept.get("api_call_count", 0)) + calls
    for name in COSTS:
        if given.get(name) is not None:
            earlier = 0.0 if absolute else float(kept.get(name) or 0)
            kept[name] = earlier + float(given[name])
    if absolute and given.get("estimated_cost_usd") is None:
        kept["estimated_cost_usd"] = 0.0
    for name in PRICING:
        if given.get(name) is not None:
            kept[name] = given[name]
    for name in BILLING:
        if given.get(name) is not None and kept.get(name) is None:
            kept[name] = given[name]
    return kept


def _difference(before: Json, after: Json, name: str) -> float:
    return float(after.get(name) or 0) - float(before.get(name) or 0)


def _record_usage(
    tx: Tx,
    head: SessionHead,
    given: Mapping[str, Any],
    *,
    used: Mapping[str, int],
    spent: Mapping[str, float],
    moment: Moment,
) -> None:
    model = given.get("model")
    if not any(used.values()) and not any(spent.values()):
        if model is not None and head.model is None:
            session_table.set_model(tx, head.no, model)
        return
    estimated, actual = (spent[name] if given.get(name) is not None else None for name in COSTS)
    cost = actual if actual is not None else estimated
    status = CostStatus.ESTIMATED if actual is None else CostStatus.REPORTED
    call = Usage(
        model=model or head.model,
        cost_microusd=None if cost is None else round(max(0.0, cost) * _MILLION),
        cost_status=CostStatus.UNKNOWN if cost is None else status,
        provider=given.get("billing_provider"),
        base_url=given.get("billing_base_url"),
        billing_mode=given.get("billing_mode"),
        price_source=given.get("cost_source"),
        price_version=given.get("pricing_version"),
        # Twice the chance of one id: many calls may end in the same second.
        call_id=f"{_call_prefix(head)}{moment.new_id()}{moment.new_id()[-8:]}",
    )
    counted = replace(call, **dict(used))
    usage.record(tx, head.no, _priced(counted, moment), profile=head.profile, moment=moment)


def _priced(call: Usage, moment: Moment) -> Usage:
    """Add the cost from the price table if the program gave none."""
    if call.cost_microusd is not None or call.model is None:
        return call
    # The price table would add 50 ms of CPU to the start of a program that sends no usage.
    from sessionary import prices

    return prices.priced(call, at=moment.now)


def _call_prefix(head: SessionHead) -> str:
    return f"hermes/{head.id}/"


def lineage_of_child(parent: SessionHead) -> Lineage:
    """The lineage of a child, derived from how its parent ended."""
    match parent.end_reason:
        case "compression":
            return Lineage.CONTINUATION
        case "branched":
            return Lineage.FORK
    return Lineage.SUBAGENT


def continuations(tx: Tx, head: SessionHead) -> Iterator[SessionHead]:
    """A session, its newest continuation, the newest of that, and so on; safe against cycles."""
    return _descendants(tx, head, lambda child: child.lineage is Lineage.CONTINUATION)


def tip(tx: Tx, head: SessionHead) -> SessionHead:
    """The newest continuation that has messages; the session itself when there is none."""
    chain = list(continuations(tx, head))
    return next((each for each in reversed(chain) if each.message_count), head)


def resume_target(tx: Tx, head: SessionHead) -> SessionHead:
    """The newest continuation that has messages; else the first descendant of any kind that has some."""
    newest = tip(tx, head)
    if newest.message_count:
        return newest
    below = _descendants(tx, head, lambda child: child.lineage is not Lineage.RESET)
    return next((each for each in below if each.message_count), head)


def _descendants(
    tx: Tx, head: SessionHead, follows: Callable[[SessionHead], bool]
) -> Iterator[SessionHead]:
    seen: set[int] = set()
    current: SessionHead | None = head
    while current is not None and current.no not in seen:
        seen.add(current.no)
        yield current
        children = session_table.child_heads(tx, current.no)
        current = next((each for each in children if follows(each)), None)


def root(tx: Tx, head: SessionHead) -> SessionHead:
    """The first session of a compressed chain."""
    return ancestors(tx, head, only_chain=True)[0]


def ancestors(tx: Tx, head: SessionHead, *, only_chain: bool = False) -> list[SessionHead]:
    """The parents of a session and itself, oldest first; of a compressed chain only, if asked."""
    chain = [head]
    seen = {head.no}
    # A fork of ours reads its parent's log itself.
    while not chain[-1].base_seq and (not only_chain or chain[-1].lineage is Lineage.CONTINUATION):
        parent = _parent(tx, chain[-1])
        if parent is None or parent.no in seen:
            break
        seen.add(parent.no)
        chain.append(parent)
    chain.reverse()
    return chain


def _parent(tx: Tx, head: SessionHead) -> SessionHead | None:
    return rows.find_session(tx, rows.parent_id(tx, head), profile=head.profile)


def conversation(
    tx: Tx,
    head: SessionHead,
    *,
    with_ancestors: bool,
    with_retracted: bool = False,
    with_numbers: bool = False,
) -> list[Json]:
    """The messages as a model reads them; with ancestors, a prompt that was repeated without an answer stands once."""
    chats: list[Json] = []
    for each in ancestors(tx, head) if with_ancestors else [head]:
        for row in rows.message_rows(tx, each, with_retracted=with_retracted):
            chat = rows.chat_dict(row)
            if not (with_ancestors and _repeats_prompt(chats, chat)):
                chats.append(chat | {"_row_id": row["id"]} if with_numbers else chat)
    return chats


def _repeats_prompt(chats: list[Json], chat: Json) -> bool:
    """Whether a user wrote the same since the last answer."""
    if chat["role"] != "user" or not isinstance(chat["content"], str) or not chat["content"]:
        return False
    for earlier in reversed(chats):
        if earlier["role"] == "user" and earlier["content"] == chat["content"]:
            return True
        if earlier["role"] == "assistant" and (earlier["content"] or "tool_calls" in earlier):
            return False
    return False
