"""What is particular to WhatsApp: signatures, kinds of messages, files, codes, the 24 hours."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from sessionary.actions import outbox
from sessionary.actions.sessions import lists, read
from sessionary.channels import registry
from sessionary.channels.base import ReceivedMessage, WithdrawnMessage
from sessionary.channels.whatsapp import inbound
from sessionary.channels.whatsapp.adapter import WhatsAppAdapter, formatted, recipient
from sessionary.channels.whatsapp.inbound import FailedDelivery, WhatsAppOptions
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Attachment, Message, Text, Unknown
from sessionary.model.source import Channel, key_for
from sessionary.model.turn import DeliveryState
from sessionary.store.database import Store, Tx
from sessionary.store.tables import deliveries
from sessionary.testing.channel_world import (
    ChannelWorld,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from sessionary.testing.fakes import START, SequentialIds
from sessionary.web.app import create_app
from sessionary.web.context import WebContext
from tests.support.fake_whatsapp import (
    APP_SECRET,
    KNOWN,
    NUMBER,
    NUMBER_ID,
    TOKEN,
    VERIFY_TOKEN,
    FakeWhatsApp,
    graph_error,
    payload,
    signed,
)
from tests.support.http_server import Response

HOOK = "http://localhost/api/v1/channels/whatsapp/webhook"


@pytest.fixture
async def platform() -> AsyncIterator[FakeWhatsApp]:
    async with FakeWhatsApp() as fake:
        yield fake


# The webhook


@pytest.mark.parametrize(
    "signature", ["", "sha256=", "sha256=00", "sha1=1", "sha256=\u00e9", "SHA256="]
)
def test_an_invalid_signature_is_refused(signature: str) -> None:
    assert not inbound.is_signed(b"{}", signature, APP_SECRET)


async def test_the_signature_covers_the_exact_bytes(
    platform: FakeWhatsApp,
) -> None:
    intake = RecordingIntake()
    headers, body = signed(payload(platform.message("hello", number=1)))
    async with run_adapter(platform.adapter(), intake):
        assert platform.current is not None
        await until(lambda: _is_open(platform), "it is not open")
        assert await platform.current.handle_webhook(headers, body.replace(b": ", b":")) == 401
        assert await platform.current.handle_webhook({"X-Hub-Signature-256": ""}, body) == 401
        assert intake.texts == []
        assert await platform.current.handle_webhook(headers, body) == 200
        assert intake.texts == ["hello"]


async def test_the_server_answers_meta_over_http(store: Store, platform: FakeWhatsApp) -> None:
    world = ChannelWorld(store, platform)
    adapter = world.adapter
    assert isinstance(adapter, WhatsAppAdapter)
    parts = WebContext(
        store,
        webhooks={"whatsapp": adapter.handle_webhook},
        challenges={"whatsapp": adapter.answer_challenge},
    )
    transport = httpx2.ASGITransport(create_app(parts))
    asked = {"hub.mode": "subscribe", "hub.challenge": "1158", "hub.verify_token": VERIFY_TOKEN}
    async with world.running(), httpx2.AsyncClient(transport=transport) as meta:
        proof = await meta.get(HOOK, params=asked)
        wrong = await meta.get(HOOK, params={**asked, "hub.verify_token": "guessed"})
        headers, body = signed(payload(platform.message("hello", number=1)))
        forged = await meta.post(HOOK, content=body, headers={"x-hub-signature-256": "sha256=1"})
        await until(lambda: _is_open(platform), "it is not open")
        taken = await meta.post(HOOK, content=body, headers=headers)
        await world.until_seen("hello")

    assert (proof.status_code, proof.text) == (200, "1158")
    assert (wrong.status_code, forged.status_code, taken.status_code) == (403, 401, 200)


async def test_a_stopped_channel_answers_so_that_meta_posts_again(
    platform: FakeWhatsApp,
) -> None:
    platform.adapter()

    assert await platform.post(payload(platform.message("hello", number=1))) == 503


@pytest.mark.parametrize("rubbish", [{}, {"entry": 1}, {"entry": [{"changes": [{"value": 7}]}]}])
async def test_a_signed_post_without_messages_is_accepted(
    platform: FakeWhatsApp, rubbish: dict[str, Any]
) -> None:
    platform.adapter()

    assert await platform.post(rubbish) == 200


# What comes in


def test_a_message_for_another_number_of_the_app_is_not_ours() -> None:
    given = payload(_message(text={"body": "hi"}), number_id="999")

    assert list(inbound.events(given, NUMBER_ID)) == []


def test_all_notations_of_one_number_lead_to_one_conversation() -> None:
    plain = _received(_message(text={"body": "hi"}))
    other = _received({**_message(text={"body": "hi"}), "from": f"{KNOWN}@s.whatsapp.net"})

    assert key_for(plain.source) == key_for(other.source)


def test_a_person_has_a_number_and_an_id_that_stays() -> None:
    source = _received(
        {**_message(text={"body": "hi"}), "from_user_id": "US.13491208655302"}
    ).source

    assert (source.chat_id, source.user_id) == (KNOWN, KNOWN)
    assert source.user_id_alt == "US.13491208655302"


def test_a_person_without_a_number_can_be_answered() -> None:
    message = _message(text={"body": "hi"}) | {"from": "", "from_user_id": "US.13491208655302"}
    given = payload(message, contacts=[{"user_id": "US.13491208655302"}])
    received = next(inbound.events(given, NUMBER_ID))

    assert isinstance(received, ReceivedMessage)
    assert recipient(received.source.chat_id or "") == {
        "recipient_type": "individual",
        "recipient": "US.13491208655302",
    }


def test_a_reply_names_what_it_replies_to() -> None:
    received = _received(_message(text={"body": "yes"}, context={"from": NUMBER, "id": "wamid.9"}))

    assert received.extra == {"replies_to": "wamid.9"}


@pytest.mark.parametrize(
    ("kind", "about", "words"),
    [
        ("interactive", {"type": "button_reply", "button_reply": {"title": "Cancel"}}, "Cancel"),
        ("interactive", {"type": "list_reply", "list_reply": {"title": "Express"}}, "Express"),
        ("interactive", {"type": "nfm_reply", "nfm_reply": {}}, "[a form, filled in]"),
        ("button", {"text": "Yes", "payload": "y"}, "Yes"),
        ("location", {"latitude": 52.5, "longitude": 13.4}, "[location: 52.5, 13.4]"),
        ("contacts", [{"name": {"formatted_name": "Eve"}}], "[contact: Eve]"),
        ("order", {"catalog_id": "1"}, "[a message of the kind 'order', which is not shown here]"),
    ],
)
def test_a_message_without_text_gets_a_description_and_keeps_its_original(
    kind: str, about: Any, words: str
) -> None:
    message = _message(kind, **{kind: about})
    received = _received(message)

    assert received.text == words
    assert received.parts[1] == Unknown({"type": f"whatsapp.{kind}", "whatsapp": message})


@pytest.mark.parametrize("kind", ["reaction", "system"])
def test_a_reaction_asks_for_no_answer(kind: str) -> None:
    assert list(inbound.events(payload(_message(kind)), NUMBER_ID)) == []


def test_an_edit_is_received_and_a_deletion_is_remembered() -> None:
    new = {"type": "text", "text": {"body": "at six"}}
    edit = _message("edit", edit={"original_message_id": "wamid.1", "message": new})
    revoke = _message("revoke", revoke={"original_message_id": "wamid.1"})
    received, withdrawn = inbound.events(payload(edit, revoke), NUMBER_ID)

    assert isinstance(received, ReceivedMessage)
    assert received.text == "[an earlier message, changed to:]\nat six"
    assert received.extra == {"edits": "wamid.1"}
    assert isinstance(withdrawn, WithdrawnMessage)
    assert withdrawn.message_id == "wamid.1"


async def test_in_a_group_only_messages_to_the_agent_are_received(
    platform: FakeWhatsApp,
) -> None:
    platform.options = WhatsAppOptions(observe=True)
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: _is_open(platform), "it is not open")
        for number, text in enumerate(["lunch?", f"@{NUMBER} where?"], 1):
            message = platform.message(text, number=number) | {"group_id": "Y2FwaV9ncm91cA"}
            assert await platform.post(payload(message)) == 200

    source = intake.sources[0]
    assert (source.chat_type, source.chat_id) == ("group", "Y2FwaV9ncm91cA")
    assert intake.texts[0].startswith("where?\n(Said here before, not to you")
    assert "lunch?" in intake.texts[0]
    assert recipient("Y2FwaV9ncm91cA")["recipient_type"] == "group"


async def test_a_deletion_by_a_stranger_is_ignored(platform: FakeWhatsApp) -> None:
    """P16: neither their name nor what they did reaches the agent."""
    intake = RecordingIntake()
    intake.is_open = False
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: _is_open(platform), "it is not open")
        revoke = _message("revoke", revoke={"original_message_id": "wamid.1"}, group_id="Y2Fw")
        question = platform.message(f"@{NUMBER} where?", number=2) | {"group_id": "Y2Fw"}
        assert await platform.post(payload(revoke, question)) == 200

    assert intake.texts == ["where?"]


# Files


async def test_a_file_comes_in_with_its_bytes(platform: FakeWhatsApp) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await platform.says("look", number=1, file=b"%PDF-1.7")
        await until(lambda: len(intake.messages) == 1, "the file did not come")

    words, file = intake.messages[0].parts
    name = hashlib.sha256(b"%PDF-1.7").hexdigest()
    assert words == Text("look")
    assert file == Attachment(name, "application/pdf", "a.pdf", 8)
    assert list(intake.files[0]) == [b"%PDF-1.7"]


async def test_a_file_that_is_gone_is_mentioned(platform: FakeWhatsApp) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: _is_open(platform), "it is not open")
        gone = _message("image", image={"id": "404", "mime_type": "image/jpeg"})
        assert await platform.post(payload(gone)) == 200

    assert intake.texts[0].startswith(
        "[The file “image” could not be fetched and was left out: WhatsApp #100"
    )


async def test_the_token_is_shown_to_no_other_host(platform: FakeWhatsApp) -> None:
    graph = platform.adapter()._graph

    for url in ("https://example.org/f", "http://lookaside.fbsbx.com/f", "https://evilfbsbx.com/"):
        with pytest.raises(Unreachable, match="not its own"):
            await graph.download(url, 10)


async def test_a_file_of_a_delivery_is_given_to_whatsapp(
    store: Store, platform: FakeWhatsApp
) -> None:
    world = ChannelWorld(store, platform)
    async with world.running() as engine:
        await platform.says("keep this", number=1, file=b"sums")
        await world.until(lambda: len(platform.posts) == 1, "an answer")
        await world.settle(engine)
        await store.write(_send_back, world)
        await world.until(lambda: len(platform.posts) == 2, "the file was not sent")

    assert platform.posts[1]["type"] == "document"
    assert b"sums" in platform.media[platform.posts[1]["document"]["id"]][0]


# What goes out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** and ~~gone~~", "*bold* and ~gone~"),
        ("# Title\ntext", "*Title*\ntext"),
        ("```\n**x** = 2\n```", "```\n**x** = 2\n```"),
        ("`a ** b ** c`", "`a ** b ** c`"),
        ("2 ** 3 ** 4", "2 ** 3 ** 4"),
    ],
)
def test_formatting_is_written_as_whatsapp_shows_it(text: str, shown: str) -> None:
    assert formatted(text) == shown


async def test_typing_is_shown_under_the_latest_message(platform: FakeWhatsApp) -> None:
    adapter = platform.adapter()
    async with run_adapter(adapter, RecordingIntake()):
        await platform.says("hello", number=7)
        await until(lambda: platform.acknowledged(7), "it was not taken")
        await adapter.typing(platform.chat)
        await adapter.typing(Channel("whatsapp", "49"))

    assert platform.typing == ["wamid.7"]


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        (131047, 400, Unreachable, "more than 24 hours"),
        (132001, 404, Unreachable, "template"),
        (131026, 400, Unreachable, "not on WhatsApp"),
        (131030, 400, Unreachable, "test number"),
        (100, 400, Unreachable, "#100"),
        (190, 401, NotAllowed, "renew the access token"),
        (10, 403, NotAllowed, "permissions"),
        (131031, 403, NotAllowed, "#131031"),
        (130429, 429, RetryLater, "#130429"),
        (131056, 400, RetryLater, "#131056"),
        (80007, 400, RetryLater, "#80007"),
        (131016, 500, RetryLater, "#131016"),
        (2, 503, RetryLater, "#2"),
    ],
)
async def test_a_code_of_whatsapp_says_what_to_do(
    platform: FakeWhatsApp, code: int, status: int, kind: type[SessionaryError], words: str
) -> None:
    adapter = platform.adapter()
    platform.refuse_with(code, status)

    with pytest.raises(kind) as caught:
        await adapter.send(delivery_to(platform.chat, "hello"))

    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_an_error_of_a_proxy_leaves_the_outcome_unknown(platform: FakeWhatsApp) -> None:
    platform.refuse_as(Response(502, b"<html>"))

    with pytest.raises(SessionaryError) as caught:
        await platform.adapter().send(delivery_to(platform.chat, "hello"))

    assert (type(caught.value), caught.value.committed) == (SessionaryError, "unknown")


async def test_a_long_delivery_goes_on_where_it_stopped(platform: FakeWhatsApp) -> None:
    adapter = platform.adapter()
    text = "word " * 2000
    platform.lose_answers(0)
    await adapter.send(delivery_to(platform.chat, text, id="whole"))
    whole = platform.seen()
    platform.posts.clear()
    platform.refuse_as(Response(200, b'{"messages": [{"id": "wamid.a"}]}'))
    platform.refuse(429)
    with pytest.raises(RetryLater):
        await adapter.send(delivery_to(platform.chat, text))

    await adapter.send(delivery_to(platform.chat, text, attempts=2))

    assert len(whole) == 3
    assert platform.seen() == whole[1:]


async def test_a_late_failure_shows_its_reason_to_the_owner(
    store: Store, platform: FakeWhatsApp
) -> None:
    world = ChannelWorld(store, platform)
    async with world.running() as engine:
        delivery_id = await world.post("good morning")
        await world.until_seen("good morning")
        await world.settle(engine)
        status = {
            "id": "wamid.out-1",
            "status": "failed",
            "recipient_id": KNOWN,
            "biz_opaque_callback_data": delivery_id,
            "errors": [graph_error(131047)["error"]],
        }
        assert await platform.post(payload(statuses=[{**status, "status": "read"}])) == 200
        assert await platform.post(payload(statuses=[status])) == 200

    found = await store.read(deliveries.get, delivery_id, profile="main")
    assert found is not None
    assert found.state is DeliveryState.ABANDONED
    assert "more than 24 hours" in (found.reason or "")


async def test_a_status_cannot_fail_a_delivery_of_another_platform(store: Store) -> None:
    moment = Moment(START, SequentialIds())
    id = await store.write(
        outbox.enqueue, Channel("signal", "1"), (Text("x"),), profile="main", moment=moment
    )
    await store.write(outbox.claim, holder="h", seconds=9, now=moment.now)
    given = {"profile": "main", "reason": "r"}

    assert not await store.write(outbox.bounce, id, platform="whatsapp", **given)
    assert await store.write(outbox.bounce, id, platform="signal", **given)


async def test_a_token_that_is_refused_later_stops_the_channel(
    store: Store, platform: FakeWhatsApp
) -> None:
    world = ChannelWorld(store, platform)
    async with world.running() as engine:
        await platform.says("hello", number=1)
        await world.until_seen("hello")
        platform.revoke()
        await world.post("still there?")
        state = "channel whatsapp"
        await world.until(lambda: engine.states[state].startswith("stopped"), "it goes on")
        assert await platform.post(payload(platform.message("x", number=2))) == 503
        assert "#190" in engine.states[state]


# Its configuration


async def test_the_check_names_the_number(platform: FakeWhatsApp) -> None:
    adapter = registry.build("whatsapp", _settings(base_url=platform.url), _environ())

    assert await adapter.check() == "WhatsApp knows this number as Sessionary (+1 555-078-3881)."
    await adapter.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"phone_number_id": "+1555"}, "phone_number_id"),
        ({"base_url": "graph"}, "base_url"),
        ({"app_secret_env": None}, "app_secret"),
        ({"verify_token_env": None}, "verify_token"),
    ],
)
def test_a_setting_that_is_wrong_is_named(change: dict[str, Any], words: str) -> None:
    given = {name: value for name, value in _settings(**change).items() if value is not None}

    with pytest.raises(BadInput, match=words):
        registry.build("whatsapp", given, _environ())


def test_a_failure_without_a_title_is_still_reported() -> None:
    failed = payload(statuses=[{"status": "failed", "recipient_id": KNOWN}])

    assert list(inbound.events(failed, NUMBER_ID)) == [FailedDelivery(KNOWN, None, {})]


def _send_back(tx: Tx, world: ChannelWorld) -> None:
    """Send the first file that was received."""
    head = lists.list_sessions(tx, lists.SessionFilters(), profile="main").items[0]
    body = read.read_transcript(tx, head.id, profile="main")[0].body
    assert isinstance(body, Message)
    moment = Moment(world.clock.now(), world.ids)
    to = world.platform.chat
    outbox.enqueue(tx, to, body.parts[1:], profile="main", moment=moment, session_no=head.no)


def _message(kind: str = "text", **about: Any) -> dict[str, Any]:
    return {"from": KNOWN, "id": "wamid.1", "timestamp": "1739321024", "type": kind, **about}


def _received(message: dict[str, Any]) -> ReceivedMessage:
    (event,) = inbound.events(payload(message), NUMBER_ID)
    assert isinstance(event, ReceivedMessage)
    return event


def _is_open(platform: FakeWhatsApp) -> bool:
    return platform.made is not None and platform.made._receive is not None


def _settings(**change: Any) -> dict[str, Any]:
    return {
        "phone_number_id": NUMBER_ID,
        "token_env": "TOKEN",
        "app_secret_env": "SECRET",
        "verify_token_env": "VERIFY",
        **change,
    }


def _environ() -> dict[str, str]:
    return {"TOKEN": TOKEN, "SECRET": APP_SECRET, "VERIFY": VERIFY_TOKEN}
