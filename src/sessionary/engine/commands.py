"""Chat commands such as /new and /resume: messages to Sessionary itself, not to the agent."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from sessionary.actions import access, turns
from sessionary.actions import inbox as receive
from sessionary.actions.budgets import read_accounts
from sessionary.actions.sessions import choice, edit, pins, read, revise, routing, titles
from sessionary.actions.sessions import lists as listing_of
from sessionary.clock import Moment
from sessionary.config.engine import AccessPolicy, ChoiceName, WhileRunning
from sessionary.engine import notices, policy
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.engine.turn import budgets
from sessionary.engine.turn.compaction import CompactionRequest, plan_as_asked, read_session_context
from sessionary.errors import (
    Ambiguous,
    BadInput,
    Conflict,
    NotAllowed,
    NotFound,
    SessionaryError,
)
from sessionary.model import choice as choices
from sessionary.model.message import Entry, Message, Role, message
from sessionary.model.prompt import HomeAddress
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.model.source import TERMINAL, ChatType, SessionKey, Source
from sessionary.model.terminal import one_line
from sessionary.model.title import clean_title, matches_continuation
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals
from sessionary.store.tables import sessions as table

_FORM = re.compile(r"^/([a-z]+)(?:@\S+)?(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_LISTED = 10
_SCANNED = 200


class CommandRequest(Struct, frozen=True):
    """A command as a person sent it, and where."""

    name: str
    words: str
    key: SessionKey
    source: Source
    context: EngineContext
    moment: Moment


class CommandResult(Struct, frozen=True):
    """The reply to the person, and the compaction that starts after the commit."""

    text: str
    compaction: CompactionRequest | None = None


class ChatCommand(Struct, frozen=True):
    """One entry of the registry."""

    name: str
    usage: str
    help: str
    run: Callable[[Tx, CommandRequest], CommandResult]


class CommandCall(Struct, frozen=True):
    """A command that was found in a message, and the words after it."""

    name: str
    words: str
    command: ChatCommand


REGISTRY: dict[str, ChatCommand] = {}


def command(
    name: str, usage: str, help: str
) -> Callable[
    [Callable[[Tx, CommandRequest], CommandResult]], Callable[[Tx, CommandRequest], CommandResult]
]:
    """Register a function as a command."""

    def register(
        run: Callable[[Tx, CommandRequest], CommandResult],
    ) -> Callable[[Tx, CommandRequest], CommandResult]:
        REGISTRY[name] = ChatCommand(name, usage, help, run)
        return run

    return register


def find(text: str) -> CommandCall | None:
    """The command a message is, or None: an unknown `/word` is for the agent."""
    match = _FORM.match(text.strip())
    known = None if match is None else REGISTRY.get(match[1].lower())
    if match is None or known is None:
        return None
    return CommandCall(known.name, (match[2] or "").strip(), known)


def names() -> tuple[str, ...]:
    """Every command as a person types it."""
    return tuple(f"/{name}" for name in REGISTRY)


def run(
    tx: Tx,
    context: EngineContext,
    call: CommandCall,
    key: SessionKey,
    source: Source,
    *,
    moment: Moment,
) -> CommandResult:
    """Run a command in the transaction that notes it; a refusal is an answer."""
    request = CommandRequest(call.name, call.words, key, source, context, moment)
    try:
        return call.command.run(tx, request)
    except SessionaryError as error:
        return CommandResult(str(error))


@command("new", "/new [name]", "begin a new session")
def new(tx: Tx, request: CommandRequest) -> CommandResult:
    """End the session; the next message opens another, perhaps with a name."""
    wanted = _free_title(tx, request)
    ended = routing.reset(tx, request.key, moment=request.moment)
    routing.set_next_title(tx, request.key, wanted)
    named = "" if wanted is None else f" called {wanted}"
    left = "" if ended is None else f"Left {_name(ended)}; /resume goes back. "
    return CommandResult(f"{left}Your next message begins a new session{named}.")


@command("resume", "/resume [name|n|id]", "go on with an earlier session")
def resume(tx: Tx, request: CommandRequest) -> CommandResult:
    """Point this chat at an earlier session, or list those there are."""
    if not request.words:
        return listing(tx, request)
    target = _target(tx, request)
    routing.switch(tx, request.key, target, moment=request.moment)
    return CommandResult(f"Now in {_name(target)}, {_count(target.message_count, 'message')}.")


@command("sessions", "/sessions [words]", "list earlier sessions")
def listing(tx: Tx, request: CommandRequest) -> CommandResult:
    """The sessions this person may go on with, newest first."""
    words = request.words.casefold() if request.name == "sessions" else ""
    found = [
        head for head in _visible(tx, request) if words in f"{head.title} {head.preview}".casefold()
    ]
    if not found:
        return CommandResult("There are no earlier sessions here.")
    lines = [f"{place}. {_name(head)}" for place, head in enumerate(found[:_LISTED], 1)]
    return CommandResult("\n".join([*lines, "Send /resume with a number or a name."]))


@command("title", "/title [name]", "name this session")
def title(tx: Tx, request: CommandRequest) -> CommandResult:
    """Say or set the title."""
    head = _current(tx, request)
    if not request.words:
        return CommandResult(f"This is {_name(head)}.")
    wanted = _free_title(tx, request, holder=head.id) or request.words
    renamed = edit.rename(tx, head.id, wanted, profile=request.key.profile)
    return CommandResult(f"This session is now called {renamed.title}.")


@command("undo", "/undo [n]", "take back the last messages")
def undo(tx: Tx, request: CommandRequest) -> CommandResult:
    """Take back the last messages of the person, and the answers to them."""
    head = _current(tx, request)
    count = _number(request.words, default=1)
    after = revise.undo(
        tx, head.id, profile=request.key.profile, rounds=count, at=request.moment.now
    )
    left = _count(after.message_count, "message")
    return CommandResult(f"Taken back; {left} left. Nothing was deleted.")


@command("retry", "/retry", "ask the last question again")
def retry(tx: Tx, request: CommandRequest) -> CommandResult:
    """Take back the last answer and put the question again, unless a budget would refuse it."""
    head = _current(tx, request)
    # A second /retry means the question that is waiting already, not the one before it. The command
    # itself is in the inbox too.
    inbox = arrivals.waiting(tx, str(request.key), profile=head.profile, limit=2)
    if any(find(each.message.text) is None for each in inbox):
        raise Conflict("A message is waiting for its answer here; nothing was changed.")
    prompt = _last_prompt(tx, head)
    _check_budgets(tx, request, head)
    revise.retract(
        tx,
        head.id,
        profile=head.profile,
        after=prompt[0] - 1,
        at=request.moment.now,
        reason="retry",
    )
    receive.receive(
        tx,
        request.key,
        request.source,
        prompt[1],
        moment=request.moment,
        idempotency_key=f"retry/{request.moment.new_id()}",
    )
    return CommandResult("Trying again.")


@command("branch", "/branch [name]", "go on in a copy of this session")
def branch(tx: Tx, request: CommandRequest) -> CommandResult:
    """Fork the session and go on in the fork; the old one stays as it is."""
    head = _current(tx, request)
    if head.running:
        raise Conflict("A turn is running here; nothing was changed. Wait for it or /stop it.")
    title = _free_title(tx, request)
    made = edit.fork(tx, head.id, profile=head.profile, moment=request.moment, title=title)
    routing.switch(tx, request.key, made, moment=request.moment)
    return CommandResult(f"Now in {_name(made)}; the old one stays as it was. /resume goes back.")


@command("compact", "/compact [focus]", "shorten what the agent has to remember")
def compact(tx: Tx, request: CommandRequest) -> CommandResult:
    """Have a summary made of the session, unless it is too short for one."""
    head, context, source = _current(tx, request), request.context, request.source
    found = read_session_context(tx, head.id, profile=head.profile)
    plan_as_asked(context.agent_of(head), found)
    # The terminal waits for the outcome and prints it.
    is_told = source.platform == TERMINAL or notices.can_reach(context, source)
    return CommandResult(
        "Compacting; you will be told."
        if is_told
        else "Compacting. When it is done, this session has an entry with the summary.",
        CompactionRequest(head.id, request.words or None, source),
    )


@command("pin", "/pin [n|list]", "keep your last message, or the nth from the end, for the model")
def pin(tx: Tx, request: CommandRequest) -> CommandResult:
    """Pin the person's last message, or the nth from the end; or list what is pinned."""
    head = _current(tx, request)
    if request.words == "list":
        return CommandResult(_pin_list(tx, head))
    seq, text = _message_from_end(tx, head, request.words)
    pins.pin_message(
        tx, head.id, seq, profile=head.profile, by=request.source.person, moment=request.moment
    )
    return CommandResult(
        f"Pinned “{one_line(text, 60)}”: the model reads it however long this session becomes."
    )


