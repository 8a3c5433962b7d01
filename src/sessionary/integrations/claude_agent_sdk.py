"""Session stores of the Claude Agent SDK.

    options = ClaudeAgentOptions(session_store=SessionarySessionStore(client))

The program under the SDK keeps its own transcript; here every line of it is kept too, so that a
run can be resumed on another machine, and people can read and find what was said.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from msgspec import structs

from sessionary.actions.sessions import append, edit, log
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment, to_micros
from sessionary.formats import anthropic_blocks
from sessionary.formats.parts import Content
from sessionary.integrations import thread
from sessionary.integrations.base import (
    NewFiles,
    SessionaryClient,
    parts_of,
    read_nothing,
    require_extra,
    wait_for_write,
)
from sessionary.integrations.thread import ExternalThread
from sessionary.model.message import Message, Part, Role, Text, ToolResult, Unknown
from sessionary.model.session import Kind, SessionHead
from sessionary.model.source import escape
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions, usage

with require_extra("claude-agent-sdk", "The storage for the Claude Agent SDK"):
    from claude_agent_sdk import SessionKey, SessionStore, fold_session_summary

PLATFORM = "claude-agent-sdk"
Line = Mapping[str, Any]
NATIVE = "claude-agent-sdk"


class SessionarySessionStore(SessionStore):
    """Every transcript of the SDK as a session; transcripts of subagents as sessions of their own."""

    def __init__(self, client: SessionaryClient, *, profile: str | None = None) -> None:
        self._client = client
        self._profile = profile or client.profile

    async def append(self, key: SessionKey, entries: list[Any]) -> None:
        """Add lines, all or none; a line whose uuid is there already adds nothing."""
        if not entries:
            await self._client.store.read(read_nothing)
            return
        calls = [self._client.priced(call, at=None) for call in _calls(entries)]
        await wait_for_write(
            self._client.store.write(
                _append,
                self._thread(key, entries),
                key,
                entries,
                calls=[call for call in calls if call is not None],
                moment=self._client.moment(),
            )
        )

    async def load(self, key: SessionKey) -> list[Any] | None:
        """Every line of a transcript in order; None when there is none."""
        return await self._client.store.read(_load, self._thread(key))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The transcripts of a project, and when each was last written to."""
        return await self._client.store.read(_listed, self._profile, project_key)

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """What the SDK has folded from the transcripts of a project."""
        return await self._client.store.read(_summaries, self._profile, project_key)

    async def delete(self, key: SessionKey) -> None:
        """Put a transcript into the trash, with those of its subagents."""
        write = self._client.store.write
        await wait_for_write(write(_delete, self._thread(key), moment=self._client.moment()))

    async def list_subkeys(self, key: Any) -> list[str]:
        return await self._client.store.read(_subkeys, self._thread(key))

    def _thread(self, key: Any, lines: Sequence[Line] = ()) -> ExternalThread:
        project, session, subpath = key["project_key"], key["session_id"], key.get("subpath")
        name = f"{escape(project)}/{escape(session)}"
        source = thread.source_for(
            PLATFORM,
            name,
            chat_name=project,
            thread_id=subpath,
            extra={"project_key": project, "session_id": session},
        )
        kind = Kind.SUBAGENT if subpath else Kind.CHAT
        return ExternalThread(self._profile, source, kind=kind, workspace=workspace_of(lines))


def _append(
    tx: Tx,
    where: ExternalThread,
    key: SessionKey,
    lines: Sequence[Any],
    *,
    calls: Sequence[Usage],
    moment: Moment,
) -> None:
    head = thread.get_or_open(tx, where, moment=moment, parent=_parent(tx, where))
    new = _not_there(tx, head, lines)
    files = NewFiles()
    made = bundles(new, files)
    files.keep(tx)
    for bundle in made:
        new_message = NewMessage(message_of(bundle), at=bundle.at)
        done = append.append_to_session(
            tx, head.id, new_message, profile=where.profile, moment=moment
        )
        for idempotency_key in _receipts(head, bundle.lines):
            entries.insert_receipt(
                tx, idempotency_key, profile=where.profile, session_no=head.no, seq=done.seq
            )
    for call in calls:
        usage.raise_to(tx, call, profile=where.profile, session_no=head.no, at=moment.now)
    now = to_micros(moment.now) // 1000

    def folded(kept: dict[str, Any]) -> dict[str, Any]:
        return {"mtime": now, "summary": _fold(kept.get("summary"), key, new)}

    edit.update_extra(tx, head, NATIVE, folded)


