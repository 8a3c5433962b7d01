"""Sessions as a new `state.db`, for programs that read Hermes' tables by SQL.

It is a copy to read: what is written to it does not come back. The importer for Hermes reads it
like any other `state.db`.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from sessionary.actions.transfer import export as exports
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.rows import BILLING, COSTS, KEPT, PRICING, TOKENS, Json
from sessionary.errors import NotFound
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    to_json,
)
from sessionary.model.record import WHOLE, ExportOptions, SessionLine, UsageLine, line_within
from sessionary.model.redact import masked_json
from sessionary.model.session import EndReason, Lineage
from sessionary.model.usage import CostStatus
from sessionary.store import filesystem
from sessionary.store.database import Store
from sessionary.store.sqlite.state_file import StateFile
from sessionary.store.tables import blobs, transfer

P = TypeVar("P", Text, ToolCall, ToolResult)
BlobReader = Callable[[str], bytes | None]
_SUMMARY = "[CONTEXT SUMMARY]"
_SUMMARIES = (_SUMMARY, "[CONTEXT COMPACTION")
# The mark of a list of parts in the column `content`.
_AS_JSON = "\x00json:"
_SURROGATE = re.compile("[\ud800-\udfff]")
# Columns of JSON; the texts of the others are stored as they are.
_JSON_COLUMNS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_TEXT_COLUMNS = ("role", "tool_call_id", "tool_name", "reasoning", "reasoning_content")
# Our platforms and end reasons in Hermes' words.
_PLATFORMS = {"terminal": "cli", "schedule": "cron"}
_REASONS = {str(EndReason.NEW): "session_reset", str(EndReason.SWITCH): "session_switch"}
_MILLION = 1_000_000


def export_state(
    store: Store,
    path: Path,
    ids: Sequence[str] | None = None,
    *,
    profile: str,
    options: ExportOptions = WHOLE,
    overwrite: bool = False,
) -> int:
    """Write sessions, or all of a profile but the trash, as a `state.db`; return how many.

    The file appears when it is complete. Raises `Conflict` if it exists, unless `overwrite`.
    """
    filesystem.refuse_to_overwrite(path, is_allowed=overwrite)
    options = exports.with_salt(store, options)
    count = 0
    with filesystem.new_file(path) as draft, StateFile(draft) as file:
        for head in exports.heads_of(store, ids, profile):
            session = _SessionTables(store, file, head.id)
            for entry in exports.transcript_of(store, head, options):
                session.add_entry(entry)
            session.add_usage(head.no)
            line, _ = store.read(transfer.facts, head.no).result()
            row = session.row(line_within(line, options))
            file.add_session(masked_json(row) if options.mask_secrets else row)
            count += 1
    return count


@dataclass
class _UsageSum:
    """What a session used of one model under one contract."""

    first: UsageLine
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    calls: int = 0
    # The sum of the known costs, and what is known of each of them.
    microusd: int = 0
    statuses: set[CostStatus] = field(default_factory=set)

    def add(self, call: UsageLine) -> None:
        self.calls += 1
        self.statuses.add(call.cost_status)
        self.microusd += call.cost_microusd or 0
        for name in TOKENS:
            self.tokens[name] += getattr(call, name)

    @property
    def costs(self) -> Json:
        """The columns of the cost: an actual one only if every call has one."""
        if self.statuses == {CostStatus.UNKNOWN}:
            return dict.fromkeys(COSTS) | {"cost_status": "unknown"}
        dollars = self.microusd / _MILLION
        if self.statuses == {CostStatus.REPORTED}:
            return {"estimated_cost_usd": None, "actual_cost_usd": dollars, "cost_status": "actual"}
        is_included = self.statuses == {CostStatus.INCLUDED}
        status = "included" if is_included else "estimated"
        return {
            "estimated_cost_usd": dollars,
            "actual_cost_usd": None,
            "cost_status": status,
        }


class _SessionTables:
    """Adds one session's rows to the file."""

    def __init__(self, store: Store, file: StateFile, id: str) -> None:
        self._store = store
        self._file = file
        self._id = id
        self._messages = 0
        self._calls = 0
        # The tool of each call that has no result yet.
        self._tools: dict[str, str] = {}
        self._used: dict[tuple[str | None, ...], _UsageSum] = {}

    def add_entry(self, entry: Entry) -> None:
        """Add a message, or one for each result of a tool in it; a summary is a message too."""
        for single in _single_entries(entry):
            row = _message_row(single, self._id, self._blob_of)
            for call in _parts(single, ToolCall):
                self._tools[call.id] = call.name
                self._calls += 1
            if row["role"] == "tool":
                called = self._tools.pop(row["tool_call_id"] or "", None)
                row["tool_name"] = row["tool_name"] or called
            words = [*_words(single), row["tool_name"], row["tool_calls"]]
            self._file.add_message(row, words=" ".join(filter(None, words)))
            self._messages += 1

    def add_usage(self, no: int) -> None:
        """Add what the session used, a row for each model and contract."""
        after = 0
        while page := self._store.read(transfer.usage_page, no, after).result():
            for after, call in page:  # noqa: B007  # the last number is where the next page begins
                key = (call.model, call.provider, call.billing_mode, call.task)
                self._used.setdefault(key, _UsageSum(call)).add(call)
        for used in self._used.values():
            first = used.first
            self._file.add_usage(
                {
                    "session_id": self._id,
                    "model": first.model or "",
                    "billing_provider": first.provider or "",
                    "billing_base_url": first.base_url or "",
                    "billing_mode": first.billing_mode or "",
                    "task": first.task or "",
                    **used.tokens,
                    **used.costs,
                    "cost_source": first.price_source,
                    "first_seen": first.at.timestamp(),
                }
            )

    def row(self, line: SessionLine) -> Json:
        """The session's own row."""
        source = dict(line.source or {"platform": "unknown"})
        source["platform"] = _PLATFORMS.get(source["platform"], source["platform"])
        place = line.workspace if isinstance(line.workspace, dict) else {}
        reason = line.end_reason
        known = line.extra.get(KEPT) if line.extra else None
        kept = known if isinstance(known, dict) else {}
        handoff = self._store.read(rows.handoff, line.id).result()
        return {
            "id": line.id,
            "source": source["platform"],
            "user_id": source.get("user_id"),
            "model": line.model,
            "model_config": _config_text(line),
            "system_prompt": line.system_prompt,
            "parent_session_id": None if line.lineage is Lineage.RESET else line.parent_id,
            "started_at": line.began_at.timestamp(),
            "ended_at": None if line.ended_at is None else line.ended_at.timestamp(),
            "end_reason": None if reason is None else _REASONS.get(reason, reason),
            "message_count": self._messages,
            "tool_call_count": self._calls,
            **self._totals(kept),
            "title": line.title,
            **{f"handoff_{name}": value for name, value in handoff.items()},
            "origin_json": json.dumps(source),
            "archived": int(line.archived),
            "pinned": int(line.pinned),
            "cwd": place.get("path"),
            "git_branch": place.get("branch"),
            "git_repo_root": place.get("repository"),
        }

    def _totals(self, kept: Json) -> Json:
        """Tokens and costs of the session: as a Hermes program set them, or the sums of the ledger."""
        sums = list(self._used.values())
        first = sums[0].first if sums else None
        totals: Json = {
            **{name: sum(each.tokens[name] for each in sums) for name in TOKENS},
            "billing_provider": first and first.provider,
            "billing_base_url": first and first.base_url,
            "billing_mode": first and first.billing_mode,
            **dict.fromkeys((*COSTS, *PRICING)),
            "cost_source": first and first.price_source,
            "pricing_version": first and first.price_version,
            "api_call_count": sum(each.calls for each in sums),
        }
        if first is not None:
            whole = _UsageSum(first, microusd=sum(each.microusd for each in sums))
            whole.statuses = {status for each in sums for status in each.statuses}
            totals |= whole.costs
        if any(kept.get(name) is not None for name in COSTS):
            totals |= {name: kept.get(name) for name in (*COSTS, *PRICING)}
        names = (*BILLING, *PRICING, "api_call_count")
        return totals | {name: kept[name] for name in names if kept.get(name) is not None}

    def _blob_of(self, name: str) -> bytes | None:
        try:
            return self._store.read(blobs.get, name).result()
        except NotFound:
            return None


