"""A program written for Hermes runs over Sessionary, is killed, and goes on in another process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionary.actions.sessions import read
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from tests.compat.hermes.conftest import Opener
from tests.project.code import ROOT


class Talk:
    """The program in a process of its own, spoken to line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def say(self, chat: str, text: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{chat} {text}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def running(address: str, home: Path) -> Iterator[Talk]:
    url = address if "://" in address else f"sqlite:///{address}"
    environ = {**os.environ, "SESSIONARY_DATABASE": url, "SESSIONARY_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.compat.hermes.program"],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Talk(process)
        process.kill()


def test_a_gateway_goes_on_after_it_was_killed(
    address: str, open_db: Opener, tmp_path: Path
) -> None:
    with running(address, tmp_path) as talk:
        assert talk.say("7", "plan the harbour") == "answer 1 to plan the harbour"
        assert talk.say("7", "and the pier") == "answer 2 to and the pier"
        assert talk.say("7", "/title Harbour") == "named"
        assert talk.say("8", "hello") == "answer 1 to hello"

    with running(address, tmp_path) as talk:
        assert talk.say("7", "and the crane") == "answer 3 to and the crane"
        assert talk.say("7", "and the boats") == "answer 4 to and the boats"
        # That was long: the session was compressed, and goes on in its continuation.
        assert talk.say("8", "/resume Harbour") == "resumed with 1 messages"
        assert talk.say("7", "go on") == "answer 2 to go on"
        assert talk.say("8", "/search crane") == '["and the >>>crane<<<"]'
        assert talk.say("7", "/new").startswith("new session ")
        assert talk.say("7", "afresh") == "answer 1 to afresh"

    db = open_db()
    [chain] = [each for each in db.list_sessions_rich() if "_lineage_root_id" in each]
    assert (chain["title"], chain["message_count"]) == ("Harbour #2", 5)
    whole = db.get_messages_as_conversation(chain["id"], include_ancestors=True)
    assert [each["content"] for each in whole if each["role"] == "user"] == [
        "plan the harbour",
        "and the pier",
        "and the crane",
        "and the boats",
        "[summary] so far",
        "go on",
    ]
    heads = db._store.read(list_sessions, SessionFilters(), profile="main").items
    assert sum(head.message_count for head in heads) == db.message_count()
    assert all(head.usage.cost_microusd for head in heads if head.usage.calls)
    [newest] = [head for head in heads if head.preview == "afresh"]
    context = db._store.read(read.read_context, newest.id, profile="main")
    assert [chat["role"] for chat in context] == ["user", "assistant", "tool", "assistant"]
