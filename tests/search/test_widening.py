"""What a search does with operators in capitals, people, summaries, and words that nobody wrote."""

import pytest

from sessionary.actions.sessions import revise
from sessionary.model.message import Message, Role, Text, ToolCall, ToolResult, message
from sessionary.model.query import parse
from sessionary.model.source import Person
from tests.search.conftest import Library


@pytest.mark.parametrize(
    ("typed", "meaning"),
    [
        ("apple AND pear", "apple, pear"),
        ("apple NOT pear", "apple, not pear"),
        ("apple AND NOT pear", "apple, not pear"),
        ("apple OR pear AND plum", "apple or pear, plum"),
        ('apple NOT "red pear"', "apple, not “red pear”"),
        ("apple and pear", "apple, and, pear"),
        ("apple not pear", "apple, not, pear"),
        ("AND", "AND"),
        ("apple AND", "apple, AND"),
        ("apple NOT", "apple, NOT"),
        ('apple "NOT" pear', "apple, NOT, pear"),
    ],
)
def test_operators_are_words_in_capitals_between_others(typed: str, meaning: str) -> None:
    assert parse(typed).describe() == meaning


def test_and_and_not_in_capitals_work_as_everyone_expects(library: Library) -> None:
    library.sessions_with("red apple", "green apple", "green pear")

    assert library.texts_of("green AND apple") == {"green apple"}
    assert library.texts_of("apple NOT red") == {"green apple"}
    assert library.texts_of("green AND NOT apple") == {"green pear"}


def test_text_with_operators_in_it_is_still_found_by_quoting_it(library: Library) -> None:
    library.sessions_with("shall it be cats AND NOT dogs")

    assert library.texts_of("cats AND NOT dogs") == {"shall it be cats AND NOT dogs"}


def test_a_word_that_nobody_wrote_finds_longer_words_and_the_answer_says_so(
    library: Library,
) -> None:
    library.sessions_with("the tests are running", "a walk")

    found = library.find("run")

    assert [hit.text for hit in found] == ["the tests are running"]
    assert found.beginnings
    assert not found.relaxed
    assert found.words == "run…"


def test_a_word_that_somebody_wrote_finds_only_itself(library: Library) -> None:
    library.sessions_with("run it", "the tests are running")

    found = library.find("run", all_hits=True)

    assert [hit.text for hit in found] == ["run it"]
    assert not found.beginnings


def test_all_words_as_beginnings_come_before_any_of_the_words(library: Library) -> None:
    library.sessions_with("running tests", "a test", "runners")

    found = library.find("runn tes", all_hits=True)

    assert [hit.text for hit in found] == ["running tests"]
    assert found.beginnings
    assert not found.relaxed


def test_any_beginning_will_do_when_nothing_else_is_found(library: Library) -> None:
    library.sessions_with("runners")

    found = library.find("runn zebra")

    assert [hit.text for hit in found] == ["runners"]
    assert found.beginnings
    assert found.relaxed


def test_quoted_words_and_single_letters_are_not_widened(library: Library) -> None:
    library.sessions_with("the tests are running")

    assert library.find('"tests run"').hits == ()
    assert library.find("r").hits == ()


def test_the_summary_of_a_compaction_is_found(library: Library) -> None:
    session = library.session("hello")
    library.append(session, message("assistant", "hi"))
    library.write(
        revise.compact,
        session,
        "They greeted each other like flamingos.",
        profile=library.profile,
        through=2,
        at=library.clock.tick(),
    )

    (hit,) = library.find("flamingos")

    assert hit.role == "summary"
    assert hit.session.id == session
    assert hit.text == "They greeted each other like flamingos."
    assert "⟦flamingos⟧" in hit.snippet


def test_the_name_of_a_tool_finds_its_calls_and_its_results(library: Library) -> None:
    session = library.session("hello")
    call = ToolCall("c1", "fetch_weather", {"city": "Oslo"})
    library.append(session, Message(Role.ASSISTANT, (call,)))
    result = ToolResult("c1", "rain", "fetch_weather")
    library.append(session, Message(Role.TOOL, (result,)))

    assert {hit.role for hit in library.hits("fetch_weather", steps=True)} == {"assistant", "tool"}


@pytest.mark.parametrize(
    "name", ["alice", "ALICE", "miller", '"Alice Miller"', "u-1", "alice@x.org"]
)
def test_a_search_by_person_finds_only_what_that_person_wrote(library: Library, name: str) -> None:
    session = library.session("hello")
    alice = Person("u-1", "alice@x.org", "Alice Miller")
    for person in (alice, Person("u-2", None, "Bob"), None):
        library.append(session, Message(Role.USER, (Text("lunch at noon"),), person=person))

    found = library.hits(f"lunch from:{name}")

    assert [hit.seq for hit in found] == [2]


def test_several_people_may_be_asked_for_and_a_stranger_is_not_found(library: Library) -> None:
    session = library.session("hello")
    for name in ("Alice", "Bob", "Carol"):
        library.append(
            session, Message(Role.USER, (Text("lunch"),), person=Person(name, None, name))
        )

    assert {hit.seq for hit in library.hits("lunch from:alice from:bob")} == {2, 3}
    assert library.hits("lunch from:dave") == []
    assert {hit.seq for hit in library.hits("from:carol")} == {4}