def _parent(tx: Tx, where: ExternalThread) -> SessionHead | None:
    if where.source.thread_id is None:
        return None
    return thread.find_session(
        tx, replace(where, source=structs.replace(where.source, thread_id=None))
    )


def _fold(summary: Any, key: SessionKey, lines: Sequence[Any]) -> Any:
    """What the SDK wants to know of a transcript without reading it; subagents do not count."""
    if key.get("subpath") or not lines:
        return summary
    before = (
        None if summary is None else {"session_id": key["session_id"], "mtime": 0, "data": summary}
    )
    return fold_session_summary(before, key, list(lines))["data"]  # type: ignore[arg-type]


def _load(tx: Tx, where: ExternalThread) -> list[Any] | None:
    head = thread.find_session(tx, where)
    if head is None:
        return None
    shown = thread.all_messages(tx, head)
    return [line for entry in shown for line in lines_of(entry)]


def _listed(tx: Tx, profile: str, project: str) -> list[dict[str, Any]]:
    return [
        {"session_id": head.source.extra["session_id"], "mtime": kept["mtime"]}
        for head, kept in _of_project(tx, profile, project)
    ]


def _summaries(tx: Tx, profile: str, project: str) -> list[dict[str, Any]]:
    return [
        {
            "session_id": head.source.extra["session_id"],
            "mtime": kept["mtime"],
            "data": kept["summary"],
        }
        for head, kept in _of_project(tx, profile, project)
        if kept.get("summary") is not None
    ]


def _of_project(tx: Tx, profile: str, project: str) -> Iterable[tuple[SessionHead, dict[str, Any]]]:
    beginning = thread.key_prefix(PLATFORM, f"{escape(project)}/", profile=profile)
    for key, head in thread.sessions_with_prefix(tx, beginning, profile=profile):
        kept = sessions.details(tx, head.no).extra.get(NATIVE)
        if key.thread is None and kept is not None:
            yield head, kept


def _delete(tx: Tx, where: ExternalThread, *, moment: Moment) -> None:
    thread.trash(tx, where, moment=moment)
    if where.source.thread_id is None:
        for _, head in list(_subagents(tx, where)):
            thread.trash_session(tx, head, moment=moment)


def _subkeys(tx: Tx, where: ExternalThread) -> list[str]:
    return [subpath for subpath, _ in _subagents(tx, where)]


def _subagents(tx: Tx, where: ExternalThread) -> Iterable[tuple[str, SessionHead]]:
    for key, head in thread.sessions_with_prefix(tx, f"{where.key}/", profile=where.profile):
        if key.thread is not None:
            yield key.thread, head


def _not_there(tx: Tx, head: SessionHead, lines: Sequence[Any]) -> list[Any]:
    """The lines that are not in the log; those without a uuid are always new."""
    new, seen = [], set()
    for line in lines:
        for idempotency_key in _receipts(head, [line]):
            if (
                idempotency_key in seen
                or log.find_repeat(tx, idempotency_key, profile=head.profile) is not None
            ):
                break
            seen.add(idempotency_key)
        else:
            new.append(line)
    return new


def _receipts(head: SessionHead, lines: Iterable[Line]) -> list[str]:
    named = [line["uuid"] for line in lines if isinstance(line.get("uuid"), str)]
    return [f"{PLATFORM}/{head.id}/{_digest(uuid)}" for uuid in named]


def _digest(text: str) -> str:
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:40]


def _calls(lines: Iterable[Line]) -> list[Usage]:
    """The model calls of a batch; of several lines about one call the last knows most."""
    found = [call for line in lines if (call := usage_of(line)) is not None]
    return list({call.call_id: call for call in found}.values())


