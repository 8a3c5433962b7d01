"""The turns of a session, and what a model was sent in each call of one, made again from the log."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sessionary.actions.sessions import read
from sessionary.actions.sessions.lists import check_limit
from sessionary.errors import Ambiguous, NotFound
from sessionary.model import codec, transcript
from sessionary.model.compaction import context_size
from sessionary.model.message import Compaction, Entry, Message, Role
from sessionary.model.session import Cursor, Segment, SessionHead
from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat, ContextFold
from sessionary.model.turn import Turn
from sessionary.model.usage import Usage
from sessionary.model.view import turn_json
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries, turns, usage

if TYPE_CHECKING:
    from sessionary.model.json_types import (
        CompactionInfo,
        ContextInfo,
        ModelCallInfo,
        SentContextInfo,
        TurnSummary,
    )


_CANDIDATES = 6
# The finish reasons of answers that were cut off.
_UNFINISHED = ("interrupted", "failed")
_ID_LIKE = re.compile(r"[A-Za-z0-9_-]{4,}")


class ListedTurn(Struct, frozen=True):
    """A turn, and how many answers of the model it has."""

    turn: Turn
    calls: int


class TurnPage(Struct, frozen=True):
    """A page of a session's turns, and the cursor of the next one."""

    items: tuple[ListedTurn, ...]
    next: str | None


class ModelCall(Struct, frozen=True):
    """One call of a turn: its number, the entry with its answer, and how many tokens its provider counted.

    The last call of a turn that is running or has failed may have no answer.
    """

    number: int
    answer_seq: int | None
    model: str | None = None
    tokens: int | None = None


class CompactionInEffect(Struct, frozen=True):
    """A compaction, and the number of its entry."""

    seq: int
    body: Compaction


class SentContext(Struct, frozen=True):
    """What a model was sent in one call.

    `system_prompt`, `tools`, `settings` and `window` are None where they were not recorded, as for agents that are
    programs. `tokens_by_kind` is estimated. `shortened` are the entries of tool outputs of which the model read only a
    part.
    """

    turn: Turn
    call: ModelCall
    calls: int
    messages: tuple[Chat, ...]
    # The entry that each message is made of; 0 for the summary.
    seqs: tuple[int, ...]
    system_prompt: str | None
    model: str | None
    window: int | None
    tools: Sequence[Mapping[str, Any]] | None
    settings: Mapping[str, Any] | None
    compaction: CompactionInEffect | None
    shortened: tuple[int, ...]
    tokens_by_kind: Mapping[str, int]


class SessionContextSize(Struct, frozen=True):
    """How large a session's context is now, in tokens.

    `is_reported`: the provider has counted the last call, and only what came later is estimated. `by_kind` is always
    estimated. `window` is that of the last call, None if it was not recorded.
    """

    head: SessionHead
    used: int
    is_reported: bool
    by_kind: Mapping[str, int]
    compaction: CompactionInEffect | None
    model: str | None
    window: int | None


def list_turns(
    tx: Tx, session_id: str, *, profile: str, limit: int = 50, cursor: str | None = None
) -> TurnPage:
    """Return a page of a session's own turns, newest first."""
    check_limit(limit)
    head = read.get_head(tx, session_id, profile=profile)
    before = Cursor.first() if cursor is None else Cursor.parse(cursor)
    found = turns.list_page(tx, head.no, before=before.no, limit=limit + 1)
    page = found[:limit]
    following = str(Cursor.after(page[-1][0], page[-1][0])) if len(found) > limit else None
    return TurnPage(tuple(ListedTurn(turn, calls) for _, turn, calls in page), following)


def find_turn(tx: Tx, ref: str, *, profile: str) -> Turn:
    """Return a turn by its id, or by a beginning that only one id has."""
    wanted = codec.storable_text(ref)
    found = turns.get(tx, wanted, profile=profile)
    if found is None and _ID_LIKE.fullmatch(wanted):
        ids = turns.ids_by_prefix(tx, wanted, profile=profile, limit=_CANDIDATES)
        if len(ids) > 1:
            raise Ambiguous(f"{wanted!r} is the beginning of several turns: {', '.join(ids)}.", ids)
        found = turns.get(tx, ids[0], profile=profile) if ids else None
    if found is None:
        raise NotFound(f"There is no turn {wanted}.")
    return found[0]


