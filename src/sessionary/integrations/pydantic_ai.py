"""Conversation stores of pydantic-ai.

    store = SessionaryConversationStore(client)
    conversation = await store.load("alice") or Conversation(conversation_id="alice")
    result = await agent.run("Hello", conversation=conversation)
    await store.save(result)

A conversation is a session. Its history is what people read there: a branch is a retraction, a
fork is a fork, and what a person takes back in the workbench is taken back here too.

A run that stops for approvals can wait for them in a turn of the program: see `park_requests`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from sessionary.actions.sessions import append, edit, log, read, revise, routing
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound
from sessionary.integrations import parked_runs, thread
from sessionary.integrations.base import NewFiles, SessionaryClient, require_extra, wait_for_write
from sessionary.integrations.parked_runs import PendingCall, ProgramTurn
from sessionary.integrations.thread import ExternalThread
from sessionary.model import transcript
from sessionary.model.message import (
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.question import Question, outcome_text
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import entries as lines
from sessionary.store.tables import sessions as rows

with require_extra("pydantic-ai", "The storage for pydantic-ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        BinaryContent,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.tools import (
        DeferredToolRequests,
        DeferredToolResults,
        ToolApproved,
        ToolDenied,
    )

PLATFORM = "pydantic-ai"
_PAGE = 10
_record: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
NATIVE = "pydantic-ai"


class SessionaryConversationStore(ConversationStore):
    """Keeps conversations as sessions. A deleted one lies in the trash for 30 days, with its words."""

    def __init__(self, client: SessionaryClient, *, profile: str | None = None) -> None:
        self._client = client
        self._profile = profile or client.profile

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Read the record of a conversation, without its messages."""
        return await self._client.store.read(_read_record, self._thread(conversation_id))

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Every conversation, or those of a scope, the last written first."""
        found = await self._client.store.read(_read_records, self._profile)
        wanted = [record for record in found if scope is None or record.scope == scope]
        return sorted(wanted, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Write a record and its new entries, or raise a conflict if someone else was first."""
        used = [(entry.id, usage_of(entry)) for entry in new_entries]
        calls = {id: self._client.priced(each, at=None) for id, each in used if each is not None}
        await wait_for_write(
            self._client.store.write(
                _write_record,
                self._thread(record.conversation_id, scope=record.scope),
                record,
                new_entries,
                expected=expected_revision,
                calls={id: call for id, call in calls.items() if call is not None},
                moment=self._client.moment(),
            )
        )

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await wait_for_write(
            self._client.store.write(
                _delete_record,
                self._thread(conversation_id),
                expected=expected_revision,
                moment=self._client.moment(),
            )
        )

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return await self._client.store.read(_read_entry, entry_id, profile=self._profile)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """The entries up to this one, or only the last of them, in one read."""
        if head_id is None or limit == 0:
            return []
        read_store = self._client.store.read
        return await read_store(_read_history, head_id, profile=self._profile, limit=limit)

    def _thread(self, conversation_id: str, *, scope: str | None = None) -> ExternalThread:
        return ExternalThread(
            self._profile, thread.source_for(PLATFORM, conversation_id, user_id=scope)
        )


def _read_record(tx: Tx, where: ExternalThread) -> ConversationRecord | None:
    head = thread.find_session(tx, where)
    record = None if head is None else _stored(tx, head)
    if head is None or record is None:
        return None
    # The log is the truth: a person may have taken something back.
    return replace(record, head_id=_last_id(tx, head))


def _read_records(tx: Tx, profile: str) -> list[ConversationRecord]:
    beginning = thread.platform_prefix(PLATFORM, profile=profile)
    found = (
        _stored(tx, head) for _, head in thread.sessions_with_prefix(tx, beginning, profile=profile)
    )
    return [record for record in found if record is not None]


