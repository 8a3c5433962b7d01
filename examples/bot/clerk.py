"""The agent of the example bot: a function that is called for each turn."""

import hashlib
from collections.abc import Iterator

from sessionary import (
    Attachment,
    Delta,
    Message,
    Role,
    Step,
    Text,
    ToolCall,
    ToolResult,
    TurnRequest,
    Usage,
)


def answer(request: TurnRequest) -> Iterator[Delta | Step]:
    """Count what the person asked, with a tool, and answer with a file."""
    asked = [chat["content"] for chat in request.context if chat["role"] == "user"]

    call = ToolCall("count-1", "count", {"questions": len(asked)})
    yield Step(Message(Role.ASSISTANT, (call,)))
    yield Step(Message(Role.TOOL, (ToolResult(call.id, f"{len(asked)} questions"),)))

    text = f"You have asked {len(asked)} questions so far."
    for word in text.split(" "):
        yield Delta(f"{word} ")  # shown at once

    notes = "\n".join(str(each) for each in asked).encode()
    file = Attachment(hashlib.sha256(notes).hexdigest(), "text/plain", "questions.txt", len(notes))
    yield Step(
        Message(Role.ASSISTANT, (Text(text), file)),
        usage=Usage(model="clerk", output_tokens=len(text.split())),
        files=(notes,),
    )
