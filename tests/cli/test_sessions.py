"""Sessions from the command line."""

import pytest

from tests.cli.conftest import Program


def test_a_first_message_makes_a_private_home_and_a_session(sessionary: Program) -> None:
    made = sessionary.append("new", "hello")

    assert made == {
        "id": f"{made['session_id']}-1",
        "session_id": made["session_id"],
        "seq": 1,
        "repeated": False,
    }
    assert sessionary.home.stat().st_mode & 0o777 == 0o700
    assert sessionary.database.stat().st_mode & 0o777 == 0o600


def test_a_message_is_appended_by_title_by_id_and_by_the_beginning_of_an_id(
    sessionary: Program,
) -> None:
    first = sessionary.append("new", "one", "--title", "Capitals")

    seqs = [
        sessionary.append(ref, "more")["seq"]
        for ref in ("Capitals", first["session_id"], first["session_id"][:20])
    ]

    assert seqs == [2, 3, 4]


def test_the_same_idempotency_key_twice_adds_one_message(sessionary: Program) -> None:
    first = sessionary.append("new", "hello", "--idempotency-key", "k")
    again = sessionary.append("new", "hello", "--idempotency-key", "k")

    assert (again["id"], again["repeated"]) == (first["id"], True)
    assert sessionary.ids() == [first["session_id"]]


def test_text_comes_from_standard_input_byte_for_byte(sessionary: Program) -> None:
    text = "two\nlines, \u00e9\u4e2d\U0001f600 \x1b[31m\n"
    made = sessionary("sessions", "append", "new", "-", "--json", stdin=text.encode()).json

    shown = sessionary("sessions", "show", made["session_id"], "--json").json

    assert shown["items"][0]["text"] == text


def test_text_that_begins_with_a_dash_follows_two(sessionary: Program) -> None:
    made = sessionary("sessions", "append", "new", "--json", "--", "--limit").json

    assert sessionary("sessions", "show", made["session_id"], "--json").json["items"][0][
        "text"
    ] == ("--limit")


def test_tokens_of_an_append_are_in_the_usage_report(sessionary: Program) -> None:
    sessionary.append(
        "new", "hi", "--role", "assistant", "--model", "gpt-5-mini", "--output-tokens", "7"
    )
    sessionary.append("new", "hi", "--role", "assistant", "--model", "no-such-model")

    rows = {
        row["group"]: row for row in sessionary("usage", "--by", "model", "--json").json["items"]
    }
    people = sessionary("usage", "--by", "model")

    assert rows["gpt-5-mini"]["output_tokens"] == 7
    assert rows["gpt-5-mini"]["cost_microusd"] > 0
    assert rows["no-such-model"]["cost_microusd"] is None
    assert "1 of 2 calls (50%) have no known price" in people.err


def test_a_list_has_the_newest_first_and_pages_by_cursor(sessionary: Program) -> None:
    ids = [sessionary.append("new", f"number {number}")["session_id"] for number in range(5)]

    first = sessionary("sessions", "list", "--limit", "3", "--json").json
    second = sessionary(
        "sessions", "list", "--limit", "3", "--cursor", first["next"], "--json"
    ).json

    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert second["next"] is None


def test_a_list_is_sorted_by_title_when_asked_for(sessionary: Program) -> None:
    for title in ("Pear", "apple", "Quince"):
        sessionary.append("new", "hello", "--title", title)

    items = sessionary("sessions", "list", "--sort", "title", "--json").json["items"]
    refused = sessionary("sessions", "list", "--sort", "title", "--pinned-first")

    assert [head["title"] for head in items] == ["apple", "Pear", "Quince"]
    assert (refused.code, "--pinned-first" in refused.err) == (2, True)


def test_pinned_sessions_come_first_when_asked_for_and_only_once(sessionary: Program) -> None:
    ids = [sessionary.append("new", f"number {number}")["session_id"] for number in range(5)]
    for pinned in (ids[0], ids[2]):
        sessionary("sessions", "pin", pinned)

    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(4):
        page = sessionary(
            "sessions", "list", "--pinned-first", "--limit", "2", "--json", *cursor
        ).json
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]

    assert seen == [ids[2], ids[0], ids[4], ids[3], ids[1]]
    assert sessionary.ids("--pinned") == [ids[2], ids[0]]


