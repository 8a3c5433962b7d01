"""`sessionary questions` and `policy`: what turns ask people, and which tool calls must be asked about."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from sessionary.actions import questions as actions
from sessionary.cli import times
from sessionary.cli.console import Column, Console, count, read_input
from sessionary.cli.sessions.refs import REF, find_head
from sessionary.cli.tree import command, group, pass_console
from sessionary.config.engine import Approvers, OnExpiry, PolicyRule, ToolDecision, read_engine
from sessionary.errors import Ambiguous, BadInput, Conflict, NotFound
from sessionary.formats.answer_input import read_answer
from sessionary.model import policy as policy_rules
from sessionary.model import question as rules
from sessionary.model.policy import StandingApproval
from sessionary.model.question import (
    Always,
    Answer,
    Decision,
    Question,
    QuestionKind,
    QuestionState,
)
from sessionary.model.source import TERMINAL, Channel, ChatType, Source
from sessionary.model.terminal import display_width, one_line
from sessionary.model.view import approval_json, question_json
from sessionary.store.database import Tx

if TYPE_CHECKING:
    from sessionary.app.context import AppContext
    from sessionary.engine.policy import CallExplanation

LONGEST_ROW = 300
PAGE_SIZE = 200
DEFAULTS = (
    "What no rule is about: a safe tool may run. Any other is asked about in groups, and for people who are not "
    "owners."
)

id_argument = click.argument("id", metavar="ID")


@command(
    "list",
    example="sessionary questions list\nsessionary questions list --all --session Capitals",
)
@click.option("--all", "everything", is_flag=True, help="Also those that are decided.")
@click.option("--session", "ref", type=REF, metavar="REF", help="Only of this session.")
@click.option(
    "--limit", default=50, type=click.IntRange(1, 1000), metavar="N", help="How many to list."
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_questions(
    console: Console, *, everything: bool, ref: str | None, limit: int, cursor: str | None
) -> None:
    """List questions that wait for an answer, newest first."""
    with console.open() as app:
        page = app.store.read(
            _list,
            profile=app.profile,
            session_no=None if ref is None else find_head(app, ref).no,
            only_open=not everything,
            limit=limit,
            cursor=cursor,
        ).result()
        now = app.moment().now
    columns: tuple[Column, ...] = (
        Column("ID"),
        Column("CODE"),
        Column("STATE"),
        Column("ASKED"),
        Column("AGENT"),
        Column("WHERE", flexible=True),
        Column("QUESTION", flexible=True),
    )
    rows = [
        [
            each.id,
            each.code,
            each.state,
            console.time_cell(each.asked_at, app),
            each.body.agent or "",
            each.body.where,
            summary(each),
        ]
        for each in page.items
    ]
    if not everything:
        columns = (
            Column("CODE"),
            Column("LEFT", right=True),
            Column("AGENT"),
            Column("WHERE", flexible=True),
            Column("QUESTION", flexible=True),
        )
        rows = [
            [
                each.code,
                times.left(each.expires_at, now=now),
                each.body.agent or "",
                each.body.where,
                summary(each),
            ]
            for each in page.items
        ]
    console.print_list(
        [question_json(each) for each in page.items],
        columns,
        rows,
        empty="No questions." if everything else "No question waits for an answer.",
        cursor=page.next,
    )
    if rows and not everything and not console.json:
        code = page.items[0].code
        console.note(
            f"See one with: sessionary questions show {code}; answer it with: sessionary questions answer {code} …"
        )


def _list(
    tx: Tx,
    *,
    profile: str,
    session_no: int | None,
    only_open: bool,
    limit: int,
    cursor: str | None,
) -> actions.QuestionPage:
    """Return a page of questions; of a session, the open ones are picked from all of them."""
    items: list[Question] = []
    while True:
        page = actions.list_questions(
            tx,
            profile=profile,
            limit=limit - len(items),
            session_no=session_no,
            only_open=only_open,
            cursor=cursor,
        )
        items += [each for each in page.items if each.is_open or not only_open]
        cursor = page.next
        if cursor is None or len(items) >= limit:
            return actions.QuestionPage(tuple(items), cursor)


def summary(question: Question) -> str:
    """Return what is asked on one line."""
    asked = question.asked
    if asked.kind is not QuestionKind.APPROVAL:
        return one_line(rules.visible(asked.text), LONGEST_ROW)
    given = rules.arguments_text(asked.arguments)
    return one_line(f"may {_tool(question)} be called? {given}", LONGEST_ROW)


def _tool(question: Question) -> str:
    return rules.visible(question.asked.tool or "").replace("\n", "\\n")


@command("show", example="sessionary questions show K7QM\nsessionary questions show 01jx4k --json")
@id_argument
@pass_console
def show(console: Console, id: str) -> None:
    """Show a question with everything that is known about it.

    Hidden characters in the arguments of a tool call are shown as codes. ID is a question's id, the beginning of only
    one, or its code.
    """
    with console.open() as app:
        found = _find(app, id)
        channels = app.store.read(actions.cards, found.no).result()
        zone, now = console.zone(app), app.moment().now
    if console.json:
        console.emit(question_json(found))
        return

    def at(moment: datetime) -> str:
        return times.clock_time(moment, zone=zone)

    body, answered = found.body, found.answered
    outcome = rules.outcome_text(found)
    if found.is_open:
        then = "the turn ends" if body.on_expiry is OnExpiry.END else "it counts as denied"
        left = times.left(found.expires_at, now=now)
        outcome = f"{outcome} After {at(found.expires_at)} ({left} left) {then}."
    facts = [
        ("question", found.id),
        ("code", found.code if found.is_open else ""),
        ("state", f"{found.state}. {outcome}"),
        ("asked", f"{at(found.asked_at)} by the agent {body.agent or '?'}"),
        ("where", body.where),
        ("for", body.person or ""),
        ("why", found.asked.rule),
        ("may answer", ", ".join(("the owners", *body.people))),
        ("asked in", ", ".join(dict.fromkeys(name for _, name in channels))),
        ("session", found.session_id),
        ("turn", found.turn_id),
    ]
    if answered is not None:
        facts.append(("answered", f"{at(answered.at)} by {answered.who} ({answered.platform})"))
    if found.is_started:
        facts.append(("started", "the approved call was started; it is never started again"))
    width = max(display_width(name) for name, _ in facts)
    with console.paged():
        for name, value in facts:
            if value:
                console.print(f"{name:{width}}  {one_line(value)}")
        for line in question_lines(found):
            console.print(line)
        if answered is not None:
            for line in _answer_lines(answered.answer):
                console.print(line)


def _answer_lines(answer: Answer) -> Iterator[str]:
    """Yield what an answer says, whole."""
    for label, value in (
        ("It was called with", answer.arguments),
        ("The form says", answer.values),
    ):
        if value is not None:
            yield f"\n{label}:\n\n{rules.arguments_text(value) or '(nothing)'}"
    if answer.text:
        label = "The reason is" if answer.decision is Decision.DENY else "The answer is"
        yield f"\n{label}:\n\n{rules.visible(answer.text)}"


def question_lines(question: Question) -> Iterator[str]:
    """Yield what is asked, whole and with every character visible, and the options."""
    asked = question.asked
    if asked.kind is QuestionKind.APPROVAL:
        yield f"\nMay the tool {_tool(question)} be called?"
        yield f"\n{rules.arguments_text(asked.arguments) or 'It has no arguments.'}"
        diff = rules.diff_of(asked.arguments)
        if diff is not None:
            yield f"\nThe change to the file:\n\n{diff}"
    if asked.text:
        yield f"\n{rules.visible(asked.text)}"
    if asked.kind is QuestionKind.FORM:
        yield ""
        yield from _form_lines(asked.schema or {})
    options = rules.button_answers(question)
    if options:
        yield ""
        for number, (label, _) in enumerate(options, 1):
            yield f"{number}. {one_line(rules.visible(label))}"


def _form_lines(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        facts = [str(each.get("type"))]
        if isinstance(each.get("enum"), list):
            facts.append(f"one of {', '.join(map(str, each['enum']))}")
        facts.append("required" if name in required else "optional")
        about = each.get("description") or each.get("title") or ""
        shown = f"- {name} ({', '.join(facts)}) {about}"
        yield one_line(rules.visible(shown))


@command(
    "answer",
    example="sessionary questions answer K7QM approve\n"
    'sessionary questions answer K7QM deny --reason "not today"\n'
    'sessionary questions answer K7QM approve --arguments \'{"to": "Bob"}\'\n'
    "sessionary questions answer K7QM tomorrow at nine",
)
@id_argument
@click.argument("words", nargs=-1, metavar="[ANSWER]...")
@click.option("--reason", metavar="TEXT", help="Why it is denied; the agent reads it.")
@click.option(
    "--arguments",
    metavar="JSON",
    help="Call the tool with these arguments instead; @FILE reads them from a file.",
)
@click.option(
    "--values", metavar="JSON", help="The values of a form; @FILE reads them from a file."
)
@click.option(
    "--always",
    type=click.Choice([str(each) for each in Always]),
    help="The tool needs no approval any more in this session, or for the person who asked.",
)
@click.option("--option", "number", type=click.IntRange(1), metavar="N", help="Choose an option.")
@pass_console
def answer(
    console: Console,
    id: str,
    words: tuple[str, ...],
    *,
    number: int | None,
    **asked: str | None,
) -> None:
    """Answer a question, once.

    ID is its id, the beginning of only one, or its code. ANSWER is `approve` or `deny` for a tool call; an option or
    its number; or a text. `deny` refuses every question, `-` reads a text from standard input. The turn goes on when
    its last question is answered, in any process: a running server, or `sessionary chat`.
    """
    given = _GivenAnswer(
        text=" ".join(words).strip(),
        number=number,
        reason=asked["reason"],
        arguments=_read_object("--arguments", asked["arguments"]),
        values=_read_object("--values", asked["values"]),
        always=None if asked["always"] is None else Always(asked["always"]),
    )
    if given == _GivenAnswer():
        raise click.UsageError("Say what the answer is: approve, deny, an option, or a text.")
    # Loads the engine, which the other commands do not need.
    from sessionary.app.context import user_name
    from sessionary.app.engine import build_engine
    from sessionary.engine import questions

    with console.open() as app:
        question = _find(app, id)
        if not question.is_open:
            raise Conflict(f"{rules.outcome_text(question)} Nothing was changed.")
        context = build_engine(app).context
        source = Source(platform=TERMINAL, user_id=user_name())
        decided = app.store.write(
            questions.answer,
            question.id,
            _answer_to(question, given),
            who=questions.answerer_of(context, source),
            context=context,
            moment=app.moment(),
        ).result()
        others = app.store.read(actions.of_turn, decided.turn_id).result()
    if decided.state is QuestionState.EXPIRED:
        raise Conflict(f"The time for an answer was over. {rules.outcome_text(decided)}")
    left = len([each for each in others if each.is_open])
    console.answer(question_json(decided), f"{rules.outcome_text(decided)} {_what_is_next(left)}")


def _what_is_next(left: int) -> str:
    if left:
        verb = "waits" if left == 1 else "wait"
        return f"{count(left, 'other question')} of this turn {verb} for an answer."
    return "The turn goes on in a running server, or in `sessionary chat` if it began there."


class _GivenAnswer(Struct, frozen=True, kw_only=True):
    """The answer as it was given on the command line."""

    text: str = ""
    number: int | None = None
    reason: str | None = None
    arguments: Mapping[str, Any] | None = None
    values: Mapping[str, Any] | None = None
    always: Always | None = None


def _answer_to(question: Question, given: _GivenAnswer) -> Answer:
    """Return the answer that was meant; raise `BadInput` if it is none to this question."""
    asked, text = question.asked, read_input() if given.text == "-" else given.text
    found: Answer | None
    if given.number is not None:
        found = _option(question, given.number, text)
    elif text in asked.options or (given.values is not None and not text):
        found = Answer(decision=Decision.APPROVE, text=text)
    elif text.casefold() == "deny":
        found = Answer(decision=Decision.DENY)
    else:
        found = rules.read_reply(question, text)
    if found is None and asked.kind is QuestionKind.APPROVAL:
        raise BadInput(
            "Write approve or deny; a reason goes with --reason, other arguments with --arguments. Nothing was changed."
        )
    if found is None and asked.kind is QuestionKind.FORM:
        raise BadInput("Give the values of this form with --values. Nothing was changed.")
    found = found or Answer(decision=Decision.APPROVE, text=text)
    if given.reason is not None and found.decision is not Decision.DENY:
        raise BadInput("--reason is for a denial. Nothing was changed.")
    return read_answer(
        question,
        decision=found.decision,
        text=given.reason or found.text,
        arguments=given.arguments,
        values=found.values if given.values is None else given.values,
        always=given.always or found.always,
    )


def _option(question: Question, number: int, text: str) -> Answer:
    options = rules.button_answers(question)
    if text:
        raise BadInput("Give --option or an answer, not both. Nothing was changed.")
    if number > len(options):
        there = f"has {len(options)}" if options else "has none"
        raise BadInput(f"There is no option {number}: the question {there}. Nothing was changed.")
    return options[number - 1][1]


def _read_object(option: str, given: str | None) -> Mapping[str, Any] | None:
    """Return the JSON object that an option has, or the file that it names with `@`."""
    if given is None:
        return None
    import json  # few commands read JSON

    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{given[1:]} is not UTF-8 text. Nothing was changed.") from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{option} is not JSON ({error}). Nothing was changed.") from error
    if not isinstance(found, dict):
        raise BadInput(
            f'{option} must be a JSON object, as {{"name": "value"}}. Nothing was changed.'
        )
    return found


def _find(app: "AppContext", ref: str) -> Question:
    """Return the question that a person names; a code also names the latest decided one that has it."""
    try:
        return app.store.read(actions.find, ref, profile=app.profile).result()
    except NotFound:
        page = app.store.read(actions.list_questions, profile=app.profile, limit=PAGE_SIZE).result()
        found = [each for each in page.items if each.code == ref.upper()]
        if len([each for each in found if each.is_open]) > 1:
            ids = [each.id for each in found if each.is_open]
            raise Ambiguous(
                f"Several questions have the code {ref.upper()}: {', '.join(ids)}.", ids
            ) from None
        if not found:
            raise
        return found[0]


@command(
    "explain",
    example="sessionary policy explain send_mail --source telegram:-100 --type group --person 5\n"
    'sessionary policy explain files_write --source terminal --arguments \'{"path": "/etc/hosts"}\'',
)
@click.argument("tool", metavar="TOOL")
@click.option(
    "--source",
    "place",
    metavar="SOURCE",
    required=True,
    help="Where the turn is asked for: platform:chat[:thread], or only a platform.",
)
@click.option(
    "--type",
    "chat_type",
    default=str(ChatType.DM),
    show_default=True,
    metavar="T",
    help="dm, group, channel or thread.",
)
@click.option("--person", metavar="P", help="The id of the person who asks.")
@click.option("--agent", metavar="NAME", help="The agent that calls it; by default the source's.")
@click.option("--arguments", metavar="JSON", help="The arguments of the call, or @FILE.")
@click.option(
    "--class",
    "tool_class",
    type=click.Choice(["safe", "once"]),
    default="once",
    show_default=True,
    help="safe: it changes nothing.",
)
@click.option("--needs-approval", is_flag=True, help="The agent itself asks for an approval.")
@click.option(
    "--session", "ref", type=REF, metavar="REF", help="The session; by default the chat's."
)
@pass_console
def explain(
    console: Console, tool: str, place: str, *, needs_approval: bool, **asked: str | None
) -> None:
    """Explain whether a tool call would run, be asked about or be refused, which rule says so, and who is asked."""
    arguments = _read_object("--arguments", asked["arguments"]) or {}
    source = _source(place, chat_type=asked["chat_type"] or "", person=asked["person"])
    # These load the engine, which the other commands do not need.
    from sessionary.app.engine import build_engine
    from sessionary.engine.policy import explain_call
    from sessionary.engine.ports import ProposedCall

    call = ProposedCall(tool, arguments, asked["tool_class"] == "safe", needs_approval)
    with console.open() as app:
        value = app.store.read(
            explain_call,
            call,
            source,
            context=build_engine(app).context,
            agent=asked["agent"],
            head=None if asked["ref"] is None else find_head(app, asked["ref"]),
        ).result()
    console.answer(value, "\n".join(_explanation(value)))


def _source(place: str, *, chat_type: str, person: str | None) -> Source:
    """Return the source that the options name; at the terminal, the person is its user."""
    if place == TERMINAL:
        from sessionary.app.context import user_name

        return Source(platform=TERMINAL, user_id=person or user_name())
    if ":" not in place:
        return Source(platform=place, chat_type=chat_type, user_id=person)
    channel = Channel.parse(place)
    return Source(
        platform=channel.platform,
        chat_id=channel.chat_id,
        thread_id=channel.thread_id,
        chat_type=chat_type,
        user_id=person,
    )


def _explanation(value: "CallExplanation") -> Iterator[str]:
    """Yield an explanation for people."""
    yield f"decision:  {value['decision']}"
    by = f" (standing approval {value['approval_id']})" if value["approval_id"] else ""
    yield f"because:   {value['rule']}{by}"
    owner = "an owner" if value["is_owner"] else "not an owner"
    yield f"call:      {one_line(value['tool'])} by the agent {value['agent']}, for somebody who is {owner}"
    yield f"session:   {value['session_id'] or 'none yet'}"
    if value["decision"] is ToolDecision.ASK:
        yield f"approval:  by {', '.join(['the owners', *value['may_answer']])}"
        places = [*value["asked_in"], "the workbench", "`sessionary questions`"]
        yield f"asked in:  {', '.join(places)}"


@command("list", example="sessionary policy list\nsessionary policy list --json")
@click.option(
    "--limit",
    default=50,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="How many standing approvals to list.",
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_policy(console: Console, *, limit: int, cursor: str | None) -> None:
    """List the rules of sessionary.toml in their order, then the standing approvals that people have given.

    The first rule that matches a call decides about it. A standing approval lets a call run that would be asked about.
    """
    with console.open() as app:
        known = () if cursor is not None else read_engine(app.config).engine.policy
        page = app.store.read(
            actions.list_approvals, profile=app.profile, limit=limit, cursor=cursor
        ).result()
    items: list[dict[str, Any]] = [
        {"kind": "rule", "number": number, **_rule_json(rule)}
        for number, rule in enumerate(known, 1)
    ]
    items += [{"kind": "approval", **approval_json(each)} for each in page.items]
    rows = [[f"rule {number}", _rule_text(rule)] for number, rule in enumerate(known, 1)]
    rows += [[each.id, _approval_text(each)] for each in page.items]
    console.print_list(
        items,
        (Column("ID"), Column("RULE", flexible=True)),
        rows,
        empty="No rules.",
        cursor=page.next,
    )
    if not console.json:
        console.note(DEFAULTS)


def _rule_json(rule: PolicyRule) -> dict[str, Any]:
    from dataclasses import asdict  # takes a millisecond to load, and few commands need it

    return {**asdict(rule), "decision": str(rule.decision), "by": str(rule.by)}


def _rule_text(rule: PolicyRule) -> str:
    by = "; the person who asked may approve it" if rule.by is Approvers.ASKER else ""
    return f"{policy_rules.describe(rule)}{by}"


def _approval_text(approval: StandingApproval) -> str:
    from sessionary.engine.policy import describe

    session = "" if approval.session_id is None else f" (session {approval.session_id})"
    return f"allow: {describe(approval)}{session}"


@command("revoke", example="sessionary policy revoke 01jx4k")
@id_argument
@pass_console
def revoke(console: Console, id: str) -> None:
    """Revoke a standing approval; from now on the tool needs an approval again.

    ID is its id, or the beginning of only one; `policy list` shows them.
    """
    with console.open() as app:
        found = _find_approval(app, id)
        app.store.write(actions.revoke_approval, found.id, profile=app.profile).result()
    console.answer(
        approval_json(found), f"Revoked: {_approval_text(found).removeprefix('allow: ')}."
    )


def _find_approval(app: "AppContext", ref: str) -> StandingApproval:
    found: list[StandingApproval] = []
    cursor = None
    while True:
        page = app.store.read(
            actions.list_approvals, profile=app.profile, limit=PAGE_SIZE, cursor=cursor
        ).result()
        found += [each for each in page.items if ref and each.id.startswith(ref)]
        cursor = page.next
        if cursor is None:
            break
    if not found:
        raise NotFound(f"There is no standing approval {ref}; nothing was changed.")
    if len(found) > 1:
        ids = [each.id for each in found]
        raise Ambiguous(
            f"{ref!r} is the beginning of several standing approvals: {', '.join(ids[:6])}.", ids
        )
    return found[0]


COMMANDS: dict[str, click.Command] = {
    "questions": group(
        "questions",
        "List and answer what turns ask people.",
        [list_questions, show, answer],
    ),
    "policy": group(
        "policy",
        "See which tool calls are asked about, and why.",
        [explain, list_policy, revoke],
    ),
}
