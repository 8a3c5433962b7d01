"""What Slack's messages mean, how ours are shown, which requests are Slack's: pure tables."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.channels.base import printable
from sessionary.channels.slack import inbound, outbound
from sessionary.channels.slack.inbound import SlackMessage, SlackNames, SlackOptions
from sessionary.model.source import key_for

ME = "U1"


def received(text: str = "hello", **more: Any) -> SlackMessage:
    event = {"type": "message", "channel": "C5", "user": "U7", "ts": "9.0", "text": text}
    found = inbound.read_event({"type": "event_callback", "event": event | more})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("more", "threads", "key"),
    [
        ({"channel": "D5"}, True, "main/slack/dm/chat=D5"),
        ({"channel": "D5", "thread_ts": "3.0"}, True, "main/slack/dm/chat=D5/thread=3.0"),
        ({}, True, "main/slack/channel/chat=C5/thread=9.0"),
        ({}, False, "main/slack/channel/chat=C5/person=U7"),
        ({"thread_ts": "3.0"}, False, "main/slack/channel/chat=C5/thread=3.0"),
        ({"channel_type": "mpim"}, False, "main/slack/group/chat=C5/person=U7"),
    ],
)
def test_each_place_is_a_conversation_of_its_own(
    more: dict[str, Any], threads: bool, key: str
) -> None:
    source = inbound.source_of(received(**more), SlackOptions(threads=threads), SlackNames())

    assert str(key_for(source)) == key


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "reaction_added", "user": "U7", "ts": "1.0", "channel": "C5"},
        {"type": "message", "subtype": "message_deleted", "channel": "C5", "ts": "1.0"},
        {"type": "message", "subtype": "channel_join", "channel": "C5", "ts": "1.0", "user": "U7"},
        {"type": "message", "subtype": "message_changed", "channel": "C5", "message": None},
        {"type": "message", "channel": 5, "user": "U7", "ts": "1.0"},
        {"type": "message", "channel": "C5", "user": "U7"},
        None,
        "message",
    ],
)
def test_events_without_a_message_are_ignored(event: object) -> None:
    assert inbound.read_event({"type": "event_callback", "event": event}) is None


def test_an_edited_message_keeps_its_id() -> None:
    edited = {"type": "message", "user": "U7", "ts": "9.0", "text": "better"}
    event = {"type": "message", "subtype": "message_changed", "channel": "C5", "message": edited}

    found = inbound.read_event({"type": "event_callback", "event": event})

    assert found is not None
    assert (found.id, found.channel_id, found.text) == ("9.0", "C5", "better")


@pytest.mark.parametrize(
    ("text", "more", "rules", "is_addressed"),
    [
        ("hello", {}, SlackOptions(), False),
        ("<@U1> hello", {}, SlackOptions(), True),
        ("<@U1|bot> hello", {}, SlackOptions(), True),
        ("<@U12> hello", {}, SlackOptions(), False),
        ("hello", {"channel": "D5"}, SlackOptions(), True),
        ("hello", {"parent_user_id": "U1"}, SlackOptions(), True),
        ("hello", {}, SlackOptions(always=True), True),
        ("hello", {}, SlackOptions(always_in=frozenset({"C5"})), True),
    ],
)
def test_a_message_is_addressed_to_the_agent_by_these_rules(
    text: str, more: dict[str, Any], rules: SlackOptions, is_addressed: bool
) -> None:
    assert inbound.is_addressed(received(text, **more), ME, rules) is is_addressed


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("<@U1> hello", "hello"),
        ("<@U1|bot>: /new work", "/new work"),
        ("ask <@U7>", "ask <@U7>"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;lt;", "&lt;"),
        ("see <https://a.example/x>", "see https://a.example/x"),
        ("see <https://a.example|a.example>", "see https://a.example"),
        ("see <https://a.example|the page>", "see the page (https://a.example)"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("in <#C5|general>", "in #general"),
        ("<!here> <!subteam^S1|@team>", "@here @team"),
    ],
)
def test_text_is_read_as_it_was_typed(text: str, typed: str) -> None:
    assert inbound.words_of(received(text), ME) == typed


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("/new", "work", "/new work"),
        ("/sessionary", "new work", "/new work"),
        ("/sessionary", "", "/help"),
    ],
)
def test_a_slash_command_is_read(command: str, text: str, words: str) -> None:
    form = {"command": command, "text": text, "channel_id": "C5", "user_id": "U7"}

    found = inbound.read_command(form | {"trigger_id": "13.1"})

    assert found is not None
    assert (found.text, found.id, found.is_command) == (words, "13.1", True)
    assert inbound.read_command(form) is None


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** and *italic* and ~~gone~~", "*bold* and _italic_ and ~gone~"),
        ("***both***", "*_both_*"),
        ("# A heading\ntext", "*A heading*\ntext"),
        ("[a page](https://a.example/x?y=1&z=2)", "<https://a.example/x?y=1&amp;z=2|a page>"),
        ("- one\n  * two", "• one\n  • two"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("<@U0ADA> in <#C0HALL>", "<@U0ADA> in <#C0HALL>"),
        ("<!channel> <!here|x>", "&lt;!channel&gt; &lt;!here|x&gt;"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("`**not bold** <b>`", "`**not bold** &lt;b&gt;`"),
        ("```python\na = **b\n```", "```\na = **b\n```"),
        ("```\nopen <", "```\nopen &lt;"),
        ("snake_case_name", "snake_case_name"),
    ],
)
def test_markdown_is_shown_in_slacks_notation(markdown: str, shown: str) -> None:
    assert outbound.mrkdwn(markdown) == shown


@given(st.text(alphabet=st.sampled_from("*_~`#[]()<>&|!@\n -ab/:htps."), max_size=80))
def test_no_text_breaks_the_rendering_or_notifies_everybody(text: str) -> None:
    shown = outbound.mrkdwn(text)

    assert "<!" not in shown


@given(st.text(max_size=300), st.integers(1, 40))
def test_every_piece_fits_and_is_not_empty(text: str, times: int) -> None:
    posts = [outbound.post_of(each) for each in outbound.split(printable(text * times))]

    assert bool(posts) == bool(printable(text).strip())
    assert all(post.rendered.strip() for post in posts)
    assert all(len(post.rendered) <= outbound.LONGEST_SECTION for post in posts)


def test_signs_that_grow_are_cut_smaller() -> None:
    posts = [outbound.post_of(each) for each in outbound.split("&" * 3000)]

    assert all(len(post.rendered) <= outbound.LONGEST_SECTION for post in posts)
    assert sum(post.rendered.count("&amp;") for post in posts) == 3000


def _headers(body: bytes, at: str, secret: str = "s") -> dict[str, str]:
    return {
        "X-Slack-Request-Timestamp": at,
        "X-Slack-Signature": inbound.sign(secret, at, body),
    }


@pytest.mark.parametrize(
    ("headers", "body", "problem"),
    [
        (_headers(b"{}", "1000"), b"{}", None),
        (_headers(b"{}", "700"), b"{}", None),
        (_headers(b"{}", "699"), b"{}", "it is too old"),
        (_headers(b"{}", "1301"), b"{}", "it is too old"),
        (_headers(b"{}", "1000", "other"), b"{}", "its signature is wrong"),
        (_headers(b"{}", "1000"), b"{ }", "its signature is wrong"),
        (_headers(b"{}", "1000") | {"X-Slack-Request-Timestamp": "1001"}, b"{}", "wrong"),
        (_headers(b"{}", "1000") | {"X-Slack-Signature": "v0=é"}, b"{}", "wrong"),
        (_headers(b"{}", "1000") | {"X-Slack-Request-Timestamp": "soon"}, b"{}", "not signed"),
        ({}, b"{}", "it is not signed"),
    ],
)
def test_a_request_is_accepted_only_with_a_recent_signature(
    headers: dict[str, str], body: bytes, problem: str | None
) -> None:
    lower = {name.lower(): value for name, value in headers.items()}
    found = inbound.signature_problem("s", lower, body, now=1000)

    assert (found is None) if problem is None else (problem in (found or ""))


def test_the_signature_is_that_of_slacks_own_example() -> None:
    """From Slack's documentation, «Verifying requests from Slack»."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015"
        b".47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )

    found = inbound.sign("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", body)

    assert found == "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