@command("unpin", "/unpin [n]", "unpin the last pinned message, or the nth of /pin list")
def unpin(tx: Tx, request: CommandRequest) -> CommandResult:
    """Unpin a message."""
    head = _current(tx, request)
    pinned = pins.list_pinned_messages(tx, head.id, profile=head.profile)
    if not pinned:
        return CommandResult("Nothing is pinned here.")
    place = _number(request.words, default=len(pinned))
    if place > len(pinned):
        raise NotFound(f"There is no pinned message {place}; /pin list shows what is pinned.")
    entry = pinned[place - 1]
    pins.unpin_message(
        tx,
        head.id,
        entry.seq,
        profile=head.profile,
        by=request.source.person,
        moment=request.moment,
    )
    return CommandResult(f"Unpinned “{_first_words(entry)}”.")


@command("agent", "/agent [name|default]", "which agent answers in this session")
def agent(tx: Tx, request: CommandRequest) -> CommandResult:
    """Say or choose the agent."""
    catalog, current = request.context.catalog, _choice(tx, request)
    if not request.words:
        offer = catalog.offer(current, platform=request.source.platform)
        name = request.context.agent_for(request.source, None).name if offer is None else offer.name
        others = ", ".join(sorted(catalog.agents)) or name
        return CommandResult(f"The agent here is {name}. There are: {others}.")
    return _choose(tx, request, "agent", None if request.words == "default" else request.words)


