"""How Matrix events are read and written; no server."""

import json
from typing import Any

import pytest

from sessionary.channels import registry
from sessionary.channels.files import OutgoingFile
from sessionary.channels.matrix import adapter, inbound
from sessionary.channels.matrix.inbound import MatrixBot, MatrixMessage, MatrixOptions, MatrixRoom
from sessionary.engine.outbox import split_text
from sessionary.errors import BadInput
from sessionary.model.message import Text
from sessionary.model.source import Channel

ME = MatrixBot("@clerk:test", "The Clerk")
ADA = "@ada:test"
ROOM = MatrixRoom("!room:test", "Kitchen", "All sorts")
DIRECT = MatrixRoom("!two:test", is_direct=True)
CHAT = Channel("matrix", "!room:test")


def event(body: str = "hello", *, sender: str = ADA, **content: Any) -> dict[str, Any]:
    fields = {"msgtype": "m.text", "body": body, **content}
    return {"type": "m.room.message", "event_id": "$1", "sender": sender, "content": fields}


def received(body: str = "hello", **content: Any) -> MatrixMessage:
    found = inbound.read(event(body, **content), ME)
    assert found is not None
    return found


def member(person: str, membership: str, *, before: str | None = None) -> dict[str, Any]:
    unsigned = {} if before is None else {"prev_content": {"membership": before}}
    content = {"membership": membership}
    return {"type": "m.room.member", "state_key": person, "content": content, "unsigned": unsigned}


def test_a_message_says_who_wrote_it_and_where() -> None:
    source = inbound.source_of(received(), ROOM, "Ada")

    assert source.channel == CHAT
    assert (source.chat_type, source.chat_name, source.chat_topic) == (
        "group",
        "Kitchen",
        "All sorts",
    )
    assert (source.user_id, source.user_name, source.platform_message_id) == (ADA, "Ada", "$1")


def test_a_room_of_two_is_a_direct_chat_without_a_name() -> None:
    source = inbound.source_of(received(), DIRECT, None)

    assert (source.chat_type, source.chat_name) == ("dm", None)


def test_a_thread_is_a_place_of_its_own() -> None:
    relation: dict[str, Any] = {"rel_type": "m.thread", "event_id": "$root"}
    relation["is_falling_back"] = True
    relation["m.in_reply_to"] = {"event_id": "$last"}
    content: dict[str, Any] = {"m.relates_to": relation}
    message = received(**content)

    assert inbound.source_of(message, ROOM, None).channel == Channel("matrix", ROOM.id, "$root")
    assert message.answers is None, "the last message is named for programs without threads"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "m.room.topic", "content": {"topic": "x"}},
        {"type": "m.room.message", "sender": ADA, "event_id": "$1"},
        {"type": "m.room.message", "sender": ADA, "event_id": "$1", "content": "text"},
        {"type": "m.room.message", "sender": 7, "event_id": "$1", "content": event()["content"]},
        {"type": "m.room.message", "sender": ADA, "content": event()["content"]},
        event(msgtype="m.notice"),
        event(msgtype="m.location"),
        event(sender=ME.id),
        {"type": "m.room.encrypted", "sender": ADA, "event_id": "$1", "content": {}},
    ],
)
def test_events_that_are_not_messages_are_ignored(odd: dict[str, Any]) -> None:
    assert inbound.read(odd, ME) is None


def test_only_encrypted_messages_are_encrypted() -> None:
    assert inbound.is_encrypted({"type": "m.room.encrypted"})
    assert not inbound.is_encrypted(event())


