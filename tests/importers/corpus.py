"""A sample of every format, and what accidents and enemies make of files."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.importers.base.events import (
    Branch,
    Event,
    Importer,
    MessageEvent,
    SessionBegin,
    Skipped,
    Unit,
)
from tests.importers import (
    test_claude_code,
    test_codex,
    test_openclaw,
    write_aider,
    write_claude_code,
    write_cline,
    write_codex,
    write_copilot,
    write_cursor,
    write_exports,
    write_gemini_cli,
    write_goose,
    write_hermes,
    write_librechat,
    write_llm,
    write_open_webui,
    write_openai_agents,
    write_openclaw,
    write_opencode,
    write_pi,
    write_qwen_code,
)

DEPTH = 100_000
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+(?:Z|[+-]\d{2}:\d{2})")
Sample = Callable[[Path], Path]


def _claude_code(root: Path) -> Path:
    id = write_claude_code.new_uuid()
    tape = write_claude_code.Tape(root / "projects" / "-home-mia" / f"{id}.jsonl", id)
    test_claude_code.a_morning(tape)
    tape.compact("A summary")
    tape.write()
    return root


def _codex(root: Path) -> Path:
    rollout = write_codex.Rollout(root)
    test_codex.a_morning(rollout)
    rollout.write()
    return root


def _pi(root: Path) -> Path:
    session = write_pi.PiSession("0b9f0ad2-5f0e-4c3c-9f53-0d7f0f2e9a11")
    write_pi.a_day_at_the_mill(session)
    session.write(root)
    return root


def _openclaw(root: Path) -> Path:
    state = write_openclaw.State(root)
    test_openclaw.filled(state)
    state.close()
    return root


def _gemini_cli(root: Path) -> Path:
    session = write_gemini_cli.GeminiSession("bbbb")
    write_gemini_cli.a_day_at_the_mill(session)
    session.write(root)
    return root


def _qwen_code(root: Path) -> Path:
    session = write_qwen_code.QwenSession("bbbb")
    write_qwen_code.a_day_at_the_mill(session)
    session.write(root)
    return root


def _opencode(root: Path) -> Path:
    session = write_opencode.OpenCodeSession("ses_1")
    write_opencode.a_day_at_the_mill(session)
    session.put(root / "opencode.db")
    return root


def _cursor(root: Path) -> Path:
    made = write_cursor.CursorUser(root)
    made.composer("c0ffee", write_cursor.a_day_at_the_mill())
    return made.root


def _copilot(root: Path) -> Path:
    write_copilot.Chat(root, "chat-1").write_document(write_copilot.a_day_at_the_mill())
    run = write_copilot.Run(root)
    write_copilot.a_day_on_the_line(run)
    run.write()
    return root


def _open_webui(root: Path) -> Path:
    row = write_open_webui.row("chat-1", write_open_webui.a_day_at_the_mill())
    write_open_webui.put(root / "webui.db", row)
    return root


def _librechat(root: Path) -> Path:
    talk = write_librechat.export(write_librechat.a_day_at_the_mill(), is_tree=True)
    (root / "talk.json").write_text(json.dumps(talk))
    return root


def _cline(root: Path) -> Path:
    task = write_cline.Task(root)
    write_cline.a_day_at_the_mill(task)
    task.write()
    return root


def _goose(root: Path) -> Path:
    base = write_goose.GooseBase(root, ledger=True)
    base.session("20260201_1")
    write_goose.a_day_at_the_mill(base, "20260201_1")
    base.close()
    return root


def _hermes(root: Path) -> Path:
    database = write_hermes.StateDb(root / "state.db", 22)
    database.session("s1", [*write_hermes.talk(), *write_hermes.rich()], title="Folders")
    database.close()
    write_hermes.transcript(root / "sessions" / "s2.jsonl", write_hermes.talk())
    write_hermes.web_session(root / "webui", "0123456789ab", write_hermes.talk(), title="Web")
    return root


def _chatgpt(root: Path) -> Path:
    talks = [write_exports.chatgpt_talk().data]
    more = {"file-ABC123-cat.png": write_exports.PIXEL}
    write_exports.zipped(root / "export.zip", {"conversations.json": talks}, more)
    other = write_exports.ChatGptTalk("conv-2").say("q", "user", "hello").data
    (root / "conversations.json").write_text(json.dumps([other]))
    return root


def _claude_ai(root: Path) -> Path:
    (root / "conversations.json").write_text(json.dumps([write_exports.claude_talk()]))
    return root


def _openai_agents(root: Path) -> Path:
    items = write_openai_agents.a_day_at_the_mill()
    write_openai_agents.add(root / "talks.db", "ann", *items)
    return root


def _llm(root: Path) -> Path:
    log = write_llm.Log(root)
    write_llm.a_day_at_the_mill(log)
    log.close()
    return root


def _aider(root: Path) -> Path:
    (root / "mill").mkdir()
    (root / "mill" / ".aider.chat.history.md").write_text(write_aider.FIRST + write_aider.SECOND)
    return root


SAMPLES: dict[str, Sample] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "pi": _pi,
    "openclaw": _openclaw,
    "gemini-cli": _gemini_cli,
    "qwen-code": _qwen_code,
    "opencode": _opencode,
    "cursor": _cursor,
    "copilot": _copilot,
    "open-webui": _open_webui,
    "librechat": _librechat,
    "cline": _cline,
    "goose": _goose,
    "hermes": _hermes,
    "openai-agents": _openai_agents,
    "llm": _llm,
    "aider": _aider,
    "chatgpt": _chatgpt,
    "claude-ai": _claude_ai,
}


def sample(name: str, root: Path) -> Path:
    """Files of a format, in a new directory."""
    root.mkdir(parents=True)
    return SAMPLES[name](root)


def files_of(place: Path) -> list[Path]:
    """Every regular file of a sample."""
    return sorted(each for each in place.rglob("*") if each.is_file() and not each.is_symlink())


class Heard:
    """What an importer says of a place: messages, sessions, faults."""

    def __init__(self, importer: Importer, place: Path) -> None:
        self.messages: list[MessageEvent] = []
        # How many messages each session has, by its name.
        self.counts: Counter[str] = Counter()
        self.faults = 0
        self._name = ""
        for unit in _units(importer, place, self):
            self._hear(importer, unit)

    def _hear(self, importer: Importer, unit: Unit) -> None:
        try:
            for event in importer.read(unit, None):
                self._take(event)
        except BadInput:
            self.faults += 1

    def _take(self, event: Event) -> None:
        messages: list[MessageEvent] = []
        if isinstance(event, MessageEvent):
            messages = [event]
        elif isinstance(event, Branch):
            messages = [each for each in event.items if isinstance(each, MessageEvent)]
        elif isinstance(event, Skipped):
            self.faults += 1
        elif isinstance(event, SessionBegin):
            self._name = event.native_id
        self.messages += messages
        self.counts[self._name] += len(messages)


def _units(importer: Importer, place: Path, replayed: Heard) -> Iterator[Unit]:
    try:
        yield from importer.find(place)
    except BadInput:
        replayed.faults += 1


def linked(path: Path, aside: Path) -> None:
    """A link to what the file was."""
    target = aside / path.name
    shutil.move(path, target)
    path.symlink_to(target)


def piped(path: Path, aside: Path) -> None:
    """A pipe that nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def a_directory(path: Path, aside: Path) -> None:
    """A directory of that name."""
    path.unlink()
    path.mkdir()


