"""Appends a recorded exchange to the session that it continues, in a fork of it, or in a new one."""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.actions import turns
from sessionary.actions.budgets import Budgets
from sessionary.actions.sessions import edit, log, prefixes, routing, titles
from sessionary.actions.sessions.prefixes import KnownPrefix
from sessionary.actions.turns import Claim, Ending, RequestRecord
from sessionary.clock import Moment
from sessionary.engine.turn import budgets
from sessionary.engine.turn.budgets import Spending
from sessionary.model import codec, transcript
from sessionary.model.message import Message, Role, Text, Unknown
from sessionary.model.prefix import message_digest, prefix_digests
from sessionary.model.session import Opening, SessionHead
from sessionary.model.source import Person, SessionKey, Source, key_for
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.proxy.journal import RecordingGap
from sessionary.proxy.reading import RequestContent, ResponseContent
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries, exchanges, sessions
from sessionary.store.tables.exchanges import PLATFORM

GAPS = "gaps"
PROCESS_DIED = "the proxy's process ended before the response did"
_GAPS_TITLE = "Gaps in the record of the proxy"
_LEASE_SECONDS = 60.0
_FAILED = "failed"
# What programs put before what a person wrote.
_WRAPPED = re.compile(r"\s*<([a-z][\w-]*)>.*?</\1>", re.DOTALL)


class RecordedExchange(Struct, frozen=True):
    """An exchange as it is read: who asked whom, for what, and what came back."""

    id: str
    profile: str
    # Whose conversations are compared, and the session that the request names.
    client: str
    upstream: str
    began_at: datetime
    ended_at: datetime
    request: RequestContent
    response: ResponseContent
    session: str | None = None
    person: str | None = None
    usage: Usage | None = None
    # What counts against budgets where no usage is reported: a stream of Chat Completions need not.
    estimate: Usage | None = None
    # Why it broke off, or was refused.
    broken: str | None = None
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def state(self) -> TurnState:
        """How it ended."""
        if self.response.error is not None:
            return TurnState.FAILED
        return TurnState.DONE if self.response.is_whole else TurnState.INTERRUPTED

    @property
    def source(self) -> Source:
        """Where it came from."""
        return Source(PLATFORM, self.session, chat_name=self.upstream, user_id=self.person)

    @property
    def receipt(self) -> str:
        """Under which the log has it once; an abandoned one, and what came of it after all, are two."""
        return f"proxy/{self.id}/{'cut' if self.broken == PROCESS_DIED else 'whole'}"

    @property
    def receipts(self) -> tuple[str, ...]:
        """Under which the log may have it already."""
        whole = f"proxy/{self.id}/whole"
        return (whole,) if self.receipt == whole else (whole, self.receipt)


def record(
    tx: Tx, found: Sequence[RecordedExchange], *, known_budgets: Budgets, moment: Moment
) -> int:
    """Append what the log does not have yet of exchanges, and delete their rows; return how many are new to it."""
    return sum(_record(tx, each, known_budgets=known_budgets, moment=moment) for each in found)