def test_the_quoted_fallback_of_a_reply_is_removed() -> None:
    relation = {"m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}}
    message = received("> <@bob:test> tea?\n> now\n\nyes", **relation)

    assert (message.words, message.answers) == ("yes", "$0")
    assert received("> a quote of my own\n\nyes").words == "> a quote of my own\n\nyes"


def test_an_edit_has_its_new_text() -> None:
    new = {"msgtype": "m.text", "body": "the"}
    relation = {"rel_type": "m.replace", "event_id": "$0"}
    message = received("* the", **{"m.new_content": new, "m.relates_to": relation})

    first, second = inbound.parts_of(message, ME)
    assert isinstance(first, Text)
    assert (message.corrects, first.extra, second) == ("$0", {"edits": "$0"}, Text("the"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("The Clerk: hello", "hello"),
        ("@clerk:test, hello", "hello"),
        ("clerk /new plan", "/new plan"),
        ("clerk: ", ""),
        ("clerks are many", "clerks are many"),
        ("hello clerk", "hello clerk"),
    ],
)
def test_the_bot_s_name_in_front_is_left_out(body: str, words: str) -> None:
    assert inbound.parts_of(received(body), ME) == (Text(words),)


@pytest.mark.parametrize(
    ("message", "addressed"),
    [
        (received("hello"), False),
        (received("/new"), True),
        (received("The Clerk: hello"), True),
        (received("ask @clerk:test"), True),
        (received("hello", **{"m.mentions": {"user_ids": [ME.id]}}), True),
        (received("hello", **{"m.mentions": {"user_ids": ["@bob:test", 7]}}), False),
        (received("hi", formatted_body='<a href="https://matrix.to/#/@clerk:test">C</a>'), True),
    ],
)
def test_in_a_group_the_bot_is_addressed_by_name(message: MatrixMessage, addressed: bool) -> None:
    assert inbound.is_addressed(message, ROOM, ME, MatrixOptions()) is addressed
    assert inbound.is_addressed(message, DIRECT, ME, MatrixOptions())
    assert inbound.is_addressed(message, ROOM, ME, MatrixOptions(always=True))


def test_a_file_has_a_name_a_size_and_a_type_and_perhaps_a_caption() -> None:
    info = {"size": 4, "mimetype": "image/png"}
    about = {"msgtype": "m.image", "url": "mxc://test/abc", "info": info}
    plain, captioned = (
        received("cat.png", **about),
        received("my cat", filename="../cat.png", **about),
    )

    assert plain.words == ""
    assert inbound.parts_of(plain, ME) == ()
    assert captioned.words == "my cat"
    for each in (plain, captioned):
        assert each.file is not None
        assert (each.file.name, each.file.size, each.file.media_type) == ("cat.png", 4, "image/png")


@pytest.mark.parametrize("url", [None, 7, "https://elsewhere.test/cat.png", ""])
def test_a_file_that_is_not_at_the_homeserver_is_none(url: Any) -> None:
    assert received("cat.png", msgtype="m.image", url=url).file is None


@pytest.mark.parametrize("size", [None, -1, True, "4", 1.5])
def test_an_invalid_size_is_ignored(size: Any) -> None:
    message = received("a", msgtype="m.file", url="mxc://test/abc", info={"size": size})

    assert message.file is not None
    assert message.file.size == 0


def test_of_a_new_room_only_messages_since_the_invitation_are_received() -> None:
    events = [
        event("old"),
        member(ME.id, "invite"),
        event("to you"),
        member(ME.id, "join", before="invite"),
        event("too"),
    ]

    assert [each.get("content", {}).get("body") for each in inbound.unread(events, ME)][:1] == [
        "to you"
    ]
    assert inbound.has_our_join(events, ME)
    assert not inbound.has_our_join(events[:3], ME)


def test_messages_before_our_own_last_message_count_as_received() -> None:
    events = [event("one"), event("mine", sender=ME.id), event("two")]

    assert inbound.unread(events, ME) == events[2:]


@pytest.mark.parametrize(
    ("person", "may"), [(ADA, True), ("@eve:test", False), ("@bob:friends", True), ("", False)]
)
def test_an_invitation_is_accepted_from_people_and_servers_that_are_named(
    person: str, may: bool
) -> None:
    assert MatrixOptions(invites_from=frozenset({ADA, "*:friends"})).may_invite(person) is may


def test_plain_words_go_out_plain_and_markdown_as_html_too() -> None:
    assert adapter.content_of("hello", None) == {
        "msgtype": "m.text",
        "body": "hello",
        "m.mentions": {},
    }
    rich = adapter.content_of("**bold** <script>", None)
    assert rich["body"] == "**bold** <script>"
    assert rich["formatted_body"] == "<p><strong>bold</strong> &lt;script&gt;</p>"


def test_people_who_are_named_are_mentioned() -> None:
    content = adapter.content_of("ask @ada:test.org or mail x@test.org", None)

    assert content["m.mentions"] == {"user_ids": ["@ada:test.org"]}


def test_a_delivery_to_a_thread_is_sent_into_it() -> None:
    relation = adapter.content_of("hello", "$root")["m.relates_to"]

    assert (relation["rel_type"], relation["event_id"]) == ("m.thread", "$root")


def test_a_long_text_comes_in_pieces_under_transactions_that_stay() -> None:
    texts = split_text("wörd " * 8000, adapter.LONGEST_BYTES, measure=adapter.MatrixAdapter.measure)
    first, again = ([adapter.transaction_id("d", index) for index in range(3)] for _ in range(2))

    assert first == again
    assert len(set(first)) == 3
    assert len(texts) > 1
    assert all(len(text.encode()) <= adapter.LONGEST_BYTES for text in texts)
    assert all(len(json.dumps(adapter.content_of(text, None))) <= 65_000 for text in texts)


def test_a_file_is_shown_as_what_it_is() -> None:
    picture, page = (
        OutgoingFile("a.png", "image/png", b"x"),
        OutgoingFile("a.pdf", "application/pdf", b""),
    )

    assert adapter.file_content(picture, "mxc://test/1", None)["msgtype"] == "m.image"
    content = adapter.file_content(page, "mxc://test/2", "$root")
    assert (content["msgtype"], content["body"], content["url"]) == (
        "m.file",
        "a.pdf",
        "mxc://test/2",
    )
    assert content["m.relates_to"]["event_id"] == "$root"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "homeserver"),
        ({"homeserver": "matrix.example.org"}, "homeserver"),
        ({"homeserver": "http://matrix.example.org", "token_env": "T"}, "https"),
        ({"homeserver": "https://m.example.org"}, "token_env"),
        ({"homeserver": "https://m.example.org", "token_env": "T", "answr": "always"}, "answer"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        registry.build("matrix", settings, {"T": "token"})
