"""A sample of every format."""

import json
from pathlib import Path

from sessionary.testing.importer_world import Sample
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
