"""What of a message is searched, and the facts that the index keeps beside its words."""

from datetime import UTC, datetime

from sessionary.model import search_text
from sessionary.model.search_text import MESSAGE, STEPS, Origin, facet, is_facet

ORIGIN = Origin("main", "telegram", 7, datetime(2026, 3, 2, tzinfo=UTC))


def documents(*parts: dict[str, object], role: str = "assistant") -> dict[str, list[str]]:
    made = search_text.entry_documents(role, {"parts": list(parts)}, ORIGIN)
    return {each.area: [word for word in each.words if not is_facet(word)] for each in made}


def test_texts_calls_and_names_of_files_are_shown() -> None:
    assert documents(
        {"type": "text", "text": "Hello"},
        {"type": "tool_call", "name": "read", "arguments": {"path": "a.py"}},
        {"type": "attachment", "name": "photo.jpg"},
    ) == {MESSAGE: ["hello", "read", "path", "a", "py", "photo", "jpg"]}


def test_results_thoughts_and_what_is_unknown_are_steps() -> None:
    found = documents(
        {"type": "text", "text": "Done"},
        {"type": "tool_result", "content": "output"},
        {"type": "reasoning", "text": "thought"},
        {"type": "mystery", "x": "y"},
    )

    assert found[MESSAGE] == ["done"]
    assert found[STEPS] == ["output", "thought", "type", "mystery", "x", "y"]


def test_whatever_a_tool_says_is_a_step() -> None:
    assert documents({"type": "text", "text": "listing"}, role="tool") == {STEPS: ["listing"]}


def test_a_message_without_words_is_a_document_all_the_same() -> None:
    assert documents() == {MESSAGE: []}


def test_the_end_of_a_long_output_is_cut_between_words() -> None:
    found = documents({"type": "tool_result", "content": "abcdefg " * 5_000})

    assert set(found[STEPS]) == {"abcdefg"}
    assert len(found[STEPS]) == search_text.STEP_CHARACTERS // 8


def test_facets_differ_when_what_they_say_differs() -> None:
    values = ["my-bot", "my_bot", "my bot", "mybot", "my.bot"]

    assert len({facet("source", each) for each in values}) == len(values)
    assert facet("source", "Telegram") == facet("source", "telegram")
    assert facet("source", "x") != facet("role", "x")