@dataclass(slots=True)
class Bundle:
    """One message and the lines it stands for: its own, and such that say nothing by themselves."""

    lines: list[Line] = field(default_factory=list)
    message: Message | None = None
    at: datetime | None = None


def bundles(lines: Sequence[Line], files: NewFiles) -> list[Bundle]:
    """The lines of a batch around its messages, in order."""
    made: list[Bundle] = []
    waiting: list[Line] = []
    for line in lines:
        message = _read_message(line, files)
        waiting.append(line)
        if message is not None:
            made.append(Bundle(waiting, message, _at(line)))
            waiting = []
    if waiting and made:
        made[-1].lines.extend(waiting)
    elif waiting:
        made.append(Bundle(waiting, _silent(waiting), _at(waiting[-1])))
    return made


def message_of(bundle: Bundle) -> Message:
    """What a bundle says, with its lines beside it, to the letter."""
    message = bundle.message
    assert message is not None
    return Message(
        message.role,
        message.parts,
        model=message.model,
        finish_reason=message.finish_reason,
        extra={NATIVE: [json.dumps(line) for line in bundle.lines]},
    )


def lines_of(message: Message) -> list[Any]:
    """The lines that a message stands for; none when it came another way."""
    found = message.extra.get(NATIVE)
    return [json.loads(text) for text in found] if isinstance(found, list) else []


def usage_of(line: Line) -> Usage | None:
    """The model call that a line tells of; the lines of one answer all tell of the same call."""
    answer = line.get("message")
    used = answer.get("usage") if isinstance(answer, Mapping) else None
    if line.get("type") != "assistant" or not isinstance(used, Mapping):
        return None
    assert isinstance(answer, Mapping)
    call, model = answer.get("id") or line.get("requestId"), answer.get("model")
    if not isinstance(call, str) or not isinstance(model, str) or model == "<synthetic>":
        return None
    written, kept = _count(used, "cache_creation_input_tokens"), used.get("cache_creation")
    for_an_hour = _count(kept, "ephemeral_1h_input_tokens") if isinstance(kept, Mapping) else 0
    return Usage(
        model=model,
        input_tokens=_count(used, "input_tokens"),
        output_tokens=_count(used, "output_tokens"),
        cache_read_tokens=_count(used, "cache_read_input_tokens"),
        cache_write_tokens=written,
        cache_write_1h_tokens=min(for_an_hour, written),
        call_id=f"{NATIVE}/{call}",
        at=_at(line),
    )


def workspace_of(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Where the agent works, where its lines say so."""
    for line in lines:
        if isinstance(line.get("cwd"), str):
            branch = line.get("gitBranch")
            return {"path": line["cwd"]} | ({"branch": branch} if branch else {})
    return None


def _read_message(line: Line, files: NewFiles) -> Message | None:
    content = line.get("message")
    given = content.get("content") if isinstance(content, Mapping) else None
    match line.get("type"):
        case "user" if given is not None:
            parts = _parts(given, files)
            role = Role.SYSTEM if line.get("isMeta") is True else Role.USER
            if any(isinstance(part, ToolResult) for part in parts):
                role = Role.TOOL
            return Message(role, parts)
        case "assistant" if isinstance(content, Mapping) and given is not None:
            return Message(
                Role.ASSISTANT,
                _parts(given, files),
                model=_text(content.get("model")),
                finish_reason=_text(content.get("stop_reason")),
            )
        case "system" if isinstance(line.get("content"), str):
            return Message(Role.SYSTEM, (Text(line["content"]),))
    return None


def _parts(given: Any, files: NewFiles) -> tuple[Part, ...]:
    content = Content()
    anthropic_blocks.add(content, given)
    return parts_of(content, files, form="claude")


def _silent(lines: Sequence[Line]) -> Message:
    """A message for lines that say nothing by themselves and stand alone in their batch."""
    kinds = [str(line.get("type")) for line in lines]
    return Message(Role.SYSTEM, (Unknown({"type": "claude:lines", "lines": kinds}),))


def _at(line: Line) -> datetime | None:
    text = line.get("timestamp")
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _count(used: Mapping[str, Any], name: str) -> int:
    value = used.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