@command("model", "/model [name|default]", "which model answers in this session")
def model(tx: Tx, request: CommandRequest) -> CommandResult:
    """Say or choose the model."""
    if not request.words:
        current = _choice(tx, request)
        offer = request.context.catalog.offer(current, platform=request.source.platform)
        chosen = current.get("model") or (None if offer is None else offer.model)
        here = (
            "The agent here picks its model itself."
            if chosen is None
            else f"The model here is {chosen}."
        )
        models = () if offer is None else offer.models
        return CommandResult(f"{here} There are: {', '.join(models)}." if models else here)
    return _choose(tx, request, "model", None if request.words == "default" else request.words)


@command("persona", "/persona [name|none]", "which persona the agent has in this session")
def persona(tx: Tx, request: CommandRequest) -> CommandResult:
    """Say or choose the persona."""
    if not request.words:
        personas = request.context.catalog.personas.values()
        names = [f"{each.name} ({each.title})" if each.title else each.name for each in personas]
        there_are = f"There are: {', '.join(names)}." if names else "None is configured."
        chosen = _choice(tx, request).get("persona")
        here = "There is no persona here." if chosen is None else f"The persona here is {chosen}."
        return CommandResult(f"{here} {there_are}")
    return _choose(tx, request, "persona", None if request.words == "none" else request.words)


@command("tools", "/tools [names|all|none]", "which tools the agent may use in this session")
def tools(tx: Tx, request: CommandRequest) -> CommandResult:
    """Say or choose the tools: names or patterns, separated by spaces or commas."""
    if not request.words:
        current = _choice(tx, request)
        catalog = request.context.catalog
        offer = catalog.offer(current, platform=request.source.platform)
        known = None if offer is None else catalog.known_tools(offer.name)
        there_are = "" if known is None else f" There are: {', '.join(known) or 'none'}."
        return CommandResult(
            f"The agent may use {choices.describe('tools', current.get('tools'))} here.{there_are}"
        )
    words = request.words.replace(",", " ").split()
    wanted = {"all": None, "none": []}.get(request.words, words)
    return _choose(tx, request, "tools", wanted)


