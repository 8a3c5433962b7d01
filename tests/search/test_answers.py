"""What an answer says: filters, ranking, neighbours, what is left out, what was perhaps meant."""

from datetime import datetime

import pytest

from sessionary.actions.search import index
from sessionary.actions.sessions import edit, projects
from sessionary.errors import BadInput
from sessionary.model.message import Message, Reasoning, Role, Text, ToolCall, ToolResult, message
from sessionary.model.snippet import CLOSE, OPEN
from sessionary.model.source import Source
from tests.search.conftest import Library

WEB = Source("web", "web-chat", user_id="ann")


def tool(text: str, name: str = "shell") -> Message:
    return Message(Role.TOOL, (ToolResult("c1", text, name),))


def test_a_message_is_found_as_soon_as_its_append_has_returned(library: Library) -> None:
    session = library.session("hello")
    for number in range(5):
        library.append_text(session, f"pineapple number{number}")

        assert library.find(f"number{number}").total == 1
    assert library.find("pineapple", all_hits=True).total == 5


def test_a_hit_says_where_when_and_by_whom(library: Library) -> None:
    session = library.session("what is a pineapple?", "A fruit.", "thanks a lot", title="Fruit")

    (hit,) = library.find("pineapple").hits

    assert hit.session.id == session
    assert (hit.seq, hit.role, hit.id) == (1, "user", f"{session}-1")
    assert hit.snippet == f"what is a {OPEN}pineapple{CLOSE}?"
    assert (hit.before, hit.after) == (None, "A fruit.")
    assert isinstance(hit.at, datetime)
    assert hit.score > 0


def test_neighbours_are_of_the_same_session(library: Library) -> None:
    one, two = library.session("one begins"), library.session("two begins")
    library.append_text(one, "apple", role="assistant")
    library.append_text(two, "cherry", role="assistant")
    library.append_text(one, "one ends")

    (hit,) = library.find("apple").hits

    assert (hit.before, hit.after) == ("one begins", "one ends")


def test_neighbours_pass_over_tools(library: Library) -> None:
    session = library.session("list the files")
    library.append(session, tool("a.txt b.txt"))
    library.append_text(session, "two files, aardvark", role="assistant")

    (hit,) = library.find("aardvark").hits

    assert hit.before == "list the files"


def test_each_session_shows_its_best_hit_unless_all_are_wanted(library: Library) -> None:
    session = library.session(*["mango"] * 6)
    library.session("mango too")

    found = library.find("mango")

    assert found.total == 7
    assert len(found.hits) == 2
    assert {hit.in_session for hit in found} == {6, 1}
    assert len(library.find("mango", all_hits=True).hits) == 7
    assert len(library.find("mango", session=session).hits) == 6


def test_relevance_puts_the_short_and_frequent_first_and_newest_puts_the_last_first(
    library: Library,
) -> None:
    best = library.session("kiwi kiwi kiwi")
    long = library.session("kiwi " + "and many other words in a long text " * 20)

    assert [hit.session.id for hit in library.find("kiwi", sort="relevance")] == [best, long]
    assert [hit.session.id for hit in library.find("kiwi", sort="newest")] == [long, best]


def test_tool_output_is_left_out_and_counted(library: Library) -> None:
    session = library.session("look at the papaya")
    library.append(session, tool("papaya in a tool's output"))
    thought = Message(Role.ASSISTANT, (Reasoning("papaya in a thought"), Text("I see.")))
    library.append(session, thought)

    found = library.find("papaya", all_hits=True)

    assert [hit.text for hit in found] == ["look at the papaya"]
    assert found.step_hits == 2
    assert library.find("papaya", all_hits=True, steps=True).total == 3
    assert [hit.role for hit in library.find("papaya role:tool")] == ["tool"]


def test_tool_calls_are_found_by_name_and_arguments(library: Library) -> None:
    session = library.session("go")
    call = Message(Role.ASSISTANT, (ToolCall("c1", "read_file", {"path": "src/app/main.py"}),))
    library.append(session, call)
    library.append(session, tool("the content", name="read_file"))

    assert library.find("read_file main.py").total == 1
    assert {hit.role for hit in library.hits("tool:read_file")} == {"assistant", "tool"}
    assert library.hits("tool:shell") == []


def test_the_end_of_a_very_long_tool_output_is_not_searched(library: Library) -> None:
    session = library.session("go")
    library.append(session, tool("early " + "word " * 5_000 + "late"))

    assert library.find("early", steps=True).total == 1
    assert library.find("late", steps=True).total == 0


def test_titles_are_found_and_follow_renames(library: Library) -> None:
    session = library.session("hello", title="Quarterly figures")
    hit = library.find("quarterly").hits[0]
    assert (hit.role, hit.seq, hit.text) == ("title", 0, "Quarterly figures")

    library.write(edit.rename, session, "Yearly figures", profile="main")

    assert library.find("quarterly").total == 0
    assert [hit.session.id for hit in library.find("yearly")] == [session]
    library.write(edit.pin, session, profile="main", pinned=True)
    assert library.find("yearly").total == 1


