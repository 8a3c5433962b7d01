"""`sessionary chat`: a conversation in the terminal, or one turn in a script."""

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from sessionary.cli.console import (
    DIM,
    Console,
    count,
    read_input,
    render_markdown,
    rows_shown,
    split_blocks,
)
from sessionary.cli.main import INTERRUPTED
from sessionary.cli.questions import question_lines
from sessionary.cli.sessions.refs import REF, find_head
from sessionary.cli.sessions.show import tool_line
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput, SessionaryError
from sessionary.model.message import ToolCall, ToolResult
from sessionary.model.question import Question, QuestionKind
from sessionary.model.terminal import one_line, safe_terminal
from sessionary.model.view import question_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sessionary.app.chat import TerminalChat
    from sessionary.cli.prompt import Prompt
    from sessionary.engine.context import LiveEvent

HINT = (
    "Ctrl-C stops the reply, pressed again it quits; Ctrl-D or /quit quits, /help lists commands."
)
ANSWER_HINT = "Reply to the question. /stop gives the turn up; Ctrl-D or /quit quits."
LEAVING = ("/quit", "/exit")
PROMPT, ANSWER_PROMPT = "› ", "answer › "
WAITING = "waiting"
FAILED = 1
LONGEST_REASON = 500


@command(
    "chat",
    example='sessionary chat\nsessionary chat "what did we decide?" --session "launch plan"',
)
@click.argument("message", required=False)
@click.option("--session", "ref", type=REF, metavar="REF", help="Continue this session.")
@click.option("--agent", metavar="NAME", help="Which agent answers in the session from now on.")
@click.option("--model", metavar="NAME", help="Which of the agent's models answers.")
@click.option("--persona", metavar="NAME", help="Which persona the agent has.")
@click.option("--new", is_flag=True, help="Begin a new session.")
@pass_console
def chat(
    console: Console,
    message: str | None,
    ref: str | None,
    *,
    new: bool,
    **asked: str | None,
) -> None:
    """Talk with an agent.

    With MESSAGE, take one turn, print the reply and exit; `-` reads the message from standard input. If the agent asks
    something, the question is shown, and the next line that is typed answers it; it stays open for whoever leaves.
    """
    if ref is not None and new:
        raise click.UsageError("--session and --new exclude each other.")
    if message is None:
        _require_terminal()
    elif message == "-":
        message = read_input()
    if message is not None and not message.strip():
        raise BadInput("The message is empty; nothing was sent.")
    if not console.debug:
        # A failed turn is reported in one line and stored; its traceback would be in the way.
        logging.basicConfig(level=logging.CRITICAL)
    from sessionary.app.chat import (
        TerminalChat,  # loads the engine, which `chat --help` does not need
    )

    with console.open(create=True) as app:
        ref = None if ref is None else find_head(app, ref).id
        chosen = {name: value for name, value in asked.items() if value is not None}
        code = asyncio.run(
            _run(console, TerminalChat(app), message, ref=ref, new=new, chosen=chosen)
        )
    if code:
        raise click.exceptions.Exit(code)


async def _run(
    console: Console,
    conversation: "TerminalChat",
    message: str | None,
    *,
    ref: str | None,
    new: bool,
    chosen: dict[str, str],
) -> int:
    async with conversation:
        head = await conversation.begin(ref=ref, new=new, chosen=chosen)
        if message is not None:
            return await _once(console, conversation, message)
        where = "a new session" if head is None else f"“{head.shown_title}”"
        console.note(f"In {where}. {HINT}")
        await _turn(conversation, conversation.continued(), _TurnPrinter(console))
        await _converse(console, conversation)
        return 0


async def _once(console: Console, conversation: "TerminalChat", message: str) -> int:
    """Take one turn: the reply goes to standard output, everything else to standard error.

    If the turn asks something, a person at a terminal answers it here; without one, they are told how.
    """
    printer = _TurnPrinter(console, quiet=console.json)
    state, was_stopped = await _turn(conversation, conversation.send(message), printer)
    if state["state"] == WAITING and sys.stdin.isatty() and not console.json:
        state = await _converse(console, conversation, until_answered=True)
    if console.json:
        asked = [question_json(each) for each in conversation.questions]
        more = {"questions": asked} if state["state"] == WAITING else {}
        console.emit({**state, "reply": printer.reply, **more})
    elif state["state"] == WAITING:
        _tell_how_to_answer(console, conversation)
    if state["state"] in ("done", "answered"):
        return 0
    return INTERRUPTED if was_stopped else FAILED


