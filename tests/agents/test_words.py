"""Prompts, summaries and titles."""

from typing import Any

import pytest

from sessionary.agents.registry import DEFAULT_PROMPT, assemble
from sessionary.agents.summaries import ExtractiveSummarizer, ModelSummarizer, ModelTitler
from sessionary.errors import AgentFailed, SessionaryError
from sessionary.model.prompt import PromptContext, render
from sessionary.model.reset import ResetReason
from sessionary.model.source import Source
from sessionary.model.transcript import Chat
from sessionary.model.usage import Usage

SOURCE = Source("telegram", "7", user_id="ann", user_name="Ann")
USED = Usage(model="m", task="x")
CHATS: list[Chat] = [
    {"role": "user", "content": "Where is the kettle?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "in the kitchen"},
    {"role": "assistant", "content": "It is in the kitchen."},
    {
        "role": "user",
        "content": [
            {"type": "attachment", "name": "tea.png", "blob": "b", "media_type": "image/png"}
        ],
    },
]


class Fake:
    """Gives the answer that a test has set, or fails."""

    def __init__(self, answer: str | SessionaryError) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, str]] = []

    async def ask(self, system_prompt: str, text: str, *, task: str) -> tuple[str, Usage]:
        self.asked.append((system_prompt, text, task))
        if isinstance(self.answer, SessionaryError):
            raise self.answer
        return self.answer, USED


def test_the_prompt_stands_before_the_surroundings_and_the_reset_last() -> None:
    prompt = assemble("Be kind.\n", PromptContext(source=SOURCE, reset=ResetReason.IDLE))

    assert prompt.startswith("Be kind.\n\n## Where you are")
    assert "nobody had written for a while" in prompt.split("\n\n")[-1]


def test_the_same_facts_give_the_same_bytes() -> None:
    one = assemble(None, PromptContext(source=SOURCE, connected=frozenset({"a", "b", "c"})))
    other = assemble(None, PromptContext(source=SOURCE, connected=frozenset({"c", "b", "a"})))

    assert one == other
    assert one.startswith(DEFAULT_PROMPT.strip())


def test_the_turn_after_a_reset_only_shortens_the_prompt() -> None:
    first = assemble(None, PromptContext(source=SOURCE, reset=ResetReason.DAILY))
    second = assemble(None, PromptContext(source=SOURCE))

    assert first.startswith(second)


def test_an_empty_prompt_leaves_the_surroundings_alone() -> None:
    facts = PromptContext(source=SOURCE)

    assert assemble("", facts) == render(facts)


async def test_an_extract_has_requests_tools_focus_and_the_last_answer() -> None:
    summary, usage = await ExtractiveSummarizer().summarize(CHATS, focus="the tea")

    assert usage is None
    for words in ("Where is the kettle?", "look (1)", "the tea", "It is in the kitchen."):
        assert words in summary


@pytest.mark.parametrize("chats", [[], [{"role": "user", "content": "x" * 10**6}] * 500])
async def test_an_extract_is_never_empty_and_never_long(chats: list[Any]) -> None:
    summary, _ = await ExtractiveSummarizer().summarize(chats, focus=None)

    assert 0 < len(summary) < 20_000


async def test_a_model_s_summary_is_taken_with_its_cost() -> None:
    fake = Fake(" Tea. ")

    assert await ModelSummarizer(fake).summarize(CHATS, focus="milk") == ("Tea.", USED)

    ((_, text, task),) = fake.asked
    assert task == "summary"
    assert "assistant: (calls look {})" in text
    assert text.endswith("what concerns: milk")


async def test_the_question_to_the_summarizer_has_a_bound() -> None:
    fake = Fake("Tea.")

    await ModelSummarizer(fake, longest=1000).summarize(CHATS * 100, focus=None)

    assert len(fake.asked[0][1]) < 1100


@pytest.mark.parametrize("answer", [AgentFailed("no"), "  "])
async def test_where_the_model_fails_the_summary_is_an_extract(
    answer: str | SessionaryError,
) -> None:
    summary, _ = await ModelSummarizer(Fake(answer)).summarize(CHATS, focus=None)

    assert "Made without a model" in summary


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Finding the kettle", "Finding the kettle"),
        ('"Finding the kettle."\nIs that right?', "Finding the kettle"),
        ("**Title: Tea**", "Tea"),
        ("", "Where is the kettle?"),
        ("word " * 50, "Where is the kettle?"),
        ("x" * 300, "Where is the kettle?"),
        (AgentFailed("no"), "Where is the kettle?"),
    ],
)
async def test_a_title_is_always_found(answer: str | SessionaryError, title: str) -> None:
    found, _ = await ModelTitler(Fake(answer)).title("Where is the kettle?", "There.")

    assert found == title


async def test_without_a_model_the_first_words_are_the_title() -> None:
    assert await ModelTitler().title("# Tea\nplease", "ok") == ("Tea", None)


async def test_no_words_no_title_and_nobody_is_asked() -> None:
    fake = Fake("Tea")

    assert await ModelTitler(fake).title("  ", "ok") == (None, None)
    assert fake.asked == []
