"""What is sent to Slack: texts in its own notation."""

import re
from dataclasses import dataclass
from typing import Any

from sessionary.engine.outbox import split_text
from sessionary.engine.ports import Capabilities

LONGEST_SECTION = 3000
_SMALLEST = 200
# A character becomes an entity of up to five.
LONGEST_PREVIEW = LONGEST_SECTION // 5

CAPABILITIES = Capabilities(
    # Eight messages: the adapter splits between code fences.
    longest_text=8 * LONGEST_SECTION,
    ids_needed_for_mentions=True,
    notes=(
        "You are on Slack. You see only what is said to you here.",
        "You cannot search the history, pin, manage channels or roles, or list members.",
        "Mention a person by writing <@id> with their user id; @channel and @here ring nobody.",
        "Write Markdown: bold, italics, lists, links and code are shown. Tables are not.",
    ),
)

_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_FENCE_LANGUAGE = re.compile(r"\A```[\w+#.-]*\n")
_MARKS = re.compile(
    r"(?P<keep><(?:@[UW][A-Z0-9]+|\#C[A-Z0-9]+)>)"
    r"|\[(?P<label>[^\]\n]+)\]\((?P<url>https?://[^\s()<>|]+)\)"
    r"|^\#{1,6}[ \t]+(?P<heading>[^\n]+?)[ \t]*\#*$"
    r"|^(?P<indent>[ \t]*)[-*+][ \t]+"
    r"|\*\*\*(?P<both>[^\s*](?:[^*\n]*?[^\s*])?)\*\*\*"
    r"|\*\*(?P<bold>\S(?:[^\n]*?\S)?)\*\*"
    r"|~~(?P<struck>\S(?:[^\n]*?\S)?)~~"
    r"|(?<![\w*])\*(?P<italic>[^\s*](?:[^*\n]*?[^\s*])?)\*(?![\w*])"
    r"|(?P<sign>[&<>])",
    re.MULTILINE,
)
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass(frozen=True, slots=True)
class SlackPost:
    """One message: as a block that shows formatting, and as plain text."""

    plain: str
    rendered: str

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The message in Block Kit."""
        text = {"type": "mrkdwn", "text": self.rendered, "verbatim": True}
        return [{"type": "section", "expand": True, "text": text}]


def post_of(text: str) -> SlackPost:
    """Render a piece of a text."""
    return SlackPost(escaped(text), mrkdwn(text))


def split(text: str, longest: int = LONGEST_SECTION) -> list[str]:
    """Split a text into pieces that fit into a message when they are rendered."""
    pieces: list[str] = []
    for piece in split_text(text, longest):
        # Characters become entities: what fitted may not fit any more.
        if len(mrkdwn(piece)) > LONGEST_SECTION and longest > _SMALLEST:
            pieces.extend(split(piece, longest // 2))
        else:
            pieces.append(piece)
    return pieces


def mrkdwn(text: str) -> str:
    """Return Markdown in Slack's own notation; what is not understood stays as it was typed."""
    pieces = _CODE.split(text)
    return "".join(
        _code(piece) if index % 2 else _MARKS.sub(_mark, piece)
        for index, piece in enumerate(pieces)
    )


def escaped(text: str) -> str:
    """Escape a text so that Slack shows it as it is; nothing in it notifies or links."""
    return "".join(_ESCAPED.get(char, char) for char in text)


def _code(text: str) -> str:
    return escaped(_FENCE_LANGUAGE.sub("```\n", text))


def _mark(found: re.Match[str]) -> str:
    kind = found.lastgroup
    match kind:
        case "keep":
            return found["keep"]
        case "url":
            return f"<{escaped(found['url'])}|{escaped(found['label']).replace('|', '/')}>"
        case "heading":
            return f"*{escaped(found['heading'].replace('*', ''))}*"
        case "indent":
            return f"{found['indent']}• "
        case "both":
            return f"*_{_MARKS.sub(_mark, found['both'])}_*"
        case "bold":
            return f"*{_MARKS.sub(_mark, found['bold'])}*"
        case "struck":
            return f"~{_MARKS.sub(_mark, found['struck'])}~"
        case "italic":
            return f"_{_MARKS.sub(_mark, found['italic'])}_"
        case _:
            return _ESCAPED[found["sign"]]