def _record(tx: Tx, exchange: RecordedExchange, *, known_budgets: Budgets, moment: Moment) -> bool:
    if exchanges.lock(tx, exchange.id) != exchanges.DONE:
        return False
    exchanges.delete(tx, exchange.id)
    profile = exchange.profile
    # The exchanges of a client are recorded one after the other: each continues what the one before has left.
    sessions.lock_key(tx, f"proxy/{exchange.client}", profile=profile)
    if any(entries.find_receipt(tx, each, profile=profile) for each in exchange.receipts):
        return False
    request, response = exchange.request, exchange.response
    link = _link(request)
    digests = prefix_digests(request.messages, after=link or "")
    head, skipped = _find_session(tx, exchange, link, digests, moment=moment)
    began = replace(moment, now=exchange.began_at)
    if head is None:
        head = _open(tx, exchange, moment=began)
    lease = turns.take_lease(
        tx,
        head.no,
        head.id,
        claim=Claim(f"proxy/{exchange.id}", _LEASE_SECONDS, agent=f"proxy/{exchange.upstream}"),
        moment=began,
    )
    for data in (*request.files, *response.files):
        blobs.add(tx, data)
    for place in range(skipped, len(request.messages)):
        message = request.messages[place]
        if message.role is Role.USER and exchange.person is not None:
            message = replace(message, person=Person(exchange.person))
        appended = log.append(
            tx, head.id, message, profile=profile, at=exchange.began_at, lease=lease
        )
        if message.role is Role.ASSISTANT:
            prefixes.note(tx, digests[place], head, seq=appended.seq, client=exchange.client)
    answer = _answer(exchange)
    appended = log.append(
        tx,
        head.id,
        answer,
        profile=profile,
        at=exchange.ended_at,
        idempotency_key=exchange.receipt,
        lease=lease,
    )
    turns.end(
        tx,
        lease,
        Ending(
            state=exchange.state,
            reason=response.error or exchange.broken,
            usage=() if exchange.usage is None else (exchange.usage,),
            request=_request_record(exchange),
        ),
        profile=profile,
        moment=replace(moment, now=exchange.ended_at),
    )
    before = digests[-1] if digests else link or ""
    _note_end(tx, exchange, head, before, answer, seq=appended.seq)
    spent = exchange.usage or exchange.estimate
    if spent is not None:
        scopes = (
            *budgets.scopes_of(exchange.source),
            *budgets.turn_scopes(known_budgets, profile=profile, session_id=head.id),
        )
        spending = Spending(scopes, moment.now, known_budgets)
        budgets.count_summary(tx, spent, spending, profile=profile, moment=moment)
    return True


def _find_session(
    tx: Tx, exchange: RecordedExchange, link: str | None, digests: list[str], *, moment: Moment
) -> tuple[SessionHead | None, int]:
    """The session that an exchange continues, and how many of its messages that has; None and 0 for a new one."""
    if link is None:
        known = _find_beginning(tx, exchange, digests)
    else:
        known = _find_beginning(tx, exchange, [link, *digests])
        known = known and replace(known, length=known.length - 1)
    name = _session_key(exchange)
    if name is None or known is not None:
        return _continued(tx, known, exchange, moment)
    # A session that is named goes on whatever is sent of it: some programs send only what is new, or the last messages.
    routing.lock_key(tx, name)
    current = routing.get_current(tx, name)
    if current is None:
        return None, 0
    whose = {"profile": exchange.profile, "client": exchange.client}
    last = prefixes.find(tx, list(map(_answer_digest, exchange.request.messages)), **whose)
    is_there = last is not None and (last.session_no, last.seq) == (current.no, current.last_seq)
    known = last if is_there else KnownPrefix(current.no, current.last_seq, 0)
    head, skipped = _continued(tx, known, exchange, moment)
    if head is not None and head.no != current.no:
        routing.bind(tx, name, head.no, moment=moment)
    return head, skipped


def _find_beginning(tx: Tx, exchange: RecordedExchange, digests: list[str]) -> KnownPrefix | None:
    """The longest beginning that is known. All of it is if a request that failed is repeated."""
    whose = {"profile": exchange.profile, "client": exchange.client}
    known = prefixes.find(tx, digests, **whose)
    if known is None or known.length < len(digests) or not exchange.request.messages:
        return known
    head = sessions.by_numbers(tx, (known.session_no,)).get(known.session_no)
    if head is not None and head.last_seq == known.seq:
        return known
    # It was repeated already: this is another conversation, or another answer to the same question.
    return prefixes.find(tx, digests[: digests.index(digests[-1])], **whose)


def _continued(
    tx: Tx, known: KnownPrefix | None, exchange: RecordedExchange, moment: Moment
) -> tuple[SessionHead | None, int]:
    if known is None:
        return None, 0
    head = prefixes.continue_at(tx, known, profile=exchange.profile, moment=moment)
    return (None, 0) if head is None else (head, known.length)


def _session_key(exchange: RecordedExchange) -> SessionKey | None:
    """The key of the session that the request names."""
    if exchange.session is None:
        return None
    return key_for(exchange.source, profile=exchange.profile)