@command("usage", "/usage", "what this session has used")
def usage(tx: Tx, request: CommandRequest) -> CommandResult:
    """Tokens and cost of the session, and what is left of the budgets of the person, the channel and the session."""
    head = _current(tx, request)
    used = head.usage
    cost = "unknown" if used.cost_microusd is None else f"${used.cost_microusd / 1e6:.4f}"
    status = "" if used.cost_status is None else f" ({used.cost_status})"
    tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
    known = request.context.settings.budgets
    accounts = read_accounts(
        tx,
        (*budgets.scopes_of(request.source), *budgets.turn_scopes(known, session_id=head.id)),
        known,
        profile=request.key.profile,
        now=request.moment.now,
    )
    lines = [f"{_count(used.calls, 'model call')}, {tokens}, cost {cost}{status}."]
    lines += [notices.budget_left(account.status()) for account in accounts.values()]
    return CommandResult("\n".join(lines))


@command("status", "/status", "where you are")
def status(tx: Tx, request: CommandRequest) -> CommandResult:
    """The session, its state and its policy."""
    head = _current(tx, request)
    policy = request.context.policies.choose(request.source)
    ends = policy.next_due(last_active=head.last_active_at)
    lines = [
        f"Session {_name(head)}, {_count(head.message_count, 'message')}.",
        "A turn is running." if head.running else "No turn is running.",
        "It does not reset by itself."
        if ends is None
        else f"It resets after {ends:%Y-%m-%d %H:%M} UTC if nobody writes.",
    ]
    return CommandResult("\n".join(lines))


@command("stop", "/stop", "stop the turn that runs")
def stop(tx: Tx, request: CommandRequest) -> CommandResult:
    """Ask the running turn to stop, in whatever process it runs."""
    head = _current(tx, request)
    if not turns.ask_to_stop(tx, head.no, reason="stopped by you"):
        return CommandResult("No turn is running.")
    return CommandResult("Stopping.")


@command("steer", "/steer text", "give the running turn a message at its next step")
def steer(tx: Tx, request: CommandRequest) -> CommandResult:
    """Give a message to the running turn; an agent that cannot be steered reads it after its turn."""
    if not request.words:
        raise BadInput("Write what the agent shall read: /steer text.")
    if _submit(tx, request, "steer"):
        return CommandResult("The agent reads it at its next step, or else in the next turn.")
    return CommandResult("No turn is running: this is a new message.")


@command("queue", "/queue [text]", "let a message wait for the next turn; or list what waits")
def queue(tx: Tx, request: CommandRequest) -> CommandResult:
    """Let a message wait until the running turn has ended, whatever the settings say; without one, list those."""
    if request.words:
        is_running = _submit(tx, request, "queue")
        return CommandResult(
            "It waits for the next turn."
            if is_running
            else "No turn is running: it is answered now."
        )
    arrived = arrivals.waiting(tx, str(request.key), profile=request.key.profile, limit=_LISTED + 1)
    waiting = [each.message for each in arrived if find(each.message.text) is None]
    if not waiting:
        return CommandResult("No message is waiting.")
    head = routing.get_current(tx, request.key)
    is_running = head is not None and head.running
    by_default = request.context.settings.while_running is WhileRunning.STEER
    lines = [
        f"{place}. {one_line(each.text, 80)}"
        + (
            " (steers the running turn)"
            if is_running and turns.steers(each, by_default=by_default)
            else ""
        )
        for place, each in enumerate(waiting[:_LISTED], 1)
    ]
    return CommandResult("\n".join(["Waiting:", *lines]))


def _submit(tx: Tx, request: CommandRequest, wish: str) -> bool:
    """Store the words after a command as a message; return whether a turn is running that it waits for."""
    head = routing.get_current(tx, request.key)
    receive.receive(
        tx,
        request.key,
        request.source,
        message("user", request.words, extra={turns.WHILE_RUNNING: wish}),
        moment=request.moment,
        idempotency_key=f"{wish}/{request.moment.new_id()}",
    )
    return head is not None and head.running


@command("sethome", "/sethome", "make this chat the default for deliveries")
def sethome(tx: Tx, request: CommandRequest) -> CommandResult:
    """Make this channel its platform's home."""
    channel = request.source.channel
    if channel is None:
        raise BadInput("This chat has no address to deliver to.")
    if not policy.is_owner(request.context, request.source):
        # What is delivered there, questions to the owners too, would come to whoever says so.
        raise NotAllowed(
            "Only an owner can make this chat the home channel: the person in `owners` of "
            f"[access.{channel.platform}] in sessionary.toml. Nothing was changed."
        )
    home = HomeAddress(
        channel.platform, channel.chat_id, request.source.chat_name, channel.thread_id
    )
    access.set_home(tx, home, profile=request.key.profile, moment=request.moment)
    return CommandResult(f"This chat is now the home channel of {channel.platform}.")