async def _converse(
    console: Console, conversation: "TerminalChat", *, until_answered: bool = False
) -> dict[str, Any]:
    """Ask and answer until the person leaves, or with `until_answered` until no question is open.

    Return how the last turn ended.
    """
    from sessionary.cli.prompt import Prompt  # loads prompt_toolkit, which one turn does not need

    prompt = Prompt(conversation)
    state: dict[str, Any] = {"state": WAITING, "reason": None, "session_id": None}
    while conversation.questions or not until_answered:
        try:
            found = await _next_input(conversation, prompt)
        except KeyboardInterrupt:
            console.note(ANSWER_HINT if conversation.questions else HINT)
            _tell_how_to_answer(console, conversation)
            continue
        except EOFError:
            break
        if isinstance(found, str):
            if found.strip() in LEAVING:
                break
            if not found.strip():
                continue
            found = conversation.send(found.strip())
        try:
            state, _ = await _turn(conversation, found, _TurnPrinter(console))
        except SessionaryError as error:
            console.note(str(error))
    if not until_answered:
        _tell_how_to_answer(console, conversation)
    return state


async def _next_input(
    conversation: "TerminalChat", prompt: "Prompt"
) -> "str | AsyncIterator[LiveEvent]":
    """Return what the person types next, or what happens because somebody else has decided the open question."""
    if not conversation.questions:
        return await prompt.ask(PROMPT) or ""
    events = conversation.decided()
    first = asyncio.ensure_future(anext(events, None))
    try:
        text = await prompt.ask(ANSWER_PROMPT, until=first)
        if text is None:
            return _beginning_with(first.result(), events)
        return text
    finally:
        if not first.done():
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)


async def _beginning_with(
    first: "LiveEvent | None", events: "AsyncIterator[LiveEvent]"
) -> "AsyncIterator[LiveEvent]":
    if first is not None:
        yield first
    async for live in events:
        yield live


def _tell_how_to_answer(console: Console, conversation: "TerminalChat") -> None:
    """Say how an open question can be answered later, if there is one."""
    for question in conversation.questions if conversation.keeps_questions else ():
        is_approval = question.asked.kind is QuestionKind.APPROVAL
        words = "approve" if is_approval else "…"
        console.note(
            f"The question {question.code} stays open. Answer it with: sessionary questions answer "
            f"{question.code} {words}; or come back with: sessionary chat"
        )