def _write_record(
    tx: Tx,
    where: ExternalThread,
    record: ConversationRecord,
    new: Sequence[ConversationEntry],
    *,
    expected: str | None,
    calls: dict[str, Usage],
    moment: Moment,
) -> None:
    head = thread.lock_session(tx, where)
    stored = None if head is None else _stored(tx, head)
    if (None if stored is None else stored.revision) != expected:
        raise ConversationConflict(record.conversation_id)
    start = new[0].parent_id if new else record.head_id
    try:
        if head is None:
            head = _begun(tx, where, record, start, is_empty=not new, moment=moment)
        _move(tx, head, start, moment=moment)
    except LookupError as error:
        raise ConversationConflict(record.conversation_id) from error
    files = NewFiles()
    made = [(entry, message_of(entry, files)) for entry in new]
    files.keep(tx)
    for entry, message in made:
        new_message = NewMessage(
            message, idempotency_key=_idempotency_key(entry.id), usage=calls.get(entry.id)
        )
        append.append_to_session(tx, head.id, new_message, profile=where.profile, moment=moment)
    if record.head_id != (new[-1].id if new else start):
        raise ConversationConflict(record.conversation_id)
    kept = _record.dump_python(record, mode="json")
    edit.update_extra(tx, head, NATIVE, lambda _: {"record": kept})


def _begun(
    tx: Tx,
    where: ExternalThread,
    record: ConversationRecord,
    start: str | None,
    *,
    is_empty: bool,
    moment: Moment,
) -> SessionHead:
    """A new conversation: empty, or with the history of an entry of another one."""
    if start is None:
        note = "pydantic-ai:opened" if is_empty else None
        return thread.get_or_open(tx, where, moment=moment, note=note)
    found = _find(tx, start, profile=where.profile)
    parent = rows.get_by_no(tx, found.session_no)
    if parent.folder is SessionFolder.GONE:
        parent = _heir(tx, where, record, through=found.seq)
    try:
        head = edit.fork(tx, parent.id, profile=where.profile, moment=moment, at_seq=found.seq)
    except NotFound as error:
        raise LookupError(start) from error
    routing.bind(tx, where.key, head.no, moment=moment)
    return head


def _heir(
    tx: Tx, where: ExternalThread, record: ConversationRecord, *, through: int
) -> SessionHead:
    """The conversation that is forked, where the one that said the entry is no more."""
    source = thread.source_for(PLATFORM, record.forked_from)
    head = thread.find_session(tx, replace(where, source=source))
    # A fork shares the numbers of what it inherited.
    if head is None or head.base_seq < through:
        raise LookupError(record.head_id)
    return head


def _move(tx: Tx, head: SessionHead, target: str | None, *, moment: Moment) -> None:
    """Let the history end with an entry: take back what follows, say again what had been left."""
    if _last_id(tx, head) == target:
        return
    shown = [entry for entry in _shown(tx, head.no) if id_of(thread.entry_message(entry))]
    ids = [id_of(thread.entry_message(entry)) for entry in shown]
    wanted = [] if target is None else _history(tx, target, profile=head.profile)
    common = 0
    for one, other in zip(ids, wanted, strict=False):
        if one != id_of(other):
            break
        common += 1
    if common < len(ids):
        after = shown[common].seq - 1
        revise.retract(
            tx, head.id, profile=head.profile, after=after, at=moment.now, reason="branch"
        )
    for message in wanted[common:]:
        log.append(tx, head.id, message, profile=head.profile, at=moment.now)


def _delete_record(tx: Tx, where: ExternalThread, *, expected: str, moment: Moment) -> None:
    head = thread.lock_session(tx, where)
    stored = None if head is None else _stored(tx, head)
    if head is None or stored is None or stored.revision != expected:
        raise ConversationConflict(where.source.chat_id or "")
    thread.trash_session(tx, head, moment=moment)


def _read_entry(tx: Tx, entry_id: str, *, profile: str) -> ConversationEntry:
    found = _find(tx, entry_id, profile=profile)
    segments = rows.segments(tx, found.session_no, through=found.seq)
    last = lines.read(tx, structs.replace(segments[-1], first=found.seq)) if segments else []
    if not last:
        raise LookupError(entry_id)
    return entry_of(thread.entry_message(last[0]))


def _read_history(
    tx: Tx, head_id: str, *, profile: str, limit: int | None
) -> list[ConversationEntry]:
    history = _history(tx, head_id, profile=profile)
    return [entry_of(message) for message in (history if limit is None else history[-limit:])]


