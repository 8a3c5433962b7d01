"""What is sent to Slack: texts in its own notation, and the buttons of questions."""

import re
from dataclasses import dataclass
from typing import Any

from sessionary.channels.base import button_labels
from sessionary.engine.outbox import split_text
from sessionary.engine.ports import Capabilities
from sessionary.model.question import APPROVE, DENY, Card

# Slack accepts 75 characters; a telephone shows fewer.
LONGEST_LABEL = 40
_STYLES = {APPROVE: "primary", DENY: "danger"}
LONGEST_SECTION = 3000
_SMALLEST = 200
# A character becomes an entity of up to five.
LONGEST_PREVIEW = LONGEST_SECTION // 5

CAPABILITIES = Capabilities(
    # Eight messages: the adapter splits between code fences.
    longest_text=8 * LONGEST_SECTION,
    ids_needed_for_mentions=True,
    buttons=True,
    edits=True,
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
_MENTION = re.compile(r"<([@#][A-Z0-9]+)>")
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass(frozen=True, slots=True)
class SlackPost:
    """One message: as a block that shows formatting, and as plain text; below it the buttons of a question."""

    plain: str
    rendered: str
    card: Card | None = None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The message in Block Kit."""
        text = {"type": "mrkdwn", "text": self.rendered, "verbatim": True}
        section = {"type": "section", "expand": True, "text": text}
        if self.card is None:
            return [section]
        return [section, {"type": "actions", "elements": _buttons(self.card)}]

    @property
    def without_blocks(self) -> str:
        """The text of a message without blocks: a question says how it is answered without buttons."""
        if self.card is None:
            return self.plain
        return f"{self.plain}\n\n{escaped(self.card.lines())}"


def post_of(text: str, *, mentions: bool = True, card: Card | None = None) -> SlackPost:
    """Render a piece of a text. Without `mentions` it names nobody so that they are notified."""
    return SlackPost(escaped(text), mrkdwn(text, mentions=mentions), card)


def _buttons(card: Card) -> list[dict[str, Any]]:
    found = []
    for number, label in enumerate(button_labels(card, LONGEST_LABEL), 1):
        data = card.button(number)
        text = {"type": "plain_text", "text": label, "emoji": False}
        button = {"type": "button", "text": text, "action_id": data, "value": data}
        style = _STYLES.get(card.options[number - 1])
        found.append(button if style is None else {**button, "style": style})
    return found


def split(text: str, longest: int = LONGEST_SECTION) -> list[str]:
    """Split a text into pieces that fit into a message when they are rendered."""
    pieces: list[str] = []
    for piece in split_text(text, longest):
        # Characters become entities: what fitted may not fit any more.
        if len(mrkdwn(piece, mentions=False)) > LONGEST_SECTION and longest > _SMALLEST:
            pieces.extend(split(piece, longest // 2))
        else:
            pieces.append(piece)
    return pieces


def mrkdwn(text: str, *, mentions: bool = True) -> str:
    """Return Markdown in Slack's own notation; what is not understood stays as it was typed.

    Without `mentions`, people and channels are shown as they were typed too.
    """
    pieces = _CODE.split(text)
    rendered = "".join(
        _code(piece) if index % 2 else _MARKS.sub(_mark, piece)
        for index, piece in enumerate(pieces)
    )
    return rendered if mentions else _MENTION.sub(r"&lt;\1&gt;", rendered)


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
