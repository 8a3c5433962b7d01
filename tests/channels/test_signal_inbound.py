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
    source = _heard(data_message("hi", number=1)).source

    assert (source.user_id, source.user_id_alt) == (KNOWN, KNOWN_UUID)
    assert source.chat_id == KNOWN_UUID
    assert source.platform_message_id == f"{KNOWN_UUID}/1700000000001"


def test_a_person_who_hides_their_number_later_stays_in_the_conversation() -> None:
    with_number = _heard(data_message("hi", number=1))
    given = envelope(dataMessage=data_message("hi", number=2)) | {"sourceNumber": None}
    without = inbound.event({"envelope": given}, ME)

    assert isinstance(without, ReceivedMessage)
    assert without.source.user_id == KNOWN_UUID
    assert key_for(without.source) == key_for(with_number.source)


def test_a_group_is_named_by_its_internal_id() -> None:
    source = _heard(data_message("hi", number=1, groupInfo=GROUP)).source

    assert (source.chat_type, source.chat_name) == ("group", "Lunch")
    assert source.chat_id == f"group:{GROUP['groupId']}"
    assert source.chat_id_alt == GROUP["groupId"]
    assert source.channel is not None
    assert recipient(source.channel) == {"groupId": GROUP["groupId"]}


def test_two_people_who_write_in_the_same_instant_are_told_apart() -> None:
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
def test_what_asks_for_no_answer_is_passed_over(content: dict[str, Any]) -> None:
    assert inbound.event({"envelope": envelope(**content)}, ME) is None


def test_our_own_messages_and_other_accounts_are_passed_over() -> None:
    ours = envelope(dataMessage=data_message("hi", number=1)) | {"sourceNumber": ACCOUNT}
    others = envelope(dataMessage=data_message("hi", number=1))

    assert inbound.event({"envelope": ours}, ME) is None
    assert inbound.event({"envelope": others, "account": "+4930"}, ME) is None


def test_mentions_are_shown_by_name_and_ours_in_front_goes() -> None:
    ada = {"start": 5, "length": 1, "uuid": KNOWN_UUID, "name": "Ada"}
    text = "\ufffc 👩 \ufffc?"
    heard = _heard(data_message(text, number=1, groupInfo=GROUP, mentions=[OUR_MENTION, ada]))

    assert heard.text == "👩 @Ada?"
    assert heard.is_addressed


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
def test_in_a_group_it_is_said_to_us_or_not(more: dict[str, Any], is_addressed: bool) -> None:
    data = data_message("hi", number=1, groupInfo=GROUP) | more

    assert _heard(data).is_addressed is is_addressed


def test_a_quote_stands_beside_the_words() -> None:
    quote = {"id": 99, "authorUuid": ACCOUNT_UUID, "text": "two\nand two is four"}
    heard = _heard(data_message("sure?", number=1, quote=quote))

    assert heard.parts == (
        Text("sure?"),
        Text("(In reply to what you wrote: «two and two is four»)"),
    )
    assert heard.extra == {"replies_to": f"{ACCOUNT_UUID}/99"}


def test_an_edit_is_heard_and_a_withdrawal_is_remembered() -> None:
    edit = {"targetSentTimestamp": 5, "dataMessage": data_message("at six", number=9)}
    heard = inbound.event({"envelope": envelope(editMessage=edit)}, ME)
    gone = data_message(None, number=3, remoteDelete={"timestamp": 5})
    withdrawn = inbound.event({"envelope": envelope(dataMessage=gone)}, ME)

    assert isinstance(heard, ReceivedMessage)
    assert heard.text == f"{inbound.EDITED}\nat six"
    assert heard.extra == {"edits": "5"}
    assert isinstance(withdrawn, WithdrawnMessage)
    assert withdrawn.message_id == "5"


def test_a_message_without_words_gets_some_and_is_kept_as_it_came() -> None:
    sticker = {"packId": "a1", "stickerId": 7}
    heard = _heard(data_message(None, number=1, sticker=sticker))

    assert heard.parts == (
        Text("[a sticker]"),
        Unknown({"type": "signal.sticker", "signal": sticker}),
    )


def test_a_file_to_be_seen_once_is_not_kept() -> None:
    file = {"id": "f", "contentType": "image/jpeg", "size": 3}
    heard = _heard(data_message(None, number=1, attachments=[file]) | {"viewOnce": True})

    assert heard.files == ()
    assert heard.text == "[a file to be seen once, left out]"


def _heard(data: dict[str, Any]) -> ReceivedMessage:
    event = inbound.event({"envelope": envelope(dataMessage=data), "account": ACCOUNT}, ME)
    assert isinstance(event, ReceivedMessage)
    return event