def _history(tx: Tx, entry_id: str, *, profile: str) -> list[Message]:
    """What the session had said when the entry was new: that is the entry's history."""
    found = _find(tx, entry_id, profile=profile)
    shown = _shown(tx, found.session_no, through=found.seq)
    messages = [one for entry in shown if id_of(one := thread.entry_message(entry))]
    if not messages or id_of(messages[-1]) != entry_id:
        raise LookupError(entry_id)
    return messages


def _shown(tx: Tx, session_no: int, *, through: int | None = None) -> list[Entry]:
    segments = rows.segments(tx, session_no, through=through)
    shown = transcript.transcript(list(lines.walk(tx, segments)))
    return [entry for entry in shown if isinstance(entry.body, Message)]


def _last_id(tx: Tx, head: SessionHead) -> str | None:
    """The entry that the history ends with now."""
    before: int | None = None
    while True:
        window = read.read_window(tx, head.id, profile=head.profile, limit=_PAGE, before=before)
        for entry in reversed(window.entries):
            if isinstance(entry.body, Message) and (found := id_of(entry.body)):
                return found
        if not window.more_before:
            return None
        before = window.entries[0].seq


def _find(tx: Tx, entry_id: str, *, profile: str) -> log.Appended:
    found = log.find_repeat(tx, _idempotency_key(entry_id), profile=profile)
    if found is None:
        raise LookupError(entry_id)
    return found


def _stored(tx: Tx, head: SessionHead) -> ConversationRecord | None:
    kept: Any = rows.details(tx, head.no).extra.get(NATIVE)
    return None if not kept else _record.validate_python(kept["record"])


def _idempotency_key(entry_id: str) -> str:
    return f"{PLATFORM}/{entry_id}"


def message_of(entry: ConversationEntry, files: NewFiles) -> Message:
    """An entry as a message that people read, with the entry itself beside it."""
    native = {
        "id": entry.id,
        "parent_id": entry.parent_id,
        "message": ModelMessagesTypeAdapter.dump_json([entry.message]).decode(),
    }
    message = entry.message
    if isinstance(message, ModelRequest):
        role, parts = _request(message, files)
        return Message(role, parts, extra={NATIVE: native})
    return Message(
        Role.ASSISTANT,
        tuple(_answered(part) for part in message.parts),
        model=message.model_name,
        finish_reason=message.finish_reason,
        extra={NATIVE: native},
    )


def id_of(message: Message) -> str | None:
    """The name of the entry that a message is; None when it came another way."""
    native = message.extra.get(NATIVE)
    found = native.get("id") if isinstance(native, dict) else None
    return found if isinstance(found, str) else None


def entry_of(message: Message) -> ConversationEntry:
    """The entry that a message is."""
    native: Any = message.extra[NATIVE]
    messages: Sequence[ModelMessage] = ModelMessagesTypeAdapter.validate_json(native["message"])
    return ConversationEntry(id=native["id"], parent_id=native["parent_id"], message=messages[0])


def usage_of(entry: ConversationEntry) -> Usage | None:
    """The model call that an entry is the answer of, in our way of counting."""
    message = entry.message
    if not isinstance(message, ModelResponse):
        return None
    used = message.usage
    cached = used.cache_read_tokens + used.cache_write_tokens
    return Usage(
        model=message.model_name,
        input_tokens=max(0, used.input_tokens - cached),
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        cache_write_1h_tokens=min(used.cache_write_1h_tokens, used.cache_write_tokens),
        reasoning_tokens=used.details.get("reasoning_tokens", 0),
        base_url=message.provider_url,
        call_id=f"{NATIVE}/{entry.id}",
        at=message.timestamp,
    )


