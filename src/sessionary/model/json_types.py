"""The shapes of JSON: what HTTP, `--json` and MCP return, declared once for type checkers and OpenAPI.

`model/view.py` makes these values. Only type checkers and the web server import this module: a command that
prints JSON needs none of it, and `typing_extensions` takes 4 ms.
"""

from typing import Any, Literal, NotRequired

# Before 3.12 the standard library's TypedDict does not say which fields are required.
from typing_extensions import TypedDict

from sessionary.config.engine import OnExpiry
from sessionary.model.access import Scope
from sessionary.model.message import Role
from sessionary.model.question import Always, Decision, QuestionKind, QuestionState
from sessionary.model.reset import ResetMode
from sessionary.model.schedule import RunState
from sessionary.model.session import Kind, Lineage
from sessionary.model.turn import DeliveryState, TurnState
from sessionary.model.usage import CostStatus


class SourceInfo(TypedDict):
    """Where a message or a session comes from. Fields that the platform did not give are left out."""

    platform: str
    """The platform, for example `telegram`, `web` or `api`."""
    chat_type: str
    """The kind of chat: `dm`, `group`, `channel`, `thread`, or the platform's own word."""
    chat_id: NotRequired[str]
    """The platform's id of the chat."""
    chat_name: NotRequired[str]
    """The name of the chat."""
    user_id: NotRequired[str]
    """The platform's id of the person who wrote."""
    user_name: NotRequired[str]
    """The name of the person who wrote."""
    thread_id: NotRequired[str]
    """The thread inside the chat."""
    chat_topic: NotRequired[str]
    """The topic of the chat."""
    user_id_alt: NotRequired[str]
    """A second, stable id of the person."""
    chat_id_alt: NotRequired[str]
    """A second, stable id of the chat."""
    platform_message_id: NotRequired[str]
    """The platform's id of the message."""


class SessionSummary(TypedDict):
    """A session as a list shows it."""

    id: str
    """The session's id."""
    profile: str
    """The profile that it belongs to."""
    key: str | None
    """The key of its conversation; null for a session that no chat points to."""
    source: SourceInfo
    """Where the session was opened from."""
    kind: Kind
    """What sort of conversation it is."""
    title: str | None
    """The title, if it has one."""
    preview: str | None
    """The first words of the first user message, on one line."""
    model: str | None
    """The model that was chosen for it, or the first that answered in it."""
    agent: str | None
    """The agent that was chosen for it; null: the default."""
    persona: str | None
    """The persona that was chosen for it."""
    tools: NotRequired[list[str]]
    """Patterns of the tools that its agent may use; missing: all."""
    project: str | None
    """The name of the project that it is in."""
    pinned: bool
    """Whether it is pinned to the top of lists."""
    archived: bool
    """Whether it is in the archive."""
    trashed: bool
    """Whether it is in the trash."""
    read_only: bool
    """Whether it can only be read, as imported sessions can."""
    labels: list[str]
    """Its labels."""
    began_at: str
    """When it was opened (RFC 3339, UTC)."""
    last_active_at: str
    """When something was last added to it."""
    ended_at: str | None
    """When it ended; null while it is open."""
    end_reason: str | None
    """Why it ended."""
    last_seq: int
    """The number of its newest entry."""
    message_count: int
    """How many messages it has."""
    tool_call_count: int
    """How many tools were called in it."""
    input_tokens: int
    """Input tokens of all its model calls."""
    output_tokens: int
    """Output tokens of all its model calls."""
    cache_read_tokens: int
    """Tokens read from the provider's cache."""
    cache_write_tokens: int
    """Tokens written to the provider's cache."""
    reasoning_tokens: int
    """Tokens that the model used to reason."""
    cost_microusd: int | None
    """The known cost in millionths of a US dollar; null if no call has a known price."""
    cost_status: CostStatus | None
    """How well the cost is known; null if there was no model call."""
    running: bool
    """Whether a turn is running, also if it is waiting."""
    waiting: NotRequired[bool]
    """True if the process of the running turn has stopped or died: another one continues or ends the turn."""
    waits_for_people: NotRequired[bool]
    """True if the turn has asked people something and waits for the answer: see `/questions`."""
    unread: bool
    """Whether it has a reply that was not read yet."""
    parent_id: str | None
    """The session that it came from."""
    lineage: Lineage | None
    """How it came from its parent."""


