"""Operations on a world, each chosen by two small numbers: the steps of a generated scenario."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from typing import Any

from msgspec import Struct

from sessionary.actions import access, outbox, sweep, turns, usage
from sessionary.actions.sessions import edit, holds, projects, read, revise, routing, titles
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.actions.turns import Begun, Ending, TurnReply
from sessionary.errors import SessionaryError
from sessionary.model.message import Message, Role, Text, ToolCall, ToolResult, message
from sessionary.model.prompt import HomeAddress
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.session import Kind, SessionFolder, TitleBy
from sessionary.model.source import Channel, ChatType, Source
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, retention
from tests.support.dead_turns import interrupt_dead_turns
from tests.support.world import World

SOURCES = (
    Source("telegram", "1", user_id="ann"),
    Source("telegram", "2", user_id="bob", chat_type=ChatType.GROUP),
    Source("Slack", "É", user_id="ann"),
    Source("telegram", "1", user_id="ann", platform_message_id="7"),
)
TEXTS = ("hello", "", "Émile 🫠", "lone \ud800", "nul \x00", "plan", "x" * 40_000, "plan #2", "[]%")
IDLE = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(hours=1))
DAILY = ResetPolicy(mode=ResetMode.DAILY)
POLICIES = (ResetPolicy(), IDLE, DAILY)
CHANNELS = (Channel("telegram", "1"), Channel("telegram", "2", "t"), Channel("Slack", "É"))


@dataclass
class Story:
    """What exists so far in one world: the ids that later operations may use."""

    world: World
    ids: list[str] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def session(self, number: int) -> str:
        return self.ids[number % len(self.ids)] if self.ids else "nowhere"

    def turn(self, number: int) -> Begun | None:
        return self.begun[number % len(self.begun)] if self.begun else None


def _pick(options: Any, number: int) -> Any:
    return options[number % len(options)]


def open_session(s: Story, a: int, b: int) -> Any:
    kind, source = _pick(list(Kind), a), _pick(SOURCES, b)
    s.ids.append(s.world.session(_pick(TEXTS, b), "reply", source=source, kind=kind))
    return s.ids[-1]


def say(s: Story, a: int, b: int) -> Any:
    idempotency_key = f"key {b}" if b % 3 == 0 else None
    return s.world.append_text(
        s.session(a), _pick(TEXTS, b), role=_pick(list(Role), b), idempotency_key=idempotency_key
    )


def say_tools(s: Story, a: int, b: int) -> Any:
    call = Message(Role.ASSISTANT, (ToolCall(f"c{b % 2}", "find", {"q": b}),), model="m")
    answer = Message(Role.TOOL, (ToolResult(f"c{b % 2}", {"found": b}),))
    return [s.world.append(s.session(a), answer_text) for answer_text in (call, answer)][
        : 1 + b % 2
    ]


def arrive(s: Story, a: int, b: int) -> Any:
    return s.world.arrive(_pick(SOURCES, a), _pick(TEXTS, b))


def begin(s: Story, a: int, b: int) -> Any:
    begun = s.world.begin(_pick(SOURCES, a), policy=_pick(POLICIES, b))
    if begun is not None:
        s.begun.append(begun)
        s.ids.append(begun.route.session_id)
    return begun


def begin_in(s: Story, a: int, b: int) -> Any:
    begun = s.world.begin_in(s.session(a), _pick((None, *TEXTS), b))
    s.begun.append(begun)
    return begun


def step(s: Story, a: int, b: int) -> Any:
    if (begun := s.turn(a)) is None:
        return None
    at = s.world.clock.tick()
    new_message = message("assistant", _pick(TEXTS, b))
    return s.world.write(turns.append_step, begun.lease, new_message, profile="main", at=at)


def checkpoint(s: Story, a: int, b: int) -> Any:
    if (begun := s.turn(a)) is None:
        return None
    return s.world.write(turns.checkpoint, begun.lease, _pick(TEXTS, b))


def renew(s: Story, a: int, b: int) -> Any:
    if (begun := s.turn(a)) is None:
        return None
    return s.world.write(turns.renew, begun.lease, seconds=b * 100, now=s.world.clock.now())


def finish(s: Story, a: int, b: int) -> Any:
    if (begun := s.turn(a)) is None:
        return None
    ending = Ending(
        messages=(message("assistant", _pick(TEXTS, b)),),
        usage=(Usage(_pick(("m", None, "é"), b), b, cost_microusd=_pick((None, b), b)),),
        replies=(TurnReply(_pick(CHANNELS, b), (Text("hi"),)),),
    )
    return s.world.write(turns.end, begun.lease, ending, profile="main", moment=s.world.moment())


def interrupt(s: Story, a: int, b: int) -> Any:
    if (begun := s.turn(a)) is None:
        return None
    turn, moment = begun.lease.turn_id, s.world.moment()
    return s.world.write(
        turns.interrupt, turn, profile="main", moment=moment, reason=_pick(TEXTS, b)
    )


def sweep_turns(s: Story, a: int, b: int) -> Any:
    return s.world.write(interrupt_dead_turns, moment=s.world.moment())


def sweep_sessions(s: Story, a: int, b: int) -> Any:
    policies = Policies(_pick(POLICIES, a), by_platform={"Slack": _pick(POLICIES, b)})
    ended = s.world.write(sweep.end_expired_sessions, policies, moment=s.world.moment())
    return sorted(ended, key=lambda each: each.session_id)


def finalize(s: Story, a: int, b: int) -> Any:
    due = s.world.read(sweep.list_to_finalize)
    for each in due[: 1 + a % 2]:
        if b % 2:
            s.world.write(sweep.mark_finalized, each, moment=s.world.moment())
        else:
            s.world.write(sweep.mark_finalize_failed, each, error="x", moment=s.world.moment())
    return sorted((each.id, each.tries) for each in due)


def end(s: Story, a: int, b: int) -> Any:
    reason, moment = _pick(TEXTS, b)[:20] or "closed", s.world.moment()
    return s.world.write(edit.end, s.session(a), profile="main", moment=moment, reason=reason)


def reopen(s: Story, a: int, b: int) -> Any:
    return s.world.write(edit.reopen, s.session(a), profile="main")


def put_away(s: Story, a: int, b: int) -> Any:
    how, name = _pick(("trash", "restore", "archive", "bring back", "pin"), b), s.session(a)
    match how:
        case "trash":
            return s.world.write(edit.trash, name, profile="main", moment=s.world.moment())
        case "restore":
            return s.world.write(edit.restore, name, profile="main")
        case "pin":
            return s.world.write(edit.pin, name, profile="main", pinned=a % 2 == 0)
    return s.world.write(edit.archive, name, profile="main", archived=how == "archive")


def rename(s: Story, a: int, b: int) -> Any:
    by = _pick(list(TitleBy), a + b)
    return s.world.write(edit.rename, s.session(a), _pick(TEXTS, b), profile="main", by=by)


def name_automatically(s: Story, a: int, b: int) -> Any:
    def named(tx: Tx) -> str | None:
        head = read.get_head(tx, s.session(a), profile="main")
        return titles.name_automatically(tx, head, _pick(TEXTS, b))

    return s.world.write(named)


def label(s: Story, a: int, b: int) -> Any:
    labels = [_pick(TEXTS, a)[:9], _pick(TEXTS, b)[:9]]
    return s.world.write(edit.set_labels, s.session(a), labels, profile="main")


def fork(s: Story, a: int, b: int) -> Any:
    head = s.world.fork(s.session(a), _pick((None, 1, 2, 5), b))
    s.ids.append(head.id)
    return head


def take_back(s: Story, a: int, b: int) -> Any:
    at = s.world.clock.tick()
    if b % 2:
        return s.world.write(revise.undo, s.session(a), profile="main", rounds=b % 4, at=at)
    return s.world.write(revise.retract, s.session(a), profile="main", after=b % 5, at=at)


def summarise(s: Story, a: int, b: int) -> Any:
    at, summary = s.world.clock.tick(), _pick(TEXTS, b)
    return s.world.write(
        revise.compact, s.session(a), summary, profile="main", through=b % 6, at=at
    )


def remove(s: Story, a: int, b: int) -> Any:
    if b % 2:
        return s.world.write(sweep.empty_trash, moment=s.world.moment())
    return s.world.purge(s.session(a))


def switch(s: Story, a: int, b: int) -> Any:
    def switched(tx: Tx) -> Any:
        target = read.get_head(tx, s.session(a), profile="main")
        key = s.world.key(_pick(SOURCES, b))
        return routing.switch(tx, key, target, moment=s.world.moment())

    return s.world.write(switched)


def reset(s: Story, a: int, b: int) -> Any:
    return s.world.write(routing.reset, s.world.key(_pick(SOURCES, a)), moment=s.world.moment())


def hold(s: Story, a: int, b: int) -> Any:
    if b % 2:
        return s.world.write(holds.release, s.session(a), "h", profile="main")
    until = s.world.clock.now() + timedelta(hours=b)
    return s.world.write(holds.hold, s.session(a), "h", profile="main", until=until)


def use(s: Story, a: int, b: int) -> Any:
    def used(tx: Tx) -> Any:
        no = read.get_head(tx, s.session(a), profile="main").no
        call = Usage(_pick(("m", "M", None, "é"), b), b, cost_microusd=_pick((None, 1, 0), b))
        if b % 2:
            return usage.set_running_total(tx, no, call, profile="main", moment=s.world.moment())
        named = Usage(call.model, b, call_id=f"call {b % 4}")
        return usage.record(tx, no, named, profile="main", moment=s.world.moment())

    return s.world.write(used)


def report(s: Story, a: int, b: int) -> Any:
    groups = ("day", "model", "provider", "source", "project", "session", "nonsense")
    return s.world.read(usage.sum_usage, _pick(groups, b), profile="main")


def deliver_some(s: Story, a: int, b: int) -> Any:
    parts = (Text(_pick(TEXTS, a)),)
    made = s.world.write(
        outbox.enqueue, _pick(CHANNELS, b), parts, profile="main", moment=s.world.moment()
    )
    s.sent.append(made)
    return made


def claim(s: Story, a: int, b: int) -> Any:
    now, holder = s.world.clock.tick(), f"h{a % 2}"
    got = s.world.write(outbox.claim, holder=holder, seconds=b * 9, now=now, limit=1 + a % 3)
    s.sent.extend(each.id for each in got)
    return got


def settle(s: Story, a: int, b: int) -> Any:
    if not s.sent:
        return None
    name, holder, now = _pick(s.sent, a), f"h{b % 2}", s.world.clock.tick()
    later = now + timedelta(seconds=b)
    match b % 4:
        case 0:
            done: Any = s.world.write(outbox.mark_sent, name, holder=holder, at=now)
        case 1:
            done = s.world.write(
                outbox.mark_failed, name, holder=holder, not_before=later, reason=_pick(TEXTS, a)
            )
        case 2:
            done = s.world.write(outbox.abandon, name, reason=_pick(TEXTS, a))
        case _:
            channel, moment = _pick(CHANNELS, a), s.world.moment()
            home = HomeAddress(channel.platform, channel.chat_id)
            s.world.write(access.set_home, home, profile="main", moment=moment)
            given: dict[str, Any] = {
                "profile": "main",
                "moment": moment,
                "platforms": {channel.platform},
            }
            done = s.world.write(outbox.redirect, name, channel, **given)
    return done, s.world.read(deliveries.get, name, profile="main")


def project(s: Story, a: int, b: int) -> Any:
    name = _pick(("A", "b", "É", ""), a)
    match b % 4:
        case 0:
            return s.world.write(projects.add, name, profile="main", moment=s.world.moment())
        case 1:
            return s.world.write(projects.remove, name, profile="main")
        case 2:
            return s.world.read(projects.list_projects, profile="main")
    return s.world.write(projects.move_session, s.session(b), name or None, profile="main")


def list_some(s: Story, a: int, b: int) -> Any:
    narrowed = (
        SessionFilters(),
        SessionFilters(folder=_pick(list(SessionFolder)[:4], a)),
        SessionFilters(platform="telegram"),
        SessionFilters(pinned=True),
        SessionFilters(is_open=a % 2 == 0),
        SessionFilters(text=_pick(TEXTS, a)),
        SessionFilters(model="m", since=s.world.clock.now() - timedelta(hours=1)),
        SessionFilters(project="A"),
    )
    found, cursor = [], None
    while True:
        page = s.world.read(
            list_sessions, _pick(narrowed, b), profile="main", limit=2, cursor=cursor
        )
        found.append((page.items, page.hidden))
        if (cursor := page.next) is None:
            return found


def look(s: Story, a: int, b: int) -> Any:
    name = s.session(a)
    where: tuple[dict[str, int], ...] = ({}, {"around": b}, {"before": b}, {"after": b})
    return (
        s.world.read(read.read_window, name, profile="main", limit=3, **_pick(where, b)),
        s.world.context(name),
        s.world.read(read.list_retracted, name, profile="main"),
    )


def find(s: Story, a: int, b: int) -> Any:
    refs = (*TEXTS, s.session(a), s.session(a)[:12], s.session(a)[:24], "01", "\x00")
    return s.world.read(read.find, _pick(refs, b), profile="main")


def prune(s: Story, a: int, b: int) -> Any:
    found = s.world.read(retention.prunable, profile="main", before=s.world.clock.now())
    return [name for _, name in found]


def wait(s: Story, a: int, b: int) -> Any:
    return s.world.clock.tick(_pick((1, 40, 3700, 90_000, 2_700_000, -5000), b))


OPERATIONS: tuple[Callable[[Story, int, int], Any], ...] = (
    *(open_session, say, say, arrive, begin, begin, finish, finish, look),
    *(say_tools, begin_in, step, checkpoint, renew, interrupt, sweep_turns, sweep_sessions),
    *(finalize, end, reopen, put_away, put_away, rename, name_automatically, label, fork, fork),
    *(take_back, take_back, summarise, remove, switch, switch, reset, hold, use, use, report),
    *(deliver_some, claim, claim, settle, project, list_some, find, prune, wait, wait),
)
# Row numbers differ between the databases: PostgreSQL leaves gaps after a rollback.
INTERNAL_NUMBERS = {"no", "session_no"}


def do(story: Story, operation: Callable[[Story, int, int], Any], a: int, b: int) -> Any:
    """Run an operation; return its outcome in a form that can be compared."""
    try:
        return plain(operation(story, a, b))
    except SessionaryError as error:
        return type(error), str(error), error.committed


def plain(value: Any) -> Any:
    if isinstance(value, Struct) or (is_dataclass(value) and not isinstance(value, type)):
        named = (
            value.__struct_fields__
            if isinstance(value, Struct)
            else [each.name for each in fields(value)]
        )
        return {name: plain(getattr(value, name)) for name in named if name not in INTERNAL_NUMBERS}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