def _config_text(line: SessionLine) -> str | None:
    """The model's settings; a fork has the name of its origin in them, as in Hermes."""
    settings = line.settings
    if line.lineage is Lineage.FORK and (settings is None or isinstance(settings, dict)):
        settings = {**(settings or {}), "_branched_from": line.parent_id}
    return settings if settings is None or isinstance(settings, str) else json.dumps(settings)


def _single_entries(entry: Entry) -> Iterator[Entry]:
    """An entry as Hermes has it: a message of its own for each result of a tool."""
    body, results = entry.body, _parts(entry, ToolResult)
    if not isinstance(body, Message) or (
        len(results) <= 1 if body.role is Role.TOOL else not results
    ):
        yield entry
        return
    others = tuple(part for part in body.parts if not isinstance(part, ToolResult))
    if others and body.role is not Role.TOOL:
        yield replace(entry, body=replace(body, parts=others))
        others = ()
    for number, result in enumerate(results):
        parts: tuple[Part, ...] = (result, *others) if number == 0 else (result,)
        yield replace(entry, body=replace(body, role=Role.TOOL, parts=parts))


def _message_row(entry: Entry, session_id: str, blob_of: BlobReader) -> Json:
    """A message with the columns of the table, each as SQLite stores it."""
    if isinstance(entry.body, Compaction):
        summary = entry.body.summary
        text = summary if summary.startswith(_SUMMARIES) else f"{_SUMMARY} {summary}"
        entry = replace(entry, body=Message(Role.USER, (Text(text),)))
    assert isinstance(entry.body, Message)
    row = rows.message_row(0, session_id, entry)
    row["content"] = _content_text(_content(entry.body, row["content"], blob_of))
    row["observed"] = int(bool(row["observed"]))
    calls = row["tool_calls"]
    if isinstance(calls, list):
        row["tool_calls"] = [_with_text_arguments(call) for call in calls]
    for name in _JSON_COLUMNS:
        if row[name] is not None:
            row[name] = json.dumps(row[name])
    for name in _TEXT_COLUMNS:
        if row[name] is not None and not isinstance(row[name], str):
            row[name] = json.dumps(row[name])
    return row


