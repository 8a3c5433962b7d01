"""A session's own agent, model, persona and tools in Python."""

from pathlib import Path

import pytest

from sessionary import AsyncSessionary, BadInput, Person, Sessionary
from sessionary.engine.ports import TurnRequest

SETTINGS = """
[agents.writer]
kind = "echo"
models = ["small", "large"]

[agents.other]
kind = "echo"

[personas.pirate]
prompt = "Speak like a pirate."
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sessionary.toml").write_text(SETTINGS)
    return tmp_path


def test_a_session_begins_with_what_was_chosen(home: Path) -> None:
    with Sessionary(home=home) as s:
        chat = s.session("alice", agent="other", persona="pirate", tools=["files_*"])
        chat.append("user", "hello")
        again = s.session("alice", agent="writer")
        again.append("user", "more")
        chat.end()
        again.append("user", "anew")

        assert [each.text for each in chat.messages()] == [
            "The agent writer was chosen.",
            "anew",
        ]
        first = s.sessions(is_open=False).items[0]
        assert first.settings == {"agent": "other", "persona": "pirate", "tools": ["files_*"]}
        assert [each.text for each in s.find(first.id).messages()] == [
            "The agent other, the persona pirate and the tools files_* were chosen.",
            "hello",
            "more",
        ]


def test_a_choice_is_changed_and_recorded(home: Path) -> None:
    with Sessionary(home=home) as s:
        chat = s.new_session(agent="writer", model="large")
        chat.append("user", "hello")
        ada = Person("1", name="Ada")

        head = chat.choose(model=None, persona="pirate", by=ada)

        assert head.settings == {"agent": "writer", "persona": "pirate"}
        assert [each.text for each in chat.messages()] == [
            "The agent writer and the model large were chosen.",
            "hello",
            "Ada chose the agent's own model and the persona pirate.",
        ]
        assert [each["content"] for each in chat.context()] == ["hello"]
        with pytest.raises(BadInput, match="There are: pirate"):
            chat.choose(persona="clown")
        with pytest.raises(BadInput, match="There are: other, writer"):
            s.session("bob", agent="nobody")


async def test_an_agent_of_this_process_is_asked_with_what_was_chosen(home: Path) -> None:
    asked: list[TurnRequest] = []

    def answer(request: TurnRequest) -> str:
        asked.append(request)
        return "done"

    async with AsyncSessionary(home=home) as s:
        chat = s.session("alice", model="large", persona="pirate")
        await s.ask("hello", session=chat, agent=answer)
        await chat.choose(tools=[])
        await s.ask("more", session=chat)

        messages = [each.text async for each in chat.messages()]

    assert asked[0].settings == {"model": "large", "persona": "pirate"}
    assert "Speak like a pirate." in asked[0].system_prompt
    assert messages[:3] == [
        "The model large and the persona pirate were chosen.",
        "hello",
        "done",
    ]
    assert messages[3] == "All tools were turned off."


def test_a_fork_and_an_import_have_what_was_chosen(home: Path, tmp_path: Path) -> None:
    with Sessionary(home=home) as s:
        chat = s.session("alice", persona="pirate", tools=["files_*"])
        chat.append("user", "hello")
        fork = chat.fork().head()
        exported = "".join(s.export())
    file = tmp_path / "all.jsonl"
    file.write_text(exported)
    with Sessionary(tmp_path / "other.db", home=home) as s:
        s.imports.jsonl(file)
        found = s.find(str(chat.id))

        assert found.head().settings == fork.settings == {"persona": "pirate", "tools": ["files_*"]}
        assert [each.text for each in found.messages()] == [
            "The persona pirate and the tools files_* were chosen.",
            "hello",
        ]
        assert [each["content"] for each in found.context()] == ["hello"]
