"""Reading a context: what the person said last, and everything as plain text."""

from collections.abc import Iterator, Sequence
from typing import Any

from sessionary.model.transcript import Chat


def text_of(content: Any) -> str:
    """The words of a chat's content, attachments named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(filter(None, (_piece(each) for each in content if isinstance(each, dict))))


def last_user_text(context: Sequence[Chat]) -> str:
    """What the person said last."""
    return next((text_of(chat["content"]) for chat in reversed(context) if _is_user(chat)), "")


def rendered(context: Sequence[Chat], *, longest: int) -> Iterator[str]:
    """Each chat as a paragraph that begins with who speaks, cut to `longest` characters."""
    for chat in context:
        calls = [each["function"] for each in chat.get("tool_calls", ())]
        said = text_of(chat.get("content"))
        asked = [f"(calls {call['name']} {call['arguments']})" for call in calls]
        words = "\n".join(filter(None, (said, *asked)))
        if words:
            yield f"{chat['role']}: {cut(words, longest)}"


def cut(text: str, longest: int) -> str:
    """The text, with a mark where its middle was left out."""
    if len(text) <= longest:
        return text
    half = max(1, (longest - 5) // 2)
    return f"{text[:half]} […] {text[-half:]}"


def _piece(piece: dict[str, Any]) -> str:
    if piece.get("type") == "attachment":
        return f"[attachment: {piece.get('name') or piece.get('media_type')}]"
    text = piece.get("text")
    return text if isinstance(text, str) else ""


def _is_user(chat: Chat) -> bool:
    return bool(chat["role"] == "user")
