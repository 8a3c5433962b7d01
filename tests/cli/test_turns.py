"""`sessionary turns`: the turns of a session, and what the model was sent in them."""

from sessionary import Sessionary
from sessionary.actions import turns
from sessionary.model.usage import Usage
from tests.cli.conftest import Program


def two_turns(sessionary: Program) -> list[str]:
    """A session with two turns, the first with a tool call; the ids of the turns."""
    ids = []
    with Sessionary(home=str(sessionary.home), create=True) as client:
        chat = client.session("capitals")
        call = {"type": "tool_call", "id": "1", "name": "look", "arguments": {"up": "Paris"}}
        with chat.turn("Capital of France?") as turn:
            turn.append("assistant", [call], usage=Usage(model="tiny", input_tokens=7))
            turn.append("tool", [{"type": "tool_result", "call_id": "1", "content": "Paris"}])
            turn.append("assistant", "Paris.", usage=Usage(model="tiny", input_tokens=12))
            ids.append(turn.id)
        chat.rename("Capitals")
        chat.compact("They asked for Paris.", through=2)
        with chat.turn("And of Italy?") as turn:
            turn.append("assistant", "Rome.", usage=Usage(model="tiny", input_tokens=20))
            ids.append(turn.id)
    return ids


def test_turns_are_listed_with_their_calls(sessionary: Program) -> None:
    ids = two_turns(sessionary)

    listed = sessionary("turns", "list", "Capitals")
    page = sessionary("turns", "list", "Capitals", "--limit", "1", "--json").json
    rest = sessionary("turns", "list", "Capitals", "--cursor", page["next"], "--json").json

    assert listed.out.splitlines()[0].split()[:4] == ["ID", "BEGAN", "STATE", "CALLS"]
    assert [each["id"] for each in (*page["items"], *rest["items"])] == ids[::-1]
    assert [each["calls"] for each in (*page["items"], *rest["items"])] == [1, 2]
    assert rest["next"] is None


def test_what_the_model_was_sent_is_printed(sessionary: Program) -> None:
    first, second = two_turns(sessionary)

    shown = sessionary("turns", "context", first).out
    compacted = sessionary("turns", "context", second).out
    as_json = sessionary("turns", "context", first, "--call", "1", "--json").json

    assert "call       2 of 2" in shown
    assert "tokens     12, as the provider counted them" in shown
    assert "model      tiny" in shown
    assert "look" in shown
    assert "Capital of France?" in shown
    assert "Paris." not in shown.splitlines(), "the answer was not sent"
    assert "entries 1 to 2 are a summary (entry 5)" in compacted
    assert "They asked for Paris." in compacted
    assert as_json["messages"] == [{"role": "user", "content": "Capital of France?"}]
    assert as_json["seqs"] == [1]


def test_a_turn_that_waits_is_marked_and_its_session_says_so(sessionary: Program) -> None:
    with Sessionary(home=str(sessionary.home), create=True) as client:
        chat = client.session("capitals")
        chat.append("user", "hello")
        chat.rename("Capitals")
        begun = client.store.write(
            turns.begin_in_session,
            str(chat.id),
            None,
            profile=client.profile,
            claim=turns.Claim("box:1", 60, "clerk", resumable=True),
            moment=client.moment(),
        ).result()
        client.store.write(turns.release, begun.lease, reason="the server stopped").result()

    listed = sessionary("turns", "list", "Capitals").out
    shown = sessionary("sessions", "show", "Capitals").out
    row = sessionary("sessions", "list").out.splitlines()[-1]
    (head,) = sessionary("sessions", "list", "--json").json["items"]

    assert "waiting to go on" in listed
    assert row.endswith("(waiting to go on) Capitals")
    assert (head["running"], head["waiting"]) == (True, True)
    assert sessionary("sessions", "show", "(waiting to go on) Capitals").out == shown
    assert "the server stopped" in listed
    assert "turn waiting to go on: the server stopped" in shown


def test_a_wrong_turn_or_call_is_refused_in_one_line(sessionary: Program) -> None:
    first, _ = two_turns(sessionary)

    assert sessionary("turns", "context", "nonsense").line.endswith("There is no turn nonsense.")
    assert "there is no call 5" in sessionary("turns", "context", first, "--call", "5").line
    assert sessionary("turns", "list", "Nobody").code == 3


def test_a_message_is_pinned_and_unpinned(sessionary: Program) -> None:
    two_turns(sessionary)

    pinned = sessionary("sessions", "pin-message", "Capitals", "1")
    shown = sessionary("sessions", "show", "Capitals")
    as_json = sessionary("sessions", "show", "Capitals", "--json").json
    unpinned = sessionary("sessions", "unpin-message", "Capitals", "1", "--json")

    assert "pinned message 1: Capitals" in pinned.out
    assert "pinned: #1" in shown.out
    assert "--- Message 1 was pinned" in shown.out
    assert as_json["pins"] == [1]
    assert unpinned.code == 0
    assert "is not pinned" in sessionary("sessions", "unpin-message", "Capitals", "1").line
    assert "no message 3" in sessionary("sessions", "pin-message", "Capitals", "3").line