def list_calls(tx: Tx, turn_id: str, *, profile: str) -> list[ModelCall]:
    """Return the model calls of a turn, oldest first."""
    turn, head = _turn(tx, turn_id, profile=profile)
    return _calls(tx, turn, _own_entries(tx, turn, head))


def read_sent_context(
    tx: Tx, turn_id: str, *, profile: str, number: int | None = None
) -> SentContext:
    """Return what the model was sent in a call of a turn, by default in the last one.

    It is made from the same entries, by the same rules, as when it was sent.
    """
    turn, head = _turn(tx, turn_id, profile=profile)
    own = _own_entries(tx, turn, head)
    calls = _calls(tx, turn, own)
    if number is not None and not 1 <= number <= len(calls):
        raise NotFound(
            f"In turn {turn_id} there is no call {number}: its last one is call {len(calls)}."
        )
    call = calls[(number or len(calls)) - 1]
    last = _last_seq(turn, head, own) if call.answer_seq is None else call.answer_seq - 1
    found = read.read_since_compaction(tx, head, through=last)
    fold = transcript.fold_context(found, last_seq=last)
    current = _compaction_in(found)
    sent = _request(tx, turn, own, last)
    prompt, tools = sent.get("system_prompt"), sent.get("tools")
    return SentContext(
        turn,
        call,
        len(calls),
        fold.chats,
        fold.seqs,
        prompt,
        sent.get("model") or call.model,
        sent.get("window"),
        tools,
        sent.get("settings"),
        current,
        _shortened(fold, None if current is None else current.body),
        _tokens_by_kind(fold, prompt=prompt, tools=tools),
    )


def measure_context(tx: Tx, session_id: str, *, profile: str) -> SessionContextSize:
    """Return how large a session's context is now; the system prompt and the tools are those of its last turn."""
    head = read.get_head(tx, session_id, profile=profile)
    found = read.read_since_compaction(tx, head)
    fold = transcript.fold_context(found, last_seq=head.last_seq)
    newest = turns.list_page(tx, head.no, before=Cursor.first().no, limit=1)
    name = newest[0][1].request_hash if newest else None
    sent = _recorded(tx, name)
    prompt, tools = sent.get("system_prompt") or read.get_system_prompt(tx, head), sent.get("tools")
    kinds = _tokens_by_kind(fold, prompt=prompt, tools=tools)
    used = context_size(
        fold,
        reported=head.context_tokens,
        reported_seq=head.context_seq,
        overhead=kinds["system"] + kinds["tools"],
    )
    model = sent.get("model") or head.model
    is_reported = head.context_tokens > 0
    return SessionContextSize(
        head, used, is_reported, kinds, _compaction_in(found), model, sent.get("window")
    )


def _compaction_in(found: Sequence[Entry]) -> CompactionInEffect | None:
    mark = transcript.latest_compaction(transcript.marks_of(found))
    if mark is None or not isinstance(mark.body, Compaction):
        return None
    return CompactionInEffect(mark.seq, mark.body)


def _turn(tx: Tx, turn_id: str, *, profile: str) -> tuple[Turn, SessionHead]:
    found = turns.get(tx, codec.storable_text(turn_id), profile=profile)
    if found is None:
        raise NotFound(f"There is no turn {turn_id}.")
    return found[0], read.get_head(tx, found[0].session_id, profile=profile)


def _own_entries(tx: Tx, turn: Turn, head: SessionHead) -> list[Entry]:
    own = Segment(head.no, head.id, turn.first_seq, head.last_seq)
    return [entry for entry in entries.walk(tx, [own]) if entry.turn_id == turn.id]


def _calls(tx: Tx, turn: Turn, own: Sequence[Entry]) -> list[ModelCall]:
    # The beginning of an answer that was cut off is all that there is of its call.
    answers = [
        (entry.seq, entry.body)
        for entry in own
        if isinstance(entry.body, Message) and entry.body.role is Role.ASSISTANT
    ]
    finished = [seq for seq, answer in answers if answer.finish_reason not in _UNFINISHED]
    used = _usage_of(tx, turn)
    used_for = dict(zip(finished, used, strict=True)) if len(used) == len(finished) else {}
    calls = []
    for number, (seq, answer) in enumerate(answers, 1):
        known = used_for.get(seq, Usage())
        tokens = known.total_tokens - known.output_tokens if seq in used_for else None
        calls.append(ModelCall(number, seq, answer.model or known.model, tokens))
    if turn.ended_at is None or not answers or answers[-1][1].tool_calls:
        calls.append(ModelCall(len(answers) + 1, None))
    return calls