@command("whoami", "/whoami", "how you are known here")
def whoami(_: Tx, request: CommandRequest) -> CommandResult:
    """The person's own ids, and the key of this conversation."""
    person = request.source.person
    who = (
        "nobody in particular"
        if person is None
        else f"{one_line(person.label, 64)} ({one_line(person.id, 64)})"
    )
    return CommandResult(f"You are {who} on {request.source.platform}. Conversation: {request.key}")


@command("help", "/help", "this list")
def help_(_: Tx, __: CommandRequest) -> CommandResult:
    """Every command in one line each."""
    return CommandResult("\n".join(f"{each.usage} - {each.help}" for each in REGISTRY.values()))


def _current(tx: Tx, request: CommandRequest) -> SessionHead:
    head = routing.get_current(tx, request.key)
    if head is None or not head.is_open:
        raise NotFound("There is no session here yet; write something first.")
    return head


def _check_budgets(tx: Tx, request: CommandRequest, head: SessionHead) -> None:
    """Raise `NotAllowed` if a budget is used up that a message of this person to the session counts against."""
    known, agent = request.context.settings.budgets, request.context.agent_of(head)
    scopes = budgets.scopes_in_session(known, (request.source,), agent=agent, head=head)
    used_up = budgets.find_used_up(
        tx, known, scopes, agent=agent, head=head, now=request.moment.now
    )
    if used_up is not None:
        raise NotAllowed(notices.budget_used_up(used_up, outcome="nothing was changed"))


def _choice(tx: Tx, request: CommandRequest) -> Mapping[str, Any]:
    """What was chosen for the session here, or for the one that the next message begins."""
    head = routing.get_current(tx, request.key)
    if head is None or not head.is_open:
        return routing.get_next_choice(tx, request.key)
    return choices.with_pending(head.settings)


def _choose(tx: Tx, request: CommandRequest, name: str, value: Any) -> CommandResult:
    """Choose something for the session here, or for the one that the next message begins."""
    _check_may_choose(request, ChoiceName(name))
    source, context = request.source, request.context
    head = routing.get_current(tx, request.key)
    if head is None or not head.is_open:
        routing.choose_next(
            tx,
            request.key,
            {name: value},
            platform=source.platform,
            by=source.person,
            catalog=context.catalog,
        )
        chosen = routing.get_next_choice(tx, request.key).get(name)
        return CommandResult(f"Your next session uses {choices.describe(name, chosen)}.")
    after = choice.choose(
        tx, head, {name: value}, by=source.person, moment=request.moment, catalog=context.catalog
    )
    chosen = choices.chosen_in(after.settings)[name]
    starts = "From the next turn on, this" if after.running else "This"
    return CommandResult(f"{starts} session uses {choices.describe(name, chosen)}.")


def _check_may_choose(request: CommandRequest, name: ChoiceName) -> None:
    """Refuse what this person may not choose; those on trusted platforms may choose everything."""
    source = request.source
    if source.platform in TRUSTED:
        return
    policy = request.context.settings.access.get(source.platform, AccessPolicy())
    if name not in policy.may_choose:
        raise NotAllowed(
            f"Only the owner may choose the {name} here, at the terminal or in the workbench. "
            f"may_choose in [access.{source.platform}] lets others choose."
        )
    person = source.person
    is_listed = person is not None and bool({person.id, person.stable_id} & policy.allow)
    if source.chat_type != ChatType.DM and not is_listed:
        raise NotAllowed(
            f"In a group only people in allow of [access.{source.platform}], and the owner, may choose the {name}."
        )


def _visible(tx: Tx, request: CommandRequest) -> list[SessionHead]:
    where = request.source.platform
    filters = listing_of.SessionFilters(
        folder=SessionFolder.CHATS, platform=None if where in TRUSTED else where
    )
    page = listing_of.list_sessions(tx, filters, profile=request.key.profile, limit=_SCANNED)
    return [head for head in page.items if _may_see(head, request)]