def _request(message: ModelRequest, files: NewFiles) -> tuple[Role, tuple[Part, ...]]:
    parts: list[Part] = []
    roles = {Role.SYSTEM}
    for part in message.parts:
        match part:
            case UserPromptPart():
                roles.add(Role.USER)
                parts.extend(_asked(part.content, files))
            case ToolReturnPart():
                roles.add(Role.TOOL)
                parts.append(_returned(part))
            case SystemPromptPart():
                parts.append(Unknown({"type": "pydantic-ai:system", "content": part.content}))
            case _:
                content = getattr(part, "content", None)
                shown = {"content": content} if isinstance(content, str) else {}
                parts.append(Unknown({"type": f"pydantic-ai:{part.part_kind}", **shown}))
    role = next(each for each in (Role.USER, Role.TOOL, Role.SYSTEM) if each in roles)
    return role, tuple(parts)


def _returned(part: ToolReturnPart) -> ToolResult:
    is_error = part.outcome in ("failed", "retried")
    return ToolResult(
        part.tool_call_id, part.model_response_str(), part.tool_name, is_error=is_error
    )


def _asked(content: Any, files: NewFiles) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
        return
    for piece in content:
        if isinstance(piece, str):
            yield Text(piece)
        elif isinstance(piece, BinaryContent):
            yield files.add(piece.data, piece.media_type)
        else:
            yield Unknown(_file(piece))


def _file(piece: Any) -> dict[str, Any]:
    """What is known of a file without its bytes; they are in the entry itself."""
    kind = getattr(piece, "kind", type(piece).__name__)
    facts = {name: getattr(piece, name, None) for name in ("url", "identifier")}
    known = {name: value for name, value in facts.items() if isinstance(value, str)}
    return {"type": f"pydantic-ai:{kind}", **known}


def _answered(part: Any) -> Part:
    match part:
        case TextPart():
            return Text(part.content)
        case ThinkingPart():
            return Reasoning(part.content)
        case ToolCallPart():
            return ToolCall(part.tool_call_id, part.tool_name, part.args)
    return Unknown({"type": f"pydantic-ai:{part.part_kind}"})


# Runs that stop for approvals.


async def park_requests(
    turn: ProgramTurn, requests: DeferredToolRequests, messages: Sequence[ModelMessage]
) -> tuple[Question, ...]:
    """Ask people for the approvals that a run has stopped for, and store its messages with the turn.

    `requests` is the output of the run, and `messages` are its `all_messages()`. Return the questions; leave the block
    of the turn after this. Calls that are executed elsewhere, `requests.calls`, are the program's own: add their
    results to those of `deferred_results`. Raise `BadInput` if the run waits for no approval, or if the messages are
    not those of the run.
    """
    calls = [_pending(part) for part in requests.approvals]
    if any(call not in _proposed(messages) for call in calls):
        raise BadInput("These are not the messages of the run that asks: its calls are missing.")
    run = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return await parked_runs.park(turn, PLATFORM, calls, run)


def message_history(turn: ProgramTurn) -> list[ModelMessage]:
    """Return the messages that a turn was parked with, for `agent.run(message_history=…)`."""
    run = parked_runs.load(turn, PLATFORM).run
    return list(ModelMessagesTypeAdapter.validate_python(run))


def deferred_results(turn: ProgramTurn) -> DeferredToolResults:
    """Return what people decided about the calls that a turn was parked with, for `agent.run(deferred_tool_results=…)`.

    A denied call has its reason, and one that was approved with other arguments has those.
    """
    parked = parked_runs.load(turn, PLATFORM)
    proposed = _proposed(message_history(turn))
    asked = {id for id, _ in parked.asked}
    results = DeferredToolResults()
    for call in proposed:
        if call.id in asked:
            results.approvals[call.id] = _approval(parked.question_about(call))
    return results


def _approval(question: Question) -> ToolApproved | ToolDenied:
    answered = question.answered
    if answered is None or not question.is_approved:
        return ToolDenied(f"The call was not run. {outcome_text(question)}")
    changed = answered.answer.arguments
    return ToolApproved(override_args=None if changed is None else dict(changed))


def _proposed(messages: Sequence[ModelMessage]) -> list[PendingCall]:
    """Return the calls of the last answer of the model."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [_pending(part) for part in message.parts if isinstance(part, ToolCallPart)]
    return []


def _pending(part: ToolCallPart) -> PendingCall:
    return PendingCall(part.tool_call_id, part.tool_name, part.args_as_dict())
