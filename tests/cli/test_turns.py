"""`sessionary turns`: the turns of a session, and what the model was sent in them."""

import subprocess
import sys

from msgspec.structs import replace

from sessionary import Sessionary
from sessionary.actions import turns
from sessionary.actions.sessions import model_calls
from sessionary.cli.turns import note_of
from sessionary.model.usage import Usage
from sessionary.processes import short_name
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


def waiting_turn(client: Sessionary, session_id: str) -> str:
    """A turn of a server that has stopped; its id."""
    begun = client.store.write(
        turns.begin_in_session,
        session_id,
        None,
        profile=client.profile,
        claim=turns.Claim("box:1", 60, "clerk", resumable=True),
        moment=client.moment(),
    ).result()
    client.store.write(turns.release, begun.lease, reason="the server stopped").result()
    return begun.lease.turn_id


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
        waiting_turn(client, str(chat.id))

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


def begin_turn(sessionary: Program, *, holder: str, lease_seconds: float) -> None:
    """A session with a running turn."""
    with Sessionary(home=str(sessionary.home), create=True) as client:
        chat = client.session("capitals")
        chat.append("user", "hello")
        chat.rename("Capitals")
        claim = turns.Claim(holder, lease_seconds, "clerk", resumable=True)
        moment = client.moment()
        client.store.write(
            turns.begin_in_session,
            str(chat.id),
            None,
            profile=client.profile,
            claim=claim,
            moment=moment,
        ).result()


def test_a_turn_of_a_process_that_has_ended_waits_although_its_lease_has_not_run_out(
    sessionary: Program,
) -> None:
    program = "from sessionary.processes import process_name; print(process_name())"
    name = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()
    begin_turn(sessionary, holder=name, lease_seconds=600)

    row = sessionary("turns", "list", "Capitals").out.splitlines()[-1]
    (listed,) = sessionary("turns", "list", "Capitals", "--json").json["items"]
    shown = sessionary("turns", "context", listed["id"]).out

    assert "waiting to go on" in row
    assert row.endswith(f"{short_name(name)} has ended")
    assert listed["waiting"] is True
    assert f"{listed['id']} (waiting to go on)" in shown


def test_a_process_that_does_not_respond_is_named_briefly(sessionary: Program) -> None:
    begin_turn(sessionary, holder="elsewhere/7/79e2352b-160133", lease_seconds=-1)

    row = sessionary("turns", "list", "Capitals").out.splitlines()[-1]

    assert "waiting to go on" in row
    assert row.endswith(" elsewhere/7 stopped responding")


def test_a_reason_and_how_often_a_turn_was_continued_are_one_clean_line(
    sessionary: Program,
) -> None:
    begin_turn(sessionary, holder="box/1", lease_seconds=60)
    with Sessionary(home=str(sessionary.home)) as client:
        (listed,) = (
            client.store.read(
                model_calls.list_turns, client.session("capitals").head().id, profile=client.profile
            )
            .result()
            .items
        )
    turn = replace(listed.turn, reason="It begins again at 00:00 UTC.", resumed=1)

    note = note_of(replace(listed, turn=turn), now=turn.began_at)

    assert note == "It begins again at 00:00 UTC; continued 1 time, last by box/1"


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


def test_a_turn_is_stopped_by_name(sessionary: Program) -> None:
    """One that runs is asked to stop; one whose process has ended is ended; without one, nothing is done."""
    two_turns(sessionary)
    with Sessionary(home=str(sessionary.home)) as client:
        chat = client.find("Capitals")
        with chat.turn("And of Spain?") as turn:
            asked = sessionary("sessions", "stop", "Capitals", "--json")
            assert asked.json == {"session_id": chat.id, "stopping": True, "ended": False}
            assert turn.id
        waiting = waiting_turn(client, str(chat.id))

    appended = sessionary("sessions", "append", "Capitals", "--role", "user", "hello")
    stopped = sessionary("sessions", "stop", "Capitals")
    again = sessionary("sessions", "stop", "Capitals")

    assert (appended.code, stopped.code, again.code) == (1, 0, 1)
    assert "or waits for an answer or for a server to go on; nothing was changed" in appended.line
    assert stopped.out == f"The turn in session {chat.id} was stopped.\n"
    assert again.line.endswith("nothing was changed.")
    newest = sessionary("turns", "list", "Capitals", "--json").json["items"][0]
    assert (newest["id"], newest["state"]) == (waiting, "interrupted")
