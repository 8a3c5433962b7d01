"""A file that someone names without saying what it is finds its importer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sessionary.importers import registry
from tests.importers import (
    write_aider,
    write_cline,
    write_copilot,
    write_cursor,
    write_gemini_cli,
    write_goose,
    write_librechat,
    write_llm,
    write_open_webui,
    write_openai_agents,
    write_openclaw,
    write_opencode,
    write_pi,
    write_qwen_code,
)


def pi(root: Path) -> Path:
    session = write_pi.PiSession("one")
    session.user("a")
    return session.write(root)


def openclaw(root: Path) -> Path:
    state = write_openclaw.State(root / "state")
    session = write_pi.PiSession("one")
    session.user("a")
    state.files({"agent:main:main": {"sessionId": "one"}}, session)
    state.window("agent:main:main", session)
    state.close()
    return state.path


def gemini_cli(root: Path) -> Path:
    session = write_gemini_cli.GeminiSession("one")
    session.message("user", "a")
    return session.write(root)


def qwen_code(root: Path) -> Path:
    session = write_qwen_code.QwenSession("one")
    session.user(write_qwen_code.text("a"))
    return session.write(root)


def opencode(root: Path) -> Path:
    session = write_opencode.OpenCodeSession("ses_1")
    write_opencode.a_day_at_the_mill(session)
    session.put(root / "opencode.db")
    return root / "opencode.db"


def cursor(root: Path) -> Path:
    user = write_cursor.CursorUser(root)
    user.composer("one", write_cursor.a_day_at_the_mill())
    return user.path


def copilot_chat(root: Path) -> Path:
    return write_copilot.Chat(root).write_document(write_copilot.a_day_at_the_mill())


def copilot_run(root: Path) -> Path:
    return write_copilot.Run(root).write()


def open_webui(root: Path) -> Path:
    path = root / "webui.db"
    write_open_webui.put(path, write_open_webui.row("one", write_open_webui.a_day_at_the_mill()))
    return path


def open_webui_export(root: Path) -> Path:
    chat = write_open_webui.row("one", write_open_webui.a_day_at_the_mill())
    return _json(root / "export.json", [chat])


def librechat(root: Path) -> Path:
    talk = write_librechat.export(write_librechat.a_day_at_the_mill())
    return _json(root / "talk.json", talk)


def cline(root: Path) -> Path:
    task = write_cline.Task(root)
    write_cline.a_day_at_the_mill(task)
    return task.write() / "api_conversation_history.json"


def goose(root: Path) -> Path:
    base = write_goose.GooseBase(root)
    base.session("one")
    base.close()
    return base.path


def openai_agents(root: Path) -> Path:
    write_openai_agents.add(root / "talks.db", "ann", write_openai_agents.user("a"))
    return root / "talks.db"


def llm(root: Path) -> Path:
    log = write_llm.Log(root)
    write_llm.a_day_at_the_mill(log)
    log.close()
    return log.path


def aider(root: Path) -> Path:
    path = root / ".aider.chat.history.md"
    path.write_text(write_aider.FIRST)
    return path


def _json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


SAMPLES: list[tuple[str, Callable[[Path], Path]]] = [
    ("pi", pi),
    ("openclaw", openclaw),
    ("gemini-cli", gemini_cli),
    ("qwen-code", qwen_code),
    ("opencode", opencode),
    ("cursor", cursor),
    ("copilot", copilot_chat),
    ("copilot", copilot_run),
    ("open-webui", open_webui),
    ("open-webui", open_webui_export),
    ("librechat", librechat),
    ("cline", cline),
    ("goose", goose),
    ("openai-agents", openai_agents),
    ("llm", llm),
    ("aider", aider),
]


@pytest.mark.parametrize(
    ("name", "write"), SAMPLES, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_record_finds_its_importer_and_no_other(
    name: str, write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write(tmp_path)

    claims = [each.name for each in registry.importers() if each.recognises(path)]

    found = registry.recognise(path)
    assert found is not None
    assert found.name == name
    # OpenClaw writes Pi's format into files of its own.
    assert set(claims) <= {name, "pi" if name == "openclaw" else name}