class ListedSession(SessionSummary):
    """A session in a list, with the state of its work."""

    subagents: int
    """How many subagents it started."""
    failed: bool
    """Whether its last turn failed."""


class TextPart(TypedDict):
    """Text."""

    type: Literal["text"]
    text: str


class ReasoningPart(TypedDict):
    """What the model thought before it answered."""

    type: Literal["reasoning"]
    text: str
    details: NotRequired[Any]
    """The provider's own data, unchanged."""


class ToolCallPart(TypedDict):
    """A request of the model to run a tool."""

    type: Literal["tool_call"]
    id: str
    """The id that the result refers to."""
    name: str
    """The tool's name."""
    arguments: NotRequired[Any]
    """The arguments, usually an object."""


class CutOutput(TypedDict):
    """How long a shortened tool output is in full."""

    lines: int
    characters: int


class ToolResultPart(TypedDict):
    """What a tool returned."""

    type: Literal["tool_result"]
    call_id: str
    """The id of the tool call."""
    content: NotRequired[Any]
    """The output: text, or any JSON."""
    name: NotRequired[str | None]
    """The tool's name."""
    is_error: NotRequired[bool]
    """Whether the tool failed."""
    cut: NotRequired[CutOutput]
    """Present if `outputs=short` shortened the output."""


class AttachmentPart(TypedDict):
    """A file. `GET /sessions/{session_id}/blobs/{blob}` returns its bytes."""

    type: Literal["attachment"]
    blob: str
    """The SHA-256 of its bytes."""
    media_type: NotRequired[str]
    """The media type, by default `application/octet-stream`."""
    name: NotRequired[str | None]
    """The file name."""
    size: NotRequired[int | None]
    """The size in bytes."""


PartJson = (
    TextPart | ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | dict[str, Any]
)


class PersonInfo(TypedDict):
    """A person on a platform."""

    id: str
    alt_id: NotRequired[str]
    """A second, stable id."""
    name: NotRequired[str]


class EntryBase(TypedDict):
    """What every entry of a session's log has."""

    id: str
    """The entry's id."""
    session_id: str
    """The session that the entry was written in; in a fork this may be an ancestor."""
    seq: int
    """The entry's number in the session, from 1."""
    at: str
    """When it was written (RFC 3339, UTC)."""
    turn_id: str | None
    """The turn that wrote it."""


class MessageEntry(EntryBase):
    """A message of a session's log."""

    kind: Literal["message"]
    role: Role
    """Who wrote the message."""
    text: str
    """The text of the message, without reasoning and tools."""
    parts: list[PartJson]
    """The whole message. Parts of an unknown type are returned as they came."""
    person: PersonInfo | None
    """The person who wrote it, if the platform named one."""
    model: NotRequired[str]
    """The model that wrote it."""
    finish_reason: NotRequired[str]
    """Why the model stopped."""
    token_count: NotRequired[int]
    """How many tokens the message has."""
    platform_message_id: NotRequired[str]
    """The platform's id of the message."""
    extra: NotRequired[dict[str, Any]]
    """Data that came with an imported message and has no field here."""


class CompactionEntry(EntryBase):
    """For the model, everything through an entry is replaced by a summary. People still read all of it."""

    kind: Literal["compaction"]
    summary: str
    """The summary that the model reads instead."""
    through: int
    """The last `seq` that the summary replaces."""
    names_speakers: NotRequired[bool]
    """Whether the model is told who wrote each message."""
    kept: NotRequired[list[int]]
    """Entries before `through` that the model still reads word for word, such as pinned messages."""
    shortened: NotRequired[int]
    """Tool outputs up to this `seq` are shortened for the model. A compaction may do only this: then `summary` is
    empty, or that of the compaction before."""
    longest_output: NotRequired[int]
    """How many characters of a shortened tool output the model reads."""


class RetractionEntry(EntryBase):
    """Everything between entry `after` and this one was taken back. It stays in the log."""

    kind: Literal["retraction"]
    after: int
    """The last `seq` that remains."""
    reason: str
    """Why it was taken back, for example `undo` or `retry`."""