def test_filters_narrow_a_list(sessionary: Program) -> None:
    web = sessionary.append("new", "from the web", "--source", "web")["session_id"]
    done = sessionary.append("new", "it is over")["session_id"]
    sessionary("sessions", "end", done)

    assert sessionary.ids("--source", "web") == [web]
    assert sessionary.ids("--ended") == [done]
    assert sessionary.ids("--open") == [web]
    assert sessionary.ids("--text", "OVER") == [done]
    assert sessionary.ids("--since", "1h", "--until", "today") == [done, web]
    assert sessionary.ids("--until", "1h") == []


def test_automation_is_listed_apart_and_its_number_is_shown(sessionary: Program) -> None:
    chat = sessionary.append("new", "hello")["session_id"]
    job = sessionary.append("new", "every morning", "--kind", "job")["session_id"]

    people = sessionary("sessions", "list")

    assert job not in people.out
    assert people.line == "1 automation session not shown; see them with --automation."
    assert sessionary.ids() == [chat]
    assert sessionary.ids("--automation") == sessionary.ids("--kind", "job") == [job]


def test_archived_sessions_are_counted_among_those_not_shown_within_the_filter(
    sessionary: Program,
) -> None:
    put_away = sessionary.append("new", "roses", "--source", "web")["session_id"]
    sessionary.append("new", "every morning", "--kind", "job")
    sessionary("sessions", "archive", put_away)

    errors = sessionary("sessions", "list").err
    narrowed = sessionary("sessions", "list", "--source", "web").err

    assert errors.splitlines()[-1] == (
        "1 automation session and 1 archived session not shown; "
        "see them with --automation or --archived."
    )
    assert narrowed.splitlines()[-1] == "1 archived session not shown; see them with --archived."


def test_archive_and_trash_have_lists_of_their_own(sessionary: Program) -> None:
    put_away = sessionary.append("new", "one")["session_id"]
    thrown = sessionary.append("new", "two")["session_id"]
    sessionary("sessions", "archive", put_away)
    sessionary("sessions", "trash", thrown)

    assert sessionary.ids() == []
    assert sessionary.ids("--archived") == [put_away]
    assert sessionary.ids("--trash") == [thrown]

    sessionary("sessions", "unarchive", put_away)
    sessionary("sessions", "restore", thrown)

    assert sorted(sessionary.ids()) == sorted([put_away, thrown])


def test_the_last_messages_are_shown_and_the_rest_is_a_flag_away(sessionary: Program) -> None:
    made = sessionary.append("new", "message 1", "--title", "Long")
    for number in range(2, 8):
        sessionary.append("Long", f"message {number}")

    last = sessionary("sessions", "show", "Long", "--limit", "2")
    pages = sessionary("sessions", "show", "Long", "--limit", "2", "--json").json
    before = sessionary("sessions", "show", "Long", "--before", pages["next"], "--json").json
    everything = sessionary("sessions", "show", "Long", "--all", "--json").json

    assert "message 7" in last.out
    assert "message 5" not in last.out
    assert last.line == "There are earlier messages: --before 6, or --all"
    assert [item["seq"] for item in before["items"]] == [1, 2, 3, 4, 5]
    assert [item["text"] for item in everything["items"]] == [f"message {n}" for n in range(1, 8)]
    assert everything["session"]["id"] == made["session_id"]


def test_undo_takes_back_and_the_raw_log_keeps(sessionary: Program) -> None:
    sessionary.append("new", "keep", "--title", "Undone")
    sessionary.append("Undone", "take back")
    sessionary("sessions", "undo", "Undone")

    shown = sessionary("sessions", "show", "Undone", "--json").json["items"]
    raw = sessionary("sessions", "show", "Undone", "--raw", "--json").json["items"]
    context = sessionary("sessions", "show", "Undone", "--context", "--json").json["items"]

    assert [item["text"] for item in shown] == ["keep"]
    assert [item["kind"] for item in raw] == ["message", "message", "retraction"]
    assert context == [{"role": "user", "content": "keep"}]


