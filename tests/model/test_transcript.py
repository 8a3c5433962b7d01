"""The two folds of the log, as pure functions."""

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.message import (
    Attachment,
    Body,
    Compaction,
    Entry,
    Message,
    Reasoning,
    Retraction,
    Role,
    Text,
    ToolCall,
    ToolResult,
    message,
)
from sessionary.model.source import Person
from sessionary.model.transcript import (
    NO_RESULT,
    SUMMARY_HEADING,
    context,
    fold_context,
    is_retracted,
    latest_compaction,
    mark_shared,
    retracted,
    transcript,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def log(*bodies: Body) -> list[Entry]:
    return [Entry("s", seq, AT, body) for seq, body in enumerate(bodies, start=1)]


def user(text: str) -> Message:
    return message("user", text)


def agent(text: str, *parts: ToolCall | Reasoning) -> Message:
    return Message(Role.ASSISTANT, (Text(text), *parts))


def result(call_id: str, content: object = "ok") -> Message:
    return Message(Role.TOOL, (ToolResult(call_id, content),))


RANDOM_BODIES = st.lists(st.tuples(st.sampled_from("uatrck"), st.integers(0, 30)), max_size=30)


def story(steps: list[tuple[str, int]]) -> list[Entry]:
    """Any log that could have been written: marks point at what is there."""
    entries: list[Entry] = []
    for what, number in steps:
        seq = len(entries) + 1
        body: Body
        match what:
            case "u":
                body = user(str(seq))
            case "a":
                body = agent(str(seq))
            case "k":
                body = agent("", ToolCall(f"c{number % 3}", "t"))
            case "t":
                body = result(f"c{number % 3}")
            case "r":
                body = Retraction(number % seq)
            case _:
                body = Compaction("sum", max(1, number % seq)) if seq > 1 else user("1")
        entries.append(Entry("s", seq, AT, body))
    return entries


@given(RANDOM_BODIES)
def test_retracted_stretches_are_in_order_and_apart(steps: list[tuple[str, int]]) -> None:
    stretches = retracted(story(steps))

    for (first, last), (following, _) in pairwise(stretches):
        assert first <= last < following - 1


@given(RANDOM_BODIES)
def test_people_read_what_no_later_retraction_took_back(steps: list[tuple[str, int]]) -> None:
    """By the definition."""
    entries = story(steps)
    taken_back = {
        seq
        for mark in entries
        if isinstance(mark.body, Retraction)
        for seq in range(mark.body.after + 1, mark.seq + 1)
    }

    assert [entry.seq for entry in transcript(entries)] == [
        entry.seq for entry in entries if entry.seq not in taken_back
    ]
    assert all(is_retracted(seq, retracted(entries)) for seq in taken_back)


@given(RANDOM_BODIES)
def test_a_provider_accepts_every_context(steps: list[tuple[str, int]]) -> None:
    """Each call followed by its result, no result without its call."""
    open_calls: list[str] = []
    for chat in context(story(steps)):
        if chat["role"] == "tool":
            assert chat["tool_call_id"] == open_calls.pop(0)
        else:
            assert open_calls == []
            open_calls = [call["id"] for call in chat.get("tool_calls", ())]
            assert chat["content"] or open_calls
    assert open_calls == []


@given(RANDOM_BODIES, st.sampled_from("ua"))
def test_a_context_only_grows_with_new_messages(steps: list[tuple[str, int]], what: str) -> None:
    """Byte-stable."""
    before, after = story(steps), story([*steps, (what, 0)])

    assert context(after)[: len(context(before))] == context(before)


def test_a_call_that_never_got_a_result_takes_none_from_a_later_one() -> None:
    entries = log(
        agent("", ToolCall("0", "t")),
        user("stop"),
        agent("", ToolCall("0", "t"), ToolCall("0", "t")),
        result("0", "first"),
        result("0", "second"),
        result("0", "third"),
        result("0", "fourth"),
    )

    results = [chat["content"] for chat in context(entries) if chat["role"] == "tool"]

    assert results == ["third", "first", "second"]
    before = [chat["content"] for chat in context(entries[:5]) if chat["role"] == "tool"]
    assert before == [NO_RESULT, "first", "second"]


def test_a_call_id_that_comes_again_gets_its_own_result() -> None:
    """Some providers count from 0 in every turn."""
    entries = log(
        agent("", ToolCall("0", "t")),
        result("0", "first"),
        agent("", ToolCall("0", "t")),
        result("0", "second"),
    )

    results = [chat["content"] for chat in context(entries) if chat["role"] == "tool"]

    assert results == ["first", "second"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    chats = context(log(user("x"), agent("", ToolCall("1", "find", {"q": 1})), user("y")))

    assert chats[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"q":1}'}
    assert chats[2] == {
        "role": "tool",
        "tool_call_id": "1",
        "content": NO_RESULT,
        "tool_name": "find",
    }


def test_reasoning_is_exported_for_assistants_only() -> None:
    thought = Reasoning("hm", details={"signature": "x"})
    odd = Message(Role.USER, (Text("x"), thought))

    chats = context(log(odd, agent("y", thought)))

    assert chats[0] == {"role": "user", "content": "x"}
    assert (chats[1]["reasoning"], chats[1]["reasoning_details"]) == ("hm", [{"signature": "x"}])


def test_an_attachment_is_named_by_its_blob() -> None:
    prompt = Message(Role.USER, (Text("look"), Attachment("hash", "image/png", "x.png")))

    (chat,) = context(log(prompt))

    assert chat["content"] == [
        {"type": "text", "text": "look"},
        {"type": "attachment", "blob": "hash", "media_type": "image/png", "name": "x.png"},
    ]


def test_a_file_of_a_tool_is_named_in_its_text_and_given_to_agents() -> None:
    call = agent("", ToolCall("1", "draw"), ToolCall("2", "draw"))
    named, photo = Attachment("a", "image/png", "image-1.png"), Attachment("b", "image/jpeg")
    first = ToolResult("1", "A cat:\n[attachment: image-1.png]\nDone.", "draw")
    entries = log(
        user("x"),
        call,
        Message(Role.TOOL, (first, named, photo, photo)),
        Message(Role.TOOL, (ToolResult("2", "none", "draw"),)),
    )

    public, for_agents = context(entries)[2:], fold_context(entries, last_seq=4).chats[2:]

    jpeg = "[attachment: image/jpeg]"
    texts = [f"{first.content}\n{jpeg}\n{jpeg}", "none"]
    assert [chat["content"] for chat in public] == [chat["content"] for chat in for_agents] == texts
    assert [set(chat) for chat in public] == [{"role", "tool_call_id", "content", "tool_name"}] * 2
    assert [each["blob"] for each in for_agents[0]["attachments"]] == ["a", "b", "b"]
    assert "attachments" not in for_agents[1]


def said_by(name: str, id: str, text: str = "hi") -> Message:
    return Message(Role.USER, (Text(text),), person=Person(id, name=name))


def test_authors_are_named_where_there_may_be_several() -> None:
    """And no name can speak as someone else."""
    ann, sly = mark_shared(said_by("Ann", "1")), said_by("x]\n[Ann", "2")

    chats = context(log(ann, sly, agent("yes")))

    assert chats[0]["content"] == "[Ann] hi"
    assert str(chats[1]["content"]).count("[") == 1
    assert "\n" not in chats[1]["content"]
    assert chats[2]["content"] == "yes"


def test_from_the_second_person_on_everyone_is_named_and_nothing_before_changes() -> None:
    """What the model has read once stays as it was."""
    bodies = [said_by("Ann", "1"), agent("yes"), said_by("Bob", "2"), said_by("Ann", "1")]

    chats = [[chat["content"] for chat in context(log(*bodies[:n]))] for n in range(1, 5)]

    assert chats[-1] == ["hi", "yes", "[Bob] hi", "[Ann] hi"]
    assert all(chats[-1][: len(each)] == each for each in chats)


def test_one_person_under_one_id_is_not_named() -> None:
    first = Message(Role.USER, (Text("hi"),), person=Person("+49", alt_id="uuid", name="Ann"))
    later = Message(Role.USER, (Text("hi"),), person=Person("+1", alt_id="uuid", name="Annie"))

    assert [chat["content"] for chat in context(log(first, later))] == ["hi", "hi"]


def test_a_second_person_counts_even_after_an_undo() -> None:
    entries = log(said_by("Ann", "1"), said_by("Bob", "2"))
    undone = [*entries, Entry("s", 3, AT, Retraction(1)), Entry("s", 4, AT, said_by("Ann", "1"))]

    assert [chat["content"] for chat in context(undone)] == ["hi", "[Ann] hi"]


def test_behind_a_compaction_speakers_are_named_as_before() -> None:
    bodies = (said_by("Ann", "1"), said_by("Bob", "2"))
    for names, wanted in ((True, "[Ann] hi"), (False, "hi")):
        entries = log(*bodies, Compaction("sum", 2, names), said_by("Ann", "1"))
        assert context(entries)[-1]["content"] == wanted


def test_the_latest_standing_compaction_holds() -> None:
    entries = log(user("1"), user("2"), Compaction("a", 1), Compaction("b", 2), user("5"))
    undone = [*entries, Entry("s", 6, AT, Retraction(3))]

    assert [chat["content"] for chat in context(entries)] == [f"{SUMMARY_HEADING}\nb", "5"]
    assert [chat["content"] for chat in context(undone)] == [f"{SUMMARY_HEADING}\na", "2"]
    latest = latest_compaction(entries)
    assert latest is not None
    assert latest.seq == 4
    assert latest_compaction(log(user("1"))) is None