def test_filters_narrow_and_can_be_combined(library: Library) -> None:
    one = library.session("a plum for ann", "a plum for the agent", title="Red plums")
    two = library.session("a plum on the web", source=WEB)

    assert {hit.session.id for hit in library.find("plum source:telegram")} == {one}
    assert {hit.session.id for hit in library.find("plum", source="WEB")} == {two}
    assert {hit.role for hit in library.hits("plum role:assistant")} == {"assistant"}
    assert len(library.hits("plum role:assistant role:user")) == 3
    assert {hit.session.id for hit in library.find(f"plum session:{two}")} == {two}
    assert {hit.session.id for hit in library.find('plum session:"Red plums"')} == {one}
    assert library.hits("plum role:assistant source:web") == []
    assert len(library.hits("source:web")) == 1


def test_times_narrow(library: Library) -> None:
    library.session("guava of march")
    library.clock.tick(days=40)
    library.session("guava of april")
    library.clock.tick(days=400)
    library.session("guava of the next year")

    assert library.texts_of("guava before:2026-03-20") == {"guava of march"}
    assert library.texts_of("guava after:2026-03-20 before:2027") == {"guava of april"}
    assert library.texts_of("guava after:30d") == {"guava of the next year"}
    assert len(library.hits("guava after:2026-03-02")) == 3
    assert library.hits("guava before:1999") == []


def test_projects_narrow(library: Library) -> None:
    one, two = library.session("lychee one"), library.session("lychee two")
    library.session("lychee three")
    for name, session in (("Big Garden", one), ("Shed", two)):
        library.write(projects.add, name, profile="main", moment=library.moment())
        library.write(projects.move_session, session, name, profile="main")

    assert library.texts_of('lychee in:"Big Garden"') == {"lychee one"}
    assert library.texts_of('lychee in:"Big Garden" in:Shed') == {"lychee one", "lychee two"}
    library.write(projects.move_session, one, "Shed", profile="main")
    assert library.texts_of("lychee in:Shed") == {"lychee one", "lychee two"}
    assert library.hits('lychee in:"Big Garden"') == []


def test_a_filter_for_something_unknown_says_so(library: Library) -> None:
    library.session("fig")

    for typed in ("fig in:Nowhere", "fig session:nothing"):
        found = library.find(typed)
        assert found.hits == ()
        assert found.missing is not None


def test_any_of_the_words_will_do_when_all_find_nothing_and_the_answer_says_so(
    library: Library,
) -> None:
    library.session("only the date is here")

    found = library.find("date palm")

    assert found.relaxed
    assert found.words == "date or palm"
    assert [hit.text for hit in found] == ["only the date is here"]
    assert not library.find("date only").relaxed


def test_either_or_and_without(library: Library) -> None:
    library.sessions_with("red apple", "green apple", "green pear")

    assert library.texts_of("red OR pear") == {"red apple", "green pear"}
    assert library.texts_of("apple -red") == {"green apple"}
    assert library.texts_of("gre*") == {"green apple", "green pear"}
    assert library.texts_of('"green apple"') == {"green apple"}
    assert library.texts_of("-green") == {"green apple", "green pear"}


def test_a_near_spelling_is_suggested_when_nothing_is_found(library: Library) -> None:
    library.session("the database is slow")

    found = library.find("databse")

    assert (found.total, found.suggestion) == (0, "database")
    assert library.find("database").suggestion is None


def test_the_query_is_shown_back_in_words(library: Library) -> None:
    library.session("an apple with red wine and peas")

    found = library.find('apple "red wine" pea* -sour role:user after:2026-01-01')

    assert found.total == 1
    assert found.words == ("apple, “red wine”, pea…, not sour, role user, after 2026-01-01 00:00")
    assert library.find("").words == "nothing to look for"


def test_pages_follow_each_other_while_others_write(library: Library) -> None:
    for number in range(25):
        library.session(f"olive {number}")
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        found = library.find("olive", limit=10, cursor=cursor)
        seen += [hit.text for hit in found]
        library.session("olive of later")
        cursor = found.next
        if cursor is None:
            break

    assert sorted(seen) == sorted(f"olive {number}" for number in range(25))


def test_pages_go_on_behind_the_first_candidates(library: Library) -> None:
    session = library.session("start")
    library.write(_many, session, 1_100)

    found = library.find("grape", all_hits=True, limit=200)
    assert (found.total, found.more) == (index.CANDIDATES, True)
    seen = {hit.seq for hit in found}
    while found.next is not None:
        found = library.find("grape", all_hits=True, limit=200, cursor=found.next)
        seen |= {hit.seq for hit in found}

    assert len(seen) == 1_100


def test_a_later_page_does_not_go_on_with_longer_words(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.sessions_with("two walruses", "a walrus", "another walrus")
    monkeypatch.setattr(index, "ASKED", 2)
    monkeypatch.setattr(index, "ENOUGH", 2)

    first = library.find("walrus", all_hits=True)
    later = library.find("walrus", all_hits=True, cursor=first.next)

    assert (first.total, first.beginnings) == (2, False)
    assert first.next is not None
    assert (later.total, later.beginnings, later.next) == (0, False, None)


@pytest.mark.parametrize(
    "wish", [{"limit": 0}, {"limit": 1000}, {"sort": "magic"}, {"cursor": "x"}]
)
def test_invalid_search_options_are_refused(library: Library, wish: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        library.find("anything", **wish)


def _many(tx, session: str, count: int) -> None:  # type: ignore[no-untyped-def]
    from sessionary.actions.sessions import log
    from sessionary.testing.fakes import START

    for number in range(count):
        log.append(tx, session, message("user", f"grape {number}"), profile="main", at=START)
