"""An agent that asks people something before it answers, as an installed plug-in: `kind = "asking"`."""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pytest

from sessionary import Sessionary
from sessionary.actions import questions as question_rows
from sessionary.actions import turns
from sessionary.agents import registry
from sessionary.agents.registry import AgentKind
from sessionary.app.engine import build_engine
from sessionary.config.setting import Setting
from sessionary.engine import questions
from sessionary.engine.policy import Asking
from sessionary.engine.ports import Ask, Delta, Event, Step, TurnRequest
from sessionary.model.message import message
from sessionary.model.question import NewQuestion, Question, QuestionKind, outcome_text
from sessionary.model.source import Source
from sessionary.plugins import PluginGroup
from tests.support.packages import Packages

_ROOT = Path(__file__).parents[2]
_SEND = NewQuestion(
    name="1",
    kind=QuestionKind.APPROVAL,
    text="",
    tool="send",
    arguments={"to": "Ann", "text": "See you at 9.\nBring cake."},
    rule="the tool may change something",
)
_HIDDEN = {"path": "/tmp/\u202etxt.exe", "old_string": "a = 1", "new_string": "a = 2"}
_FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where to"},
        "days": {"type": "integer"},
    },
    "required": ["city"],
}
# The agent `slow` streams the rest of its answer when this is set.
MAY_GO_ON = threading.Event()
QUESTIONS = {
    "send": (_SEND,),
    "slow": (_SEND,),
    "edit": (
        NewQuestion(name="1", kind=QuestionKind.APPROVAL, text="", tool="edit", arguments=_HIDDEN),
    ),
    "two": (
        _SEND,
        NewQuestion(
            name="2", kind=QuestionKind.APPROVAL, text="", tool="pay", arguments={"eur": 5}
        ),
    ),
    "choice": (
        NewQuestion(
            name="1",
            kind=QuestionKind.CHOICE,
            text="Which colour?",
            options=("Red", "Green", "Blue"),
        ),
    ),
    "text": (NewQuestion(name="1", kind=QuestionKind.TEXT, text="When shall I come?"),),
    "form": (NewQuestion(name="1", kind=QuestionKind.FORM, text="Where to?", schema=_FORM),),
}
# A table for each of them.
SETTINGS = "[engine]\npoll_seconds = 0.05\nsweep_seconds = 0.05\n" + "".join(
    f'[agents.{name}]\nkind = "asking"\nasks = "{name}"\n' for name in QUESTIONS
)


class AskingRunner:
    """Asks in the first run of a turn, and says in the second what became of it; `plain` in a message asks nothing."""

    def __init__(self, asks: str) -> None:
        self._asked = QUESTIONS[asks]
        self._is_slow = asks == "slow"

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield the events of one run."""
        if "plain" in str(request.context[-1]["content"]) and not request.questions:
            yield Step(message("assistant", "Nothing to ask."))
            return
        if not request.questions:
            yield Step(message("assistant", "I must ask first."))
            yield Ask(self._asked)
            return
        text = "Done: " + " ".join(outcome_text(each) for each in request.questions)
        for word in text.split(" "):
            yield Delta(f"{word} ")
            if self._is_slow:
                await asyncio.to_thread(MAY_GO_ON.wait, 60)
        yield Step(message("assistant", text))

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingSettings:
    """What it asks."""

    asks: Annotated[str, Setting("one of QUESTIONS", example="send")] = "send"


PLUGIN = AgentKind(
    name="asking",
    title="An agent that asks",
    settings=AskingSettings,
    create=lambda settings, _: AskingRunner(settings.asks),
)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kind known to this process and to those that it starts."""
    folder.mkdir(exist_ok=True)
    Packages(folder).install(
        "asking-agent",
        "from tests.support.asking_agent import PLUGIN\n",
        group="sessionary.agents",
        name="asking",
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(_ROOT))))
    group = PluginGroup("sessionary.agents", "agent kind", AgentKind)
    monkeypatch.setattr(registry, "AGENTS", group)


def park_question(home: Path, *, rng: random.Random | None = None) -> Question:
    """Let a turn of a new session wait for an approval, for somebody on Telegram; return the question."""
    with Sessionary(home=str(home)) as client:
        context, moment = build_engine(client.app).context, client.moment()
        chat = client.session(moment.new_id())
        chat.append("user", "hello")
        begun = client.store.write(
            turns.begin_in_session,
            str(chat.id),
            None,
            profile=client.profile,
            claim=turns.Claim("box:1", 60, "clerk"),
            moment=moment,
        ).result()
        client.store.write(
            questions.park,
            begun.lease,
            [_SEND],
            asking=Asking((Source("telegram", "5", user_id="5", user_name="Eva"),), "clerk"),
            context=context if rng is None else replace(context, rng=rng),
            moment=moment,
        ).result()
        (found,) = client.store.read(question_rows.of_turn, begun.lease.turn_id).result()
        return found