def _open(tx: Tx, exchange: RecordedExchange, *, moment: Moment) -> SessionHead:
    opening = Opening(
        exchange.profile,
        exchange.source,
        model=exchange.response.model or exchange.request.model,
        system_prompt=exchange.request.system,
    )
    id = edit.open_session(tx, opening, moment=moment)
    head = log.lock_session(tx, id, profile=exchange.profile)
    name = _session_key(exchange)
    if name is not None:
        routing.bind(tx, name, head.no, moment=moment)
    title = _title(exchange.request)
    if title:
        titles.name_automatically(tx, head, title)
    return head


def _title(request: RequestContent) -> str:
    """The first line that a person wrote."""
    for message in request.messages:
        for part in message.parts:
            if message.role is Role.USER and isinstance(part, Text):
                text = part.text[:10_000]
                while wrapped := _WRAPPED.match(text):
                    text = text[wrapped.end() :]
                if text.strip():
                    return text.strip().splitlines()[0]
    return ""


def _answer(exchange: RecordedExchange) -> Message:
    """The message that the log gets for a response, also for one that failed or never came."""
    response = exchange.response
    message = response.message or Message(Role.ASSISTANT, (), model=response.model)
    match exchange.state:
        case TurnState.FAILED:
            failure = Unknown({"type": "error", "message": response.error, **exchange.facts})
            message = replace(message, parts=(*message.parts, failure), finish_reason=_FAILED)
        case TurnState.INTERRUPTED:
            message = replace(message, finish_reason=transcript.INTERRUPTED)
    return message


def _note_end(
    tx: Tx,
    exchange: RecordedExchange,
    head: SessionHead,
    before: str,
    answer: Message,
    *,
    seq: int,
) -> None:
    """Note how a client goes on after this exchange."""
    found = []
    if exchange.state is not TurnState.DONE and exchange.request.messages:
        found.append(before)  # it asks the same again
    if exchange.response.message is not None:
        found += prefix_digests([answer], after=before)
        if exchange.session is not None:
            found.append(_answer_digest(answer))
    if exchange.response.id is not None:
        found.append(_digest_of("response", exchange.response.id))
    if exchange.request.conversation is not None:
        found.append(_digest_of("conversation", exchange.request.conversation))
    for digest in found:
        prefixes.note(tx, digest, head, seq=seq, client=exchange.client)


def _link(request: RequestContent) -> str | None:
    """What names the beginning of a conversation that is continued without sending it again."""
    if request.previous is not None:
        return _digest_of("response", request.previous)
    return request.conversation and _digest_of("conversation", request.conversation)


def _answer_digest(message: Message) -> str:
    """What names an answer by itself; nothing for other messages."""
    is_answer = message.role is Role.ASSISTANT
    return _digest_of("answer", message_digest(message)) if is_answer else ""


def _digest_of(kind: str, id: str) -> str:
    return hashlib.sha256(f"{kind} {id}".encode("utf-8", "replace")).hexdigest()[:32]


def _request_record(exchange: RecordedExchange) -> RequestRecord | None:
    """What the model was sent besides the messages; texts that are stored already are stored once."""
    request = exchange.request
    if request.system is None and not request.tools and not request.settings:
        return None
    sent = {
        "system_prompt": request.system,
        "model": request.model,
        "tools": request.tools or None,
        "settings": request.settings or None,
    }
    text = codec.encode({name: value for name, value in sent.items() if value is not None})
    return RequestRecord(blobs.hash_of_text(text), text)


def record_gap(tx: Tx, gap: RecordingGap, *, profile: str, holder: str, moment: Moment) -> None:
    """Note in the record when a proxy could not record."""
    source = Source(PLATFORM, GAPS, chat_name=_GAPS_TITLE)
    key = key_for(source, profile=profile)
    routing.lock_key(tx, key)
    head = routing.get_current(tx, key)
    receipt = f"proxy-gap/{holder}/{gap.since.isoformat()}"
    if entries.find_receipt(tx, receipt, profile=profile) is not None:
        return
    if head is None:
        id = edit.open_session(tx, Opening(profile, source), moment=moment)
        head = log.lock_session(tx, id, profile=profile)
        titles.name_automatically(tx, head, _GAPS_TITLE)
        routing.bind(tx, key, head.no, moment=moment)
    message = Message(Role.SYSTEM, (Text(gap.text),))
    log.append(tx, head.id, message, profile=profile, at=moment.now, idempotency_key=receipt)
