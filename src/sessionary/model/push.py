"""Notifications of browsers: which browsers are subscribed, and what a notification says of a question."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from sessionary.model.message import Part, Unknown
from sessionary.model.question import Question, QuestionKind, visible
from sessionary.model.terminal import one_line

# The platform of their deliveries. People do not write from it, and agents are not told of it.
PLATFORM = "push"
LONGEST_ENDPOINT = 2_000
_NOTICE = "notification"
# A notification shows about this much, and a push service takes 4,096 bytes.
_LONGEST_TEXT = 200
_LONGEST_NAME = 80
# Of a longer text only the beginning is looked at.
_SCANNED = 2_000


class NewSubscription(Struct, frozen=True, kw_only=True):
    """What a browser tells of its subscription to a push service."""

    endpoint: str
    p256dh: str
    auth: str
    label: str
    language: str
    # The address of the workbench at which it subscribed.
    origin: str


class PushSubscription(NewSubscription, frozen=True, kw_only=True):
    """A browser that is notified of the questions of a profile."""

    id: str
    profile: str
    created_at: datetime
    succeeded_at: datetime | None = None
    # Attempts that failed since the last success, and why the last one did.
    failures: int = 0
    problem: str | None = None


class Notice(Struct, frozen=True):
    """In a delivery to a browser: which question it is told of; None for a test.

    What is shown is read when the delivery is sent, so that it is never out of date.
    """

    question_id: str | None
    is_reminder: bool = False

    def part(self) -> Part:
        """Return the part of a delivery that stands for this notice."""
        return Unknown(
            {"type": _NOTICE, "question_id": self.question_id, "is_reminder": self.is_reminder}
        )


def notice_of(parts: Sequence[Part]) -> Notice | None:
    """Return the notice among the parts of a delivery."""
    for part in parts:
        if isinstance(part, Unknown) and part.data.get("type") == _NOTICE:
            return Notice(part.data["question_id"], part.data["is_reminder"])
    return None


def summary(question: Question) -> str:
    """Return what is asked on one line, in which every character can be seen."""
    asked = question.asked
    is_approval = asked.kind is QuestionKind.APPROVAL
    return _shown(f"May the tool {asked.tool} be called?" if is_approval else asked.text)


def question_data(question: Question, *, is_reminder: bool = False) -> Mapping[str, Any]:
    """Return what a browser is told of a question; it finds the words in its own language.

    Not the arguments of a call: they cannot be read there whole, so nothing is approved there.
    """
    asked, answered = question.asked, question.answered
    data: dict[str, Any] = {
        "id": question.id,
        "session_id": question.session_id,
        "kind": str(asked.kind),
        "state": str(question.state),
        "text": _shown(asked.text),
        "where": _shown(question.body.where, _LONGEST_NAME),
    }
    if asked.tool is not None:
        data["tool"] = _shown(asked.tool, _LONGEST_NAME)
    if answered is not None:
        data |= {"decision": str(answered.answer.decision), "by": answered.who}
    if is_reminder:
        data["reminder"] = True
    return data


def _shown(text: str, limit: int = _LONGEST_TEXT) -> str:
    return one_line(visible(text[:_SCANNED]), limit)


_BROWSERS = (
    ("Edge", "Edg/|EdgA/|EdgiOS/"),
    ("Opera", "OPR/"),
    ("Samsung Internet", "SamsungBrowser/"),
    ("Firefox", "Firefox/|FxiOS/"),
    ("Chrome", "Chrome/|CriOS/|Chromium/"),
    ("Safari", "Safari/"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("macOS", "Mac OS X|Macintosh"),
    ("ChromeOS", "CrOS"),
    ("Linux", "Linux|X11"),
)


def browser_label(user_agent: str) -> str:
    """Return which browser this is, for people: "Firefox, Linux"."""
    found = [
        next((name for name, pattern in names if re.search(pattern, user_agent)), None)
        for names in (_BROWSERS, _SYSTEMS)
    ]
    return ", ".join(each for each in found if each) or "Browser"