EntryJson = MessageEntry | CompactionEntry | RetractionEntry


class UsageTotals(TypedDict):
    """The tokens and the cost of one group of model calls."""

    group: str | None
    """The day, model, provider, source, project or session; null for calls without one."""
    calls: int
    """How many model calls there were."""
    input_tokens: int
    """Input tokens."""
    output_tokens: int
    """Output tokens."""
    cache_read_tokens: int
    """Tokens read from the provider's cache."""
    cache_write_tokens: int
    """Tokens written to the provider's cache."""
    reasoning_tokens: int
    """Tokens that models used to reason."""
    cost_microusd: int | None
    """The sum of the known costs in millionths of a US dollar; null if none is known."""
    cost_status: CostStatus | None
    """How well the sum is known; null if there was no call."""
    unknown_cost_calls: int
    """How many calls have no known price."""


class BudgetInfo(TypedDict):
    """A budget, and what was used of it in the current day or month (UTC)."""

    scope: str
    """What it counts, such as `person:telegram:42`; a kind alone, such as `person`, if nothing was used yet."""
    per: Literal["day", "month"]
    """How long a period is."""
    period: str
    """The current day or month, such as `2026-08-01` or `2026-08`."""
    resets_at: str
    """When the next period begins."""
    limit_tokens: int | None
    """How many tokens may be used; null without a limit."""
    limit_microusd: int | None
    """How much may be spent in millionths of a US dollar; null without a limit."""
    used_tokens: int
    """How many tokens are used."""
    used_microusd: int
    """How much is spent, as far as prices are known."""
    reserved_tokens: int
    """What running turns have reserved beside that."""
    reserved_microusd: int
    """What running turns have reserved beside that, in millionths of a US dollar."""
    percent: float
    """How much is used of the tokens or of the money, whichever share is larger; may be above 100."""
    is_used_up: bool
    """Whether no turn may begin before `resets_at`."""
    warned: list[int]
    """The thresholds of 50, 80 and 100 percent of which people were warned in this period."""


class PolicyInfo(TypedDict):
    """When a session is reset automatically. Limits that the mode does not use are null."""

    mode: ResetMode
    """Which limits apply."""
    idle_minutes: float | None
    """Reset after this many minutes without a message."""
    daily_at: str | None
    """Reset every day at this time, as `HH:MM`."""
    zone: str
    """The time zone of `daily_at`."""


class TurnInfo(TypedDict):
    """A turn of a session."""

    id: str
    session_id: str
    state: TurnState
    """How far it is."""
    agent: str | None
    """The agent that takes it."""
    began_at: str
    ended_at: str | None
    first_seq: int
    """The number of its first entry."""
    reason: str | None
    """Why it failed or was interrupted."""
    holder: str | None
    """The process that runs it or ran it last; null if that one has stopped, and another shall continue it."""
    resumed: int
    """How often another process has continued it."""
    resume_reason: str | None
    """Why it was continued the last time, or shall be."""
    waiting: bool
    """Whether it is running, but its process has stopped or died: another one continues or ends it.

    One that waits for people has the state `waiting`.
    """


class AnswerInfo(TypedDict):
    """The answer to a question."""

    decision: Decision
    """`approve` for every answer but a denial."""
    text: str
    """The text or the chosen option; the reason of a denial."""
    arguments: dict[str, Any] | None
    """The arguments that the call got instead of those that were asked about."""
    values: dict[str, Any] | None
    """The values of a form."""
    always: Always | None
    """For which later calls of the tool the approval counts too."""
    by: str | None
    """Who answered."""
    platform: str
    """Where they answered."""
    at: str


