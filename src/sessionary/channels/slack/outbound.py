"""From a delivery to the messages that Slack takes. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from sessionary.channels.enclosures import files_of
from sessionary.channels.growing import preview
from sessionary.channels.split import split_text
from sessionary.engine.ports import Capabilities
from sessionary.model import codec
from sessionary.model.message import Attachment, text_of
from sessionary.model.turn import Delivery

LONGEST_SECTION = 3000
LONGEST_TEXT = 4000
NOTHING = "(An empty message.)"
_SMALLEST = 200
# Signs become entities of up to five letters.
_PREVIEW = LONGEST_SECTION // 5

CAPABILITIES = Capabilities(
    # Several messages: we cut between code fences ourselves.
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
class Post:
    """One message to be written: as a block that shows formatting, and as plain text."""

    plain: str
    rendered: str

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The message in Block Kit."""
        text = {"type": "mrkdwn", "text": self.rendered, "verbatim": True}
        return [{"type": "section", "expand": True, "text": text}]


def posts(delivery: Delivery) -> list[Post | Attachment]:
    """The messages of a delivery, in order, its files last; at least one."""
    files, text = files_of(delivery.parts), text_of(delivery.parts)
    return [*(posts_of(text) if text.strip() or not files else ()), *files]


def posts_of(text: str) -> list[Post]:
    """A text in pieces that are short enough and not empty."""
    return _cut(_sayable(text), LONGEST_SECTION) or [Post(NOTHING, NOTHING)]


def preview_of(text: str) -> Post:
    """As much of a growing answer as one message holds, without formatting."""
    said = escaped(preview(_sayable(text), _PREVIEW))
    return Post(said, said)


def _cut(text: str, longest: int) -> list[Post]:
    made: list[Post] = []
    for piece in split_text(text, longest):
        rendered = mrkdwn(piece)
        # Signs become entities: what fitted may not fit any more.
        if len(rendered) > LONGEST_SECTION and longest > _SMALLEST:
            made.extend(_cut(piece, longest // 2))
        else:
            made.append(Post(escaped(piece), rendered))
    return made


def _sayable(text: str) -> str:
    return "".join(char for char in codec.storable_text(text) if char >= " " or char in "\n\t")


def mrkdwn(text: str) -> str:
    """Markdown in Slack's own notation; what is not understood stays as it was typed."""
    pieces = _CODE.split(text)
    return "".join(
        _code(piece) if index % 2 else _MARKS.sub(_mark, piece)
        for index, piece in enumerate(pieces)
    )


def escaped(text: str) -> str:
    """The text as Slack shows it letter by letter; nothing in it rings or links."""
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