def _target(tx: Tx, request: CommandRequest) -> SessionHead:
    if request.words.isdecimal() and len(request.words) <= len(str(_LISTED)):
        found = _visible(tx, request)
        place = int(request.words)
        if not 1 <= place <= min(len(found), _LISTED):
            raise NotFound(f"There is no session {place} in the list.")
        return found[place - 1]
    # First among what this person may see: another's title must not hide theirs.
    seen = _visible(tx, request)
    named = [head for head in seen if head.title == request.words]
    numbered = [
        (number, head.no, head)
        for head in seen
        if head.title and (number := matches_continuation(request.words, head.title)) is not None
    ]
    if named or numbered:
        return named[0] if named else max(numbered)[2]
    return _by_id(tx, request)


def _by_id(tx: Tx, request: CommandRequest) -> SessionHead:
    """A session by its id or a title; what this person may not see is not there."""
    try:
        found = [read.find(tx, request.words, profile=request.key.profile)]
    except Ambiguous as error:
        heads = (table.get(tx, id, profile=request.key.profile) for id in error.candidates)
        found = [head for head in heads if head is not None]
    mine = [head for head in found if _may_see(head, request)]
    if not mine:
        raise read.not_found_error(request.words)
    if len(mine) > 1:
        names = ", ".join(f"{head.id} {_name(head)}" for head in mine)
        raise Ambiguous(f"{request.words!r} is the beginning of several ids: {names}.")
    return mine[0]


def _may_see(head: SessionHead, request: CommandRequest) -> bool:
    """Whether the caller may see a session; the owner, at the terminal or in the workbench, sees the whole profile."""
    return request.source.platform in TRUSTED or routing.may_resume(head, request.source)


def _free_title(tx: Tx, request: CommandRequest, *, holder: str = "") -> str | None:
    """The title that was asked for; numbered if one holds it whom this person may not see."""
    wanted = clean_title(request.words)
    if wanted is None:
        return None
    profile = request.key.profile
    id = table.id_by_title(tx, wanted, profile=profile)
    other = None if id is None or id == holder else table.get(tx, id, profile=profile)
    if other is not None and _may_see(other, request):
        titles.check_free(tx, wanted, profile=profile, except_for=holder)
    return titles.find_free_title(tx, wanted, profile=profile, except_for=holder)


def _last_prompt(tx: Tx, head: SessionHead) -> tuple[int, Message]:
    window = read.read_window(tx, head.id, profile=head.profile, limit=200)
    for entry in reversed(window.entries):
        if isinstance(entry.body, Message) and entry.body.role is Role.USER:
            return entry.seq, entry.body
    raise Conflict("There is nothing to ask again.")


def _message_from_end(tx: Tx, head: SessionHead, words: str) -> tuple[int, str]:
    """The person's last message, or with a number the message that is so far from the end."""
    wanted = _number(words, default=1)
    window = read.read_window(tx, head.id, profile=head.profile, limit=1000)
    roles = (Role.USER, Role.ASSISTANT) if words else (Role.USER,)
    found = [
        (entry.seq, entry.body.text)
        for entry in window.entries
        if isinstance(entry.body, Message) and entry.body.role in roles and entry.body.text.strip()
    ]
    if wanted > len(found):
        raise NotFound(f"Only {_count(len(found), 'message')} can be pinned here.")
    return found[-wanted]


def _pin_list(tx: Tx, head: SessionHead) -> str:
    pinned = pins.list_pinned_messages(tx, head.id, profile=head.profile)
    if not pinned:
        return "Nothing is pinned here. /pin pins your last message."
    return "\n".join(f"{place}. {_first_words(entry)}" for place, entry in enumerate(pinned, 1))


def _first_words(entry: Entry) -> str:
    return one_line(entry.body.text if isinstance(entry.body, Message) else "", 60)


def _count(number: int, what: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _number(words: str, *, default: int) -> int:
    if not words:
        return default
    if not words.isdecimal() or not 1 <= int(words[:4]) <= 999:
        raise BadInput(f"{words!r} is no number from 1 to 999.")
    return int(words)


def _name(head: SessionHead) -> str:
    name = head.shown_title
    return f"“{one_line(name, 60)}”"