class QuestionInfo(TypedDict):
    """A question that a turn asks people."""

    id: str
    session_id: str
    turn_id: str
    kind: QuestionKind
    """`approval` of a tool call, a `choice`, a `text`, or a `form` of several values."""
    text: str
    tool: str | None
    arguments: dict[str, Any] | None
    """The arguments of the call, as they are executed."""
    arguments_text: str
    """The same to read: every character can be seen."""
    diff: str | None
    """The change that the call makes to a file, if its arguments describe one."""
    options: list[str]
    form: dict[str, Any] | None
    """The JSON schema of the values of a form."""
    rule: str
    """Why the call must be approved."""
    agent: str | None
    where: str
    """Where the turn was asked for."""
    person: str | None
    """Whose message began the turn, as `platform:id`."""
    state: QuestionState
    outcome: str
    """What became of it, in one line."""
    code: str
    """What people type before their answer, to say which question they mean."""
    asked_at: str
    expires_at: str
    on_expiry: OnExpiry
    """Then it counts as denied (`deny`), or the turn ends (`end`)."""
    answer: AnswerInfo | None


class StandingApprovalInfo(TypedDict):
    """A rule that somebody made with an answer: a tool needs no approval in a session, or for a person."""

    id: str
    tool: str
    session_id: str | None
    person: str | None
    """As `platform:id`."""
    agent: str | None
    """The agent that may call the tool; null for every agent."""
    given_by: str
    given_at: str


class TurnSummary(TurnInfo):
    """A turn in the list of a session's turns."""

    calls: int
    """How many answers the model has written in it."""


class ModelCallInfo(TypedDict):
    """One call of the model in a turn."""

    number: int
    """Its number in the turn, from 1."""
    answer_seq: int | None
    """The entry with its answer; null if there is none."""
    model: str | None
    """The model that answered."""
    tokens: int | None
    """How many tokens it was sent, as the provider counted them."""


class CompactionInfo(TypedDict):
    """What the model reads instead of the beginning of a session."""

    seq: int
    """The entry that says so."""
    through: int
    """The last `seq` that the summary replaces; 0 if nothing is replaced."""
    summary: str
    """The summary; empty if only tool outputs were shortened."""
    kept: list[int]
    """Entries before `through` that the model still reads word for word, such as pinned messages."""
    shortened_through: int
    """Long tool outputs up to this `seq` are shortened; 0: none is."""


class SentContextInfo(TypedDict):
    """What a model was sent in one call of a turn, made again from the log."""

    turn: TurnInfo
    call: ModelCallInfo
    calls: int
    """How many calls the turn has."""
    model: str | None
    """The model that was called."""
    window: int | None
    """How many tokens that model reads at once, if it was known."""
    system_prompt: str | None
    """The system prompt; null if it was not recorded, as for agents that are programs."""
    tools: list[dict[str, Any]] | None
    """The tools that the model could call; null if they were not recorded."""
    settings: dict[str, Any] | None
    """The session's settings for the model; null if they were not recorded."""
    messages: list[dict[str, Any]]
    """The messages, in the format of the OpenAI API."""
    seqs: list[int]
    """The entry that each message is made of; 0 for the summary."""
    compaction: CompactionInfo | None
    """The compaction in effect."""
    shortened: list[int]
    """The entries of tool outputs of which the model read only a part."""
    tokens_by_kind: dict[str, int]
    """The estimated tokens of the system prompt, the tools, the summary, and the messages by their role."""


class ContextInfo(TypedDict):
    """How large the context of a session is now, in tokens."""

    used: int
    window: int | None
    """How many tokens the model reads at once; null if that is unknown."""
    threshold: int | None
    """The size at which the context is compacted; null if it is not."""
    percent: float | None
    """How much of the window is used."""
    by_kind: dict[str, int]
    """The estimated tokens of the system prompt, the tools, the summary, and the messages by their role."""
    model: str | None
    """The model that answers, as far as it is known."""
    compaction: CompactionInfo | None
    """The compaction in effect."""
    status: Literal["reported", "estimate"]
    """`reported`: the provider has counted the last call, and only what came later is estimated."""


class PinInfo(TypedDict):
    """A pinned message: the model reads it word for word also after a compaction."""

    seq: int
    """The number of its entry."""
    role: Role
    """Who wrote it."""
    text: str
    """The first 200 characters, on one line."""
    at: str
    """When it was written."""


class HoldInfo(TypedDict):
    """A reason not to reset a session."""

    reason: str
    until: str | None
    """When it ends by itself; null if it must be released."""