def test_a_fork_has_the_history_up_to_its_entry(sessionary: Program) -> None:
    sessionary.append("new", "one", "--title", "Tree")
    sessionary.append("Tree", "two")

    fork = sessionary("sessions", "fork", "Tree", "--at", "1", "--json").json

    assert (fork["title"], fork["lineage"], fork["message_count"]) == ("Tree #2", "fork", 1)


def test_an_ended_session_takes_no_message_until_it_is_reopened(sessionary: Program) -> None:
    sessionary.append("new", "one", "--title", "Over")
    sessionary("sessions", "end", "Over")

    refused = sessionary("sessions", "append", "Over", "two")
    sessionary("sessions", "reopen", "Over")

    assert refused.code == 1
    assert "has ended (closed); nothing was changed. Reopen it first." in refused.line
    assert sessionary.append("Over", "two")["seq"] == 2


def test_a_purge_wants_a_yes_and_then_nothing_is_left(sessionary: Program) -> None:
    made = sessionary.append("new", "secret", "--title", "Gone")

    asked = sessionary("sessions", "purge", "Gone")
    done = sessionary("sessions", "purge", "Gone", "--yes", "--json")

    assert asked.code == 1
    assert asked.line.endswith("Nothing was changed. Add --yes to do it.")
    assert done.json["entries"] == 1
    assert sessionary("sessions", "show", made["session_id"]).code == 3


def test_a_session_moves_into_a_project_that_can_go_without_it(sessionary: Program) -> None:
    sessionary("projects", "add", "Places", "--colour", "#3366cc")
    sessionary.append("new", "one", "--title", "Lisbon")

    assert sessionary("sessions", "move", "Lisbon", "Places", "--json").json["project"] == "Places"
    assert len(sessionary.ids("--project", "Places")) == 1
    sessionary("projects", "rename", "Places", "Cities")
    sessionary("projects", "colour", "Cities", "#000000")
    assert sessionary("projects", "list", "--json").json["items"][0]["sessions"] == 1
    sessionary("projects", "remove", "Cities")
    assert sessionary("sessions", "show", "Lisbon", "--json").json["session"]["project"] is None


@pytest.mark.parametrize("where", ["before", "after", "between"])
def test_global_options_may_stand_before_or_after_the_command(
    sessionary: Program, where: str
) -> None:
    sessionary.append("new", "hello", "--profile", "other")
    words = {
        "before": ["--json", "--profile", "other", "sessions", "list"],
        "between": ["sessions", "--json", "--profile", "other", "list"],
        "after": ["sessions", "list", "--json", "--profile", "other"],
    }[where]

    assert len(sessionary(*words).json["items"]) == 1
    assert sessionary.ids() == []


def test_a_session_is_held_shown_and_released(sessionary: Program) -> None:
    sessionary.append("new", "hello", "--title", "Capitals")

    made = sessionary("sessions", "hold", "Capitals", "--reason", "the build", "--until", "2h")
    audit = sessionary("sessions", "hold", "Capitals", "--reason", "audit", "--json").json
    shown = sessionary("sessions", "show", "Capitals")
    listed = sessionary("sessions", "show", "Capitals", "--json").json["holds"]
    one = sessionary("sessions", "release", "Capitals", "--reason", "audit")
    wrong = sessionary("sessions", "release", "Capitals", "--reason", "audit")
    rest = sessionary("sessions", "release", "Capitals", "--json").json["items"]
    past = sessionary("sessions", "hold", "Capitals", "--reason", "x", "--until", "2001-01-01")

    assert made.code == 0, made.err
    assert "is held until" in made.out
    assert (audit["reason"], audit["until"]) == ("audit", None)
    assert "held: audit\nheld: the build (until " in shown.out
    assert [each["reason"] for each in listed] == ["audit", "the build"]
    assert "released: audit" in one.out
    assert (wrong.code, "is not held by 'audit'" in wrong.line) == (3, True)
    assert [each["reason"] for each in rest] == ["the build"]
    assert (past.code, "in the future" in past.line) == (1, True)
