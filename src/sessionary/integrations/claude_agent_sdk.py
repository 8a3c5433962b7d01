"""Session stores of the Claude Agent SDK.

    options = ClaudeAgentOptions(session_store=SessionarySessionStore(house))

The program under the SDK keeps its own transcript; here every line of it is kept too, so that a
run can be resumed on another machine, and people can read and find what was said.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sessionary.actions.sessions import append, edit, log
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment, to_micros
from sessionary.integrations import thread
from sessionary.integrations.claude_lines import (
    NATIVE,
    Line,
    bundles,
    lines_of,
    message_of,
    usage_of,
    workspace_of,
)
from sessionary.integrations.client import SessionaryClient, nothing, settled
from sessionary.integrations.extra import wanted
from sessionary.integrations.files import Files
from sessionary.integrations.thread import Thread
from sessionary.model.session import Kind, SessionHead
from sessionary.model.source import escape
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import sessions, usage

with wanted("claude-agent-sdk", "The storage for the Claude Agent SDK"):
    from claude_agent_sdk import SessionKey, SessionStore, fold_session_summary

PLATFORM = "claude-agent-sdk"


class SessionarySessionStore(SessionStore):
    """Every transcript of the SDK as a session; transcripts of subagents as sessions of their own."""

    def __init__(self, client: SessionaryClient, *, profile: str | None = None) -> None:
        self._client = client
        self._profile = profile or client.profile

    async def append(self, key: SessionKey, entries: list[Any]) -> None:
        """Add lines, all or none; a line whose uuid is there already adds nothing."""
        if not entries:
            await self._client.store.read(nothing)
            return
        calls = [self._client.priced(call, at=None) for call in _calls(entries)]
        await settled(
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
        await settled(write(_delete, self._thread(key), moment=self._client.moment()))

    async def list_subkeys(self, key: Any) -> list[str]:
        """The subagents of a transcript."""
        return await self._client.store.read(_subkeys, self._thread(key))

    def _thread(self, key: Any, lines: Sequence[Line] = ()) -> Thread:
        project, session, subpath = key["project_key"], key["session_id"], key.get("subpath")
        name = f"{escape(project)}/{escape(session)}"
        source = thread.named(
            PLATFORM,
            name,
            chat_name=project,
            thread_id=subpath,
            extra={"project_key": project, "session_id": session},
        )
        kind = Kind.SUBAGENT if subpath else Kind.CHAT
        return Thread(self._profile, source, kind=kind, workspace=workspace_of(lines))


def _append(
    tx: Tx,
    where: Thread,
    key: SessionKey,
    lines: Sequence[Any],
    *,
    calls: Sequence[Usage],
    moment: Moment,
) -> None:
    head = thread.opened(tx, where, moment=moment, parent=_parent(tx, where))
    new = _not_there(tx, head, lines)
    files = Files()
    made = bundles(new, files)
    files.keep(tx)
    for bundle in made:
        saying = NewMessage(message_of(bundle), at=bundle.at)
        done = append.append_to(tx, head.id, saying, profile=where.profile, moment=moment)
        for idempotency_key in _receipts(head, bundle.lines):
            tx.run(
                "insert_receipt",
                profile=where.profile,
                idempotency_key=idempotency_key,
                session_no=head.no,
                seq=done.seq,
            )
    for call in calls:
        usage.raise_to(tx, call, profile=where.profile, session_no=head.no, at=moment.now)
    now = to_micros(moment.now) // 1000

    def folded(kept: dict[str, Any]) -> dict[str, Any]:
        return {"mtime": now, "summary": _fold(kept.get("summary"), key, new)}

    edit.revise(tx, head, NATIVE, folded)


def _parent(tx: Tx, where: Thread) -> SessionHead | None:
    if where.source.thread_id is None:
        return None
    return thread.current(tx, replace(where, source=replace(where.source, thread_id=None)))


def _fold(summary: Any, key: SessionKey, lines: Sequence[Any]) -> Any:
    """What the SDK wants to know of a transcript without reading it; subagents do not count."""
    if key.get("subpath") or not lines:
        return summary
    before = (
        None if summary is None else {"session_id": key["session_id"], "mtime": 0, "data": summary}
    )
    return fold_session_summary(before, key, list(lines))["data"]  # type: ignore[arg-type]


def _load(tx: Tx, where: Thread) -> list[Any] | None:
    head = thread.current(tx, where)
    if head is None:
        return None
    shown = thread.everything(tx, head)
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
    beginning = thread.prefix(PLATFORM, f"{escape(project)}/", profile=profile)
    for key, head in thread.beginning_with(tx, beginning, profile=profile):
        kept = sessions.details(tx, head.no).extra.get(NATIVE)
        if key.thread is None and kept is not None:
            yield head, kept


def _delete(tx: Tx, where: Thread, *, moment: Moment) -> None:
    thread.trash(tx, where, moment=moment)
    if where.source.thread_id is None:
        for _, head in list(_subagents(tx, where)):
            thread.trash_session(tx, head, moment=moment)


def _subkeys(tx: Tx, where: Thread) -> list[str]:
    return [subpath for subpath, _ in _subagents(tx, where)]


def _subagents(tx: Tx, where: Thread) -> Iterable[tuple[str, SessionHead]]:
    for key, head in thread.beginning_with(tx, f"{where.key}/", profile=where.profile):
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