def emptied(path: Path, aside: Path) -> None:
    """A file of no bytes."""
    path.write_bytes(b"")


def zeroed(path: Path, aside: Path) -> None:
    """What is left after a power cut: the length, and no words."""
    path.write_bytes(b"\x00" * path.stat().st_size)


def deep(path: Path, aside: Path) -> None:
    """Brackets in brackets in brackets."""
    path.write_bytes(b'{"messages":' + b"[" * DEPTH + b"]" * DEPTH + b"}\n")


def wide(path: Path, aside: Path) -> None:
    """A list of very many things that are nothing."""
    path.write_bytes(b"[" + b"{}," * 200_000 + b"{}]\n")


def marked(path: Path, aside: Path) -> None:
    """A byte order mark before everything."""
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


ODD: list[Callable[[Path, Path], None]] = [piped, a_directory, emptied, zeroed, deep, wide, marked]


def renamed(place: Path, before: str, after: str) -> None:
    """Another name for a session, wherever its files say it."""
    old, new = json.dumps(before)[1:-1], json.dumps(after)[1:-1]
    for path in files_of(place):
        if path.suffix in (".json", ".jsonl"):
            path.write_text(path.read_text().replace(old, new))


def counted(value: Any, number: Any) -> Any:
    """The same with each of its numbers replaced."""
    if isinstance(value, dict):
        return {name: counted(each, number) for name, each in value.items()}
    if isinstance(value, list):
        return [counted(each, number) for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number if is_number else value


def with_numbers(place: Path, number: Any) -> None:
    """Every number in every file of JSON is another one."""
    for path in files_of(place):
        if path.suffix == ".json":
            path.write_text(json.dumps(counted(json.loads(path.read_text()), number)))
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(counted(each, number)) + "\n" for each in lines))


def with_times(place: Path, time: str) -> None:
    """Every time that is written out in a file of text is another one."""
    for path in files_of(place):
        if path.suffix in (".json", ".jsonl", ".md"):
            path.write_text(_TIME.sub(time, path.read_text()))