async def _turn(
    conversation: "TerminalChat", events: "AsyncIterator[LiveEvent]", printer: "_TurnPrinter"
) -> tuple[dict[str, Any], bool]:
    """Show the events of one turn as they come. Return how it ended, and whether Ctrl-C stopped it.

    Ctrl-C stops the turn, not the program; pressed again, it quits without waiting.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    stops: list[asyncio.Task[None]] = []
    left = False

    def interrupt() -> None:
        nonlocal left
        if not stops:
            stops.append(loop.create_task(conversation.stop()))
        elif task is not None:
            left = task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        state: dict[str, Any] = {"state": "done", "reason": None, "session_id": None}
        async for live in events:
            printer.show(live.kind, live.data)
            if live.kind == "ended":
                state = {**live.data, "session_id": live.session_id or None}
                printer.end(state)
            elif live.kind in ("answer", "decided"):
                session_id = live.session_id or None
                state = {"state": "answered", "reason": None, "session_id": session_id}
        printer.end_line()
        return state, bool(stops)
    except asyncio.CancelledError:
        if left:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(*stops, return_exceptions=True)


class _TurnPrinter:
    """Prints a turn as it comes: text, tool calls and their results.

    On a terminal with styles, each block of Markdown is replaced by its rendered form when it is complete.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._renders = console.has_styles and not quiet
        # What was printed of the unfinished message, and of that, the unfinished block.
        self._streamed = ""
        self._block = ""
        self._open = False
        self._questions: list[Question] = []
        self.reply = ""

    def show(self, kind: str, data: Any) -> None:
        match kind:
            case "delta":
                self._streamed += data
                self._write(data)
            case "text" | "answer":
                self._finish(data)
            case "tool":
                self._show_tool(data)
            case "resumed":
                self._console.note(
                    "The last reply was cut off; it goes on now:"
                    if data is None
                    else "The question of the last turn was decided; it goes on now:"
                )
            case "question":
                self._questions.append(data)
            case "decided":
                self.end_line()
                self._console.note(f"({data})")
            case "held":
                self._console.note("Your message waits until this question is answered.")
            case "waiting":
                self._console.note("Another turn is running in this session; yours is next.")

    def _finish(self, text: str) -> None:
        """Print what was not streamed of a finished message."""
        if text.startswith(self._streamed):
            self._write(text[len(self._streamed) :])
        elif text.strip() != self._streamed.strip():
            self.end_line()
            self._write(text)
        self.end_line()
        self._streamed, self.reply = "", text

    def _show_tool(self, part: ToolCall | ToolResult) -> None:
        self.end_line()
        if self._console.is_terminal and not self._quiet:
            line = safe_terminal(tool_line(part))
            self._console.print_styled(self._console.style(line, DIM))

    def end(self, state: dict[str, Any]) -> None:
        self.end_line()
        if state["state"] == WAITING:
            self._show_question()
        elif state["state"] == "refused":
            self._console.note(state["reason"] or "The message was refused.")
        elif state["state"] not in ("done", "answered"):
            reason = one_line(state["reason"] or "", LONGEST_REASON).rstrip(".")
            why = f": {reason}" if reason else ""
            self._console.note(f"({state['state']}{why}; /retry asks again)")

    def _show_question(self) -> None:
        """Print the first open question; the others are shown when it is answered."""
        if self._quiet or not self._questions:
            return
        question, others = self._questions[0], len(self._questions) - 1
        self._questions.clear()
        for line in question_lines(question):
            self._console.note(line)
        more = f" {count(others, 'other question')} after this one." if others else ""
        hint = _reply_hint(question) if sys.stdin.isatty() else ""
        self._console.note(f"\n{hint}{more}".rstrip())

    def _write(self, text: str) -> None:
        if not text or self._quiet:
            return
        if not self._renders:
            self._put(text)
            return
        self._block += text
        self._put(text)
        shown = self._block
        whole, self._block = split_blocks(shown)
        if whole:
            self._render(shown, whole, rest=self._block)

    def _put(self, text: str) -> None:
        sys.stdout.write(safe_terminal(text, keep_newlines=True))
        sys.stdout.flush()
        self._open = not text.endswith("\n")

    def _render(self, shown: str, whole: str, *, rest: str) -> None:
        """Replace the printed text by its rendered form, unless it was scrolled off the screen."""
        rows = rows_shown(shown, width=self._console.width)
        if rows >= self._console.height:
            return
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        sys.stdout.write(f"\r{up}\x1b[J")
        rendered = render_markdown(whole, width=self._console.width)
        sys.stdout.write(f"{rendered}\n" + ("\n" if rest else ""))
        self._open = False
        if rest:
            self._put(rest)
        sys.stdout.flush()

    def end_line(self) -> None:
        """End the line that was begun."""
        if self._renders and self._block.strip():
            self._render(self._block, self._block, rest="")
        self._block = ""
        if self._open:
            sys.stdout.write("\n")
            self._open = False


def _reply_hint(question: Question) -> str:
    """Return how a question is answered with the next line."""
    match question.asked.kind:
        case QuestionKind.APPROVAL:
            return "Reply with a number, or with `deny: reason`."
        case QuestionKind.CHOICE:
            return "Reply with a number."
        case QuestionKind.FORM if len((question.asked.schema or {}).get("properties", {})) > 1:
            command = f"sessionary questions answer {question.code} --values '{{…}}'"
            return f"This form is answered in the workbench, or with: {command}"
    return "Reply with your answer."


def _require_terminal() -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("Standard input is no terminal: give a MESSAGE, or - to read one.")