def _last_seq(turn: Turn, head: SessionHead, own: Sequence[Entry]) -> int:
    """Return the last entry that a call without an answer was sent."""
    if turn.ended_at is None:
        return head.last_seq
    return max((entry.seq for entry in own), default=turn.first_seq - 1)


def _usage_of(tx: Tx, turn: Turn) -> list[Usage]:
    session_no = turns.session_no_of(tx, turn.id)
    found = [] if session_no is None else usage.of_session(tx, session_no)
    return [used for turn_id, used in found if turn_id == turn.id and not used.task]


def _request(tx: Tx, turn: Turn, own: Sequence[Entry], last: int) -> dict[str, Any]:
    """Return what was recorded of a request besides its messages; each process that ran the turn has its own record."""
    name = turn.request_hash
    for entry in reversed(own):
        record = (
            entry.body.extra.get(transcript.RECORD) if isinstance(entry.body, Message) else None
        )
        if entry.seq > last and isinstance(record, dict) and record.get("kind") == "resumed":
            name = record.get("request_hash")
    return _recorded(tx, name)


def _recorded(tx: Tx, name: Any) -> dict[str, Any]:
    if not isinstance(name, str):
        return {}
    try:
        found = codec.decode(blobs.get_text(tx, name))
    except NotFound:
        return {}  # erased, or not imported
    return found if isinstance(found, dict) else {}


def _shortened(fold: ContextFold, current: Compaction | None) -> tuple[int, ...]:
    if current is None or not current.shortened:
        return ()
    return tuple(
        seq
        for seq, chat in zip(fold.seqs, fold.chats, strict=True)
        if seq <= current.shortened and transcript.is_shortened(seq, chat)
    )


def _tokens_by_kind(
    fold: ContextFold, *, prompt: str | None, tools: Sequence[Mapping[str, Any]] | None
) -> dict[str, int]:
    """Return the estimated tokens of the system prompt, the tools, the summary, and each role's messages."""
    kinds = {
        "system": 0 if prompt is None else estimate(prompt),
        "tools": 0 if not tools else estimate(tools),
    }
    for seq, chat in zip(fold.seqs, fold.chats, strict=True):
        kind = "summary" if seq == 0 else chat["role"]
        kinds[kind] = kinds.get(kind, 0) + transcript.chat_tokens(chat)
    return kinds


def listed_turn_json(listed: ListedTurn, *, now: datetime) -> "TurnSummary":
    """A turn in a list."""
    return {**turn_json(listed.turn, now=now), "calls": listed.calls}


def call_json(call: ModelCall) -> "ModelCallInfo":
    """A model call of a turn."""
    return {
        "number": call.number,
        "answer_seq": call.answer_seq,
        "model": call.model,
        "tokens": call.tokens,
    }


def sent_context_json(sent: SentContext, *, now: datetime) -> "SentContextInfo":
    """What a model was sent in one call."""
    return {
        "turn": turn_json(sent.turn, now=now),
        "call": call_json(sent.call),
        "calls": sent.calls,
        "model": sent.model,
        "window": sent.window,
        "system_prompt": sent.system_prompt,
        "tools": None if sent.tools is None else [dict(each) for each in sent.tools],
        "settings": None if sent.settings is None else dict(sent.settings),
        "messages": [dict(each) for each in sent.messages],
        "seqs": list(sent.seqs),
        "compaction": compaction_json(sent.compaction),
        "shortened": list(sent.shortened),
        "tokens_by_kind": dict(sent.tokens_by_kind),
    }


def compaction_json(found: CompactionInEffect | None) -> "CompactionInfo | None":
    """The compaction in effect."""
    if found is None:
        return None
    return {
        "seq": found.seq,
        "through": found.body.through,
        "summary": found.body.summary,
        "kept": list(found.body.kept),
        "shortened_through": found.body.shortened,
    }


def context_json(
    size: SessionContextSize, *, window: int | None, threshold: int | None
) -> "ContextInfo":
    """How large a session's context is, with the limits that apply to it now."""
    window = window or size.window
    return {
        "used": size.used,
        "window": window,
        "threshold": threshold,
        "percent": None if not window else round(100 * size.used / window, 1),
        "by_kind": dict(size.by_kind),
        "model": size.model,
        "compaction": compaction_json(size.compaction),
        "status": "reported" if size.is_reported else "estimate",
    }
