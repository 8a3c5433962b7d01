"""What Signal says, as we understand it: ids, groups, mentions, quotes, edits."""

from typing import Any

import pytest

from sessionary.channels.base import ReceivedMessage, WithdrawnMessage
from sessionary.channels.signal import inbound
from sessionary.channels.signal.adapter import recipient
from sessionary.channels.signal.inbound import SignalAccount
from sessionary.model.message import Text, Unknown
from sessionary.model.source import key_for
from tests.support.fake_signal import (
    ACCOUNT,
    ACCOUNT_UUID,
    GROUP,
    KNOWN,
    KNOWN_UUID,
    OUR_MENTION,
    data_message,
    envelope,
)

ME = SignalAccount(ACCOUNT, ACCOUNT_UUID)


def test_a_person_has_a_number_and_a_uuid_that_stays() -> None:
    source = _received(data_message("hi", number=1)).source

    assert (source.user_id, source.user_id_alt) == (KNOWN, KNOWN_UUID)
    assert source.chat_id == KNOWN_UUID
    assert source.platform_message_id == f"{KNOWN_UUID}/1700000000001"


def test_a_person_who_hides_their_number_later_stays_in_the_conversation() -> None:
    with_number = _received(data_message("hi", number=1))
    given = envelope(dataMessage=data_message("hi", number=2)) | {"sourceNumber": None}
    without = inbound.event({"envelope": given}, ME)

    assert isinstance(without, ReceivedMessage)
    assert without.source.user_id == KNOWN_UUID
    assert key_for(without.source) == key_for(with_number.source)


def test_a_group_is_named_by_its_internal_id() -> None:
    source = _received(data_message("hi", number=1, groupInfo=GROUP)).source

    assert (source.chat_type, source.chat_name) == ("group", "Lunch")
    assert source.chat_id == f"group:{GROUP['groupId']}"
    assert source.chat_id_alt == GROUP["groupId"]
    assert source.channel is not None
    assert recipient(source.channel) == {"groupId": GROUP["groupId"]}


def test_two_people_who_write_at_the_same_time_have_different_message_ids() -> None:
    data = data_message("hi", number=1, groupInfo=GROUP)
    one, other = (
        inbound.event({"envelope": envelope(who, dataMessage=data)}, ME) for who in (None, "7")
    )

    assert isinstance(one, ReceivedMessage)
    assert isinstance(other, ReceivedMessage)
    assert one.source.platform_message_id != other.source.platform_message_id


@pytest.mark.parametrize(
    "content",
    [
        {"receiptMessage": {"when": 1, "isDelivery": True, "timestamps": [1]}},
        {"typingMessage": {"action": "STARTED", "timestamp": 1}},
        {"callMessage": {"offerMessage": {"id": 1}}},
        {"syncMessage": {"sentMessage": {"message": "from my telephone", "timestamp": 1}}},
        {"storyMessage": {"allowsReplies": True}},
        {"dataMessage": {"timestamp": 1, "message": None, "expiresInSeconds": 60}},
        {"dataMessage": {"timestamp": 1, "reaction": {"emoji": "👍"}, "message": None}},
        {
            "dataMessage": {
                "timestamp": 1,
                "message": None,
                "groupInfo": {**GROUP, "type": "UPDATE"},
            }
        },
        {"dataMessage": 7},
    ],
)
def test_events_that_need_no_answer_are_ignored(content: dict[str, Any]) -> None:
    assert inbound.event({"envelope": envelope(**content)}, ME) is None


def test_our_own_messages_and_other_accounts_are_ignored() -> None:
    ours = envelope(dataMessage=data_message("hi", number=1)) | {"sourceNumber": ACCOUNT}
    others = envelope(dataMessage=data_message("hi", number=1))

    assert inbound.event({"envelope": ours}, ME) is None
    assert inbound.event({"envelope": others, "account": "+4930"}, ME) is None


def test_mentions_are_shown_by_name_and_ours_in_front_goes() -> None:
    ada = {"start": 5, "length": 1, "uuid": KNOWN_UUID, "name": "Ada"}
    text = "\ufffc 👩 \ufffc?"
    received = _received(data_message(text, number=1, groupInfo=GROUP, mentions=[OUR_MENTION, ada]))

    assert received.text == "👩 @Ada?"
    assert received.is_addressed


@pytest.mark.parametrize(
    ("more", "is_addressed"),
    [
        ({}, False),
        ({"message": "/new"}, True),
        ({"quote": {"id": 1, "authorUuid": ACCOUNT_UUID, "text": "four"}}, True),
        ({"quote": {"id": 1, "authorUuid": KNOWN_UUID, "text": "four"}}, False),
        ({"message": "\ufffc hi", "mentions": [OUR_MENTION]}, True),
        ({"message": "\ufffc hi", "mentions": [{**OUR_MENTION, "uuid": KNOWN_UUID}]}, False),
    ],
)
def test_in_a_group_a_message_is_addressed_to_us_by_these_rules(
    more: dict[str, Any], is_addressed: bool
) -> None:
    data = data_message("hi", number=1, groupInfo=GROUP) | more

    assert _received(data).is_addressed is is_addressed


def test_a_quote_is_a_part_beside_the_text() -> None:
    quote = {"id": 99, "authorUuid": ACCOUNT_UUID, "text": "two\nand two is four"}
    received = _received(data_message("sure?", number=1, quote=quote))

    assert received.parts == (
        Text("sure?"),
        Text("(In reply to what you wrote: «two and two is four»)", extra={"quote": True}),
    )
    # Of the bot's own messages, only the time is known.
    assert received.extra == {"replies_to": "99"}


def test_an_edit_is_received_and_a_deletion_is_remembered() -> None:
    edit = {"targetSentTimestamp": 5, "dataMessage": data_message("at six", number=9)}
    received = inbound.event({"envelope": envelope(editMessage=edit)}, ME)
    gone = data_message(None, number=3, remoteDelete={"timestamp": 5})
    withdrawn = inbound.event({"envelope": envelope(dataMessage=gone)}, ME)

    assert isinstance(received, ReceivedMessage)
    assert received.text == f"{inbound.EDITED}\nat six"
    assert received.extra == {"edits": "5"}
    assert isinstance(withdrawn, WithdrawnMessage)
    assert withdrawn.message_id == "5"


def test_a_message_without_text_gets_a_description_and_keeps_its_original() -> None:
    sticker = {"packId": "a1", "stickerId": 7}
    received = _received(data_message(None, number=1, sticker=sticker))

    assert received.parts == (
        Text("[a sticker]"),
        Unknown({"type": "signal.sticker", "signal": sticker}),
    )


def test_a_file_to_be_seen_once_is_not_kept() -> None:
    file = {"id": "f", "contentType": "image/jpeg", "size": 3}
    received = _received(data_message(None, number=1, attachments=[file]) | {"viewOnce": True})

    assert received.files == ()
    assert received.text == "[a file to be seen once, left out]"


def _received(data: dict[str, Any]) -> ReceivedMessage:
    event = inbound.event({"envelope": envelope(dataMessage=data), "account": ACCOUNT}, ME)
    assert isinstance(event, ReceivedMessage)
    return event
