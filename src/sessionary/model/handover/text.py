"""A conversation as a text, for an agent that keeps its own sessions and takes over in the middle of one of ours."""

from collections import deque
from collections.abc import Sequence

from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat, render_chats

_LONGEST_MESSAGE = 8_000


def conversation_text(chats: Sequence[Chat], *, most_tokens: int) -> str:
    """Return the newest messages that fit, each as a paragraph that begins with who speaks; empty for no messages."""
    paragraphs: deque[str] = deque()
    left, size = len(chats), 0
    for chat in reversed(chats):
        paragraph = "".join(render_chats([chat], longest=_LONGEST_MESSAGE))
        size += estimate(paragraph)
        if size > most_tokens:
            break
        left -= 1
        if paragraph:
            paragraphs.appendleft(paragraph)
    if left:
        some = "message" if left == 1 else "messages"
        paragraphs.appendleft(f"[{left:,} earlier {some} of this conversation are not here.]")
    return "\n\n".join(paragraphs)
