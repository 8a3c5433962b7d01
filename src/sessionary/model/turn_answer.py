"""The answer of one turn as a program sees it: all that the agent has said in it, and the calls left to the program."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from sessionary.model.message import Message, Part, Reasoning, Role, Text, ToolCall
from sessionary.model.transcript import INTERRUPTED, unfinished_calls

# Between what the agent says before and after it has used tools.
SEPARATOR = "\n\n"


class TurnAnswer(Struct, frozen=True):
    """What an agent has said in a turn, and the tool calls that have no result: those of the program's own tools."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    # Whether the text was cut off, so that what comes next goes on with it.
    is_cut: bool = False

    @property
    def message(self) -> Message:
        """The answer as one message: a program that has no memory sends it back in this form."""
        words: tuple[Part, ...] = (Text(self.text),) if self.text else ()
        return Message(Role.ASSISTANT, (*words, *self.calls))


def answer_of(
    messages: Iterable[Message], *, client_tools: Collection[str] | None = None
) -> TurnAnswer:
    """Return the answer in the messages that an agent has written in a turn, in order.

    `client_tools` are the names of the program's tools. Without them every call that has no result counts as one of
    theirs, which is so once the turn is done.
    """
    written = [each for each in messages if each.role in (Role.ASSISTANT, Role.TOOL)]
    text, thoughts, is_cut = "", [], False
    last: Message | None = None
    for message in written:
        if message.role is not Role.ASSISTANT:
            continue
        last = message
        thoughts += [part.text for part in message.parts if isinstance(part, Reasoning)]
        # Without line breaks between the parts: so it was streamed.
        words = "".join(part.text for part in message.parts if isinstance(part, Text))
        if words:
            # An answer that was cut off goes on where it ended.
            text += (SEPARATOR if text and not is_cut else "") + words
            is_cut = message.finish_reason == INTERRUPTED and not message.tool_calls
    return TurnAnswer(
        text,
        SEPARATOR.join(filter(None, thoughts)),
        tuple(
            call
            for call in unfinished_calls(written).values()
            if client_tools is None or call.name in client_tools
        ),
        None if last is None else last.finish_reason,
        None if last is None else last.model,
        is_cut,
    )