def _content(message: Message, given: Any, blob_of: BlobReader) -> Any:
    """The content: a text, what a Hermes program gave, or a list of parts if there is more than text."""
    kept = message.extra.get(KEPT)
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    beside = (Attachment, Unknown, Text) if results else (Attachment, Unknown)
    has_more = any(isinstance(p, beside) and not rows.is_tool_name(p) for p in message.parts)
    if not has_more or (isinstance(kept, dict) and "content" in kept):
        return _result_content(given) if results else given
    made: list[Any] = []
    for part in message.parts:
        match part:
            case Text():
                made.append(_text_part(part.text))
            case ToolResult():
                content = _result_content(part.content)
                made += content if isinstance(content, list) else [_text_part(_text_of(part))]
            case Attachment():
                made.append(_file_part(part, blob_of(part.blob)))
            case Unknown() if not rows.is_tool_name(part):
                made.append(to_json(part))
    return made


def _result_content(content: Any) -> Any:
    """A tool's result: a text, a list of parts, an object; any other value as its JSON."""
    if content is None or isinstance(content, str | dict):
        return content
    is_parts = isinstance(content, list) and all(
        isinstance(each, dict) and "type" in each for each in content
    )
    return content if content and is_parts else json.dumps(content)


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _file_part(file: Attachment, data: bytes | None) -> Json:
    if data is None:
        return _text_part(f"[{file.name or 'a file'}, {file.media_type}]")
    url = f"data:{file.media_type};base64,{base64.b64encode(data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file.name, "file_data": url}}


def _content_text(content: Any) -> str | None:
    """The content as a text column has it; a text that SQLite cannot store becomes a list of one part."""
    if content is None:
        return None
    if isinstance(content, str):
        if not content.startswith(_AS_JSON) and not _SURROGATE.search(content):
            return content
        content = [_text_part(content)]
    return _AS_JSON + json.dumps(content)


def _with_text_arguments(call: Any) -> Any:
    """A call whose arguments are a text of JSON, as models send them."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str):
        return call
    given = function.get("arguments")
    text = json.dumps({} if given is None else given)
    return call | {"function": function | {"arguments": text}}


def _words(entry: Entry) -> Iterator[str]:
    """The words of a message by which people look for it."""
    if isinstance(entry.body, Compaction):
        yield entry.body.summary
    yield from (part.text for part in _parts(entry, Text))
    yield from (_text_of(result) for result in _parts(entry, ToolResult))


def _text_of(result: ToolResult) -> str:
    return result.content if isinstance(result.content, str) else json.dumps(result.content)


def _parts(entry: Entry, kind: type[P]) -> list[P]:
    body = entry.body
    return [p for p in body.parts if isinstance(p, kind)] if isinstance(body, Message) else []