class DeliverySummary(TypedDict):
    """A delivery of the outbox, with the beginning of its text."""

    id: str
    channel: str
    """Where it is sent: `platform:chat` or `platform:chat:thread`."""
    platform: str
    chat_id: str
    thread_id: str | None
    state: DeliveryState
    """What became of it."""
    reason: str | None
    """Why it waits, or was abandoned."""
    text: str
    """The first 200 characters, on one line."""
    session_id: str | None
    turn_id: str | None
    attempts: int
    """How often sending was tried."""
    maybe_twice: bool
    """Whether an earlier attempt may have reached the person too."""
    created_at: str
    not_before: str | None
    """When it is tried next at the earliest."""
    sent_at: str | None
    platform_message_id: str | None
    """The platform's id of the message that was sent."""
    redirected_to: str | None
    """The delivery that replaced it."""


class DeliveryDetail(DeliverySummary):
    """A delivery with its parts."""

    parts: list[PartJson]


HitRole = Literal["user", "assistant", "system", "tool", "title", "summary"]


class SearchHit(TypedDict):
    """A message that was found, or a title or a summary."""

    session: SessionSummary
    """The session that contains it."""
    id: str
    """The entry's id."""
    seq: int
    """The entry's number in the session."""
    role: HitRole
    """Who wrote the message; `title` or `summary` if the session's title or a summary was found."""
    snippet: str
    """The text around the match; matches stand between the characters U+E000 and U+E001."""
    text: str
    """The text of the message, shortened."""
    at: str
    """When it was written (RFC 3339, UTC)."""
    score: float
    """How well it matches; higher is better."""
    before: str | None
    """The beginning of the message before it."""
    after: str | None
    """The beginning of the message after it."""
    in_session: int
    """How many matches its session has."""


class SearchPage(TypedDict):
    """The result of a search, and what it leaves out."""

    items: list[SearchHit]
    next: str | None
    """The cursor of the next page; null on the last."""
    total: int
    """How many matches were counted."""
    more: bool
    """Whether there are more matches than were counted."""
    words: str
    """The query as it was understood."""
    relaxed: bool
    """Nothing contains all of the words; these results contain some of them."""
    beginnings: bool
    """Nothing contains the words as typed; these results contain longer words that begin with them."""
    step_hits: int
    """Matches in tool output and reasoning, which `steps=true` would include."""
    behind: int
    """How many changes are not in the index yet."""
    suggestion: str | None
    """A query that may have been meant."""
    missing: str | None
    """Something that the query names and that does not exist, for example a project."""


class ProjectInfo(TypedDict):
    """A project: a named group of sessions."""

    id: str
    name: str
    colour: str | None
    """A colour, as the workbench wrote it."""
    created_at: str
    sessions: int
    """How many sessions are in it."""


class ScheduleInfo(TypedDict):
    """A task that runs on a schedule."""

    id: str
    name: str
    timing: str
    """When it runs: a cron expression, `@daily`, `every 15m`, or `at 2026-12-24T18:00`."""
    zone: str
    """The time zone of the timing."""
    prompt: str
    """What the agent is asked."""
    agent: str | None
    """The agent that runs it; null for the default."""
    deliver_to: str
    """Where the output goes: `local`, `origin`, a platform, or `platform:chat[:thread]`."""
    grace_minutes: int
    """A missed run is made up if it is not older than this."""
    paused: bool
    created_at: str
    next_at: str | None
    """When it runs next; null if it does not."""
    by_program: bool
    """Whether a program made it with a token of the scope `write`: its runs have no owner's rights."""


class RunInfo(TypedDict):
    """One run of a scheduled task."""

    due_at: str
    state: RunState
    began_at: str
    ended_at: str | None
    session_id: str | None
    """The session of the run."""
    reason: str | None
    """Why it failed or was skipped."""


class PermitInfo(TypedDict):
    """A person who may write to the agent."""

    platform: str
    person_id: str
    """The platform's id of the person."""
    name: str | None
    given_at: str
    """When access was given."""
    given_by: str
    """Who gave it."""


class TokenInfo(TypedDict):
    """A token of a program, without its secret."""

    id: str
    profile: str
    name: str
    """What the token is for."""
    scope: Scope
    created_at: str
    revoked_at: str | None
