"""Prompts, summaries and titles."""

from typing import Any

import pytest

from sessionary.agents.registry import DEFAULT_PROMPT, assemble
from sessionary.agents.summaries import ExtractiveSummarizer, ModelSummarizer, ModelTitler
from sessionary.errors import AgentFailed, ContextTooLong, SessionaryError
from sessionary.model.compaction import CompactionLimits
from sessionary.model.prompt import PromptContext, render
from sessionary.model.reset import ResetReason
from sessionary.model.source import Source
from sessionary.model.tokens import estimate
from sessionary.model.transcript import SUMMARY_HEADING, Chat
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
    """Gives the answer that a test has set, or fails; refuses what is longer than its window."""

    def __init__(
        self,
        answer: str | SessionaryError,
        *,
        window: int | None = None,
        says_window: bool = False,
    ) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, str]] = []
        self._window = window
        self._says_window = says_window

    async def ask(self, system_prompt: str, text: str, *, task: str) -> tuple[str, Usage]:
        self.asked.append((system_prompt, text, task))
        if self._window is not None and estimate(text) > self._window:
            raise ContextTooLong("too long", self._window if self._says_window else None)
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

    await ModelSummarizer(fake, most_tokens=250).summarize(CHATS * 100, focus=None)

    assert all(len(text) < 1100 for _, text, _ in fake.asked)
    assert len(fake.asked) > 10, "in parts"
    assert all("(Summary of what came before)\nTea." in text for _, text, _ in fake.asked[1:])


@pytest.mark.parametrize("word", ["kettle ", "чайник ", "水壶"])
async def test_no_question_is_longer_than_half_the_window_in_any_script(word: str) -> None:
    fake = Fake("Tea.")
    chats: list[Any] = [{"role": "user", "content": word * 400}] * 30

    await ModelSummarizer(fake).summarize(chats, focus=None, limits=CompactionLimits(4_000, 2_800))

    assert len(fake.asked) > 1
    assert all(estimate(text) < 2_100 for _, text, _ in fake.asked)


@pytest.mark.parametrize("known", [900, None])
async def test_a_question_that_the_model_cannot_read_is_asked_in_smaller_parts(
    known: int | None,
) -> None:
    """The model's window may be smaller than is known."""
    fake = Fake("Tea.", window=900, says_window=known is not None)
    chats: list[Any] = [{"role": "user", "content": "kettle " * 100}] * 40

    summary, usage = await ModelSummarizer(fake).summarize(
        chats, focus=None, limits=CompactionLimits(8_000, 5_600)
    )

    assert summary == "Tea."
    assert usage is not None


async def test_a_question_that_no_part_of_fits_is_given_up() -> None:
    fake = Fake("Tea.", window=10)

    summary, _ = await ModelSummarizer(fake).summarize(CHATS, focus=None)

    assert "Made without a model" in summary
    assert len(fake.asked) < 8


@pytest.mark.parametrize("word", ["tea ", "茶"])
async def test_a_summary_that_is_too_long_is_cut(word: str) -> None:
    limits = CompactionLimits(4_000, 2_800)

    summary, _ = await ModelSummarizer(Fake(word * 5_000)).summarize(
        CHATS, focus=None, limits=limits
    )

    assert 0 < estimate(summary) <= limits.summary
    assert "[…]" in summary


async def test_a_summary_builds_on_the_one_before() -> None:
    earlier: Any = {"role": "user", "content": f"{SUMMARY_HEADING}\n{'The kettle is red. ' * 800}"}
    fake = Fake("Tea.")

    await ModelSummarizer(fake).summarize([earlier, *CHATS], focus=None)

    ((_, text, _),) = fake.asked
    assert text.count("The kettle is red.") == 800, "it is not shortened like a message"


async def test_an_extract_builds_on_the_one_before() -> None:
    """Otherwise a model that fails for a while would make the agent forget everything."""
    chats: list[Any] = list(CHATS)
    limits, summary = CompactionLimits(8_000, 5_600), ""
    for number in range(20):
        summary, _ = await ModelSummarizer(Fake(AgentFailed("no"))).summarize(
            chats, focus=None, limits=limits
        )
        assert estimate(summary) <= limits.summary + 1
        asked = {"role": "user", "content": f"question {number}"}
        chats = [{"role": "user", "content": f"{SUMMARY_HEADING}\n{summary}"}, asked]

    assert "Where is the kettle?" in summary
    assert "question 18" in summary


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
