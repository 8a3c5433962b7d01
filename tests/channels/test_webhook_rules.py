"""The rules of the webhook channel: signatures, templates, what is refused."""

import asyncio
import json

import pytest

from sessionary.channels import registry
from sessionary.channels.webhook import BodyFields, BodyTemplate, WebhookSettings
from sessionary.channels.webhook.adapter import (
    WebhookAdapter,
    body_of,
    read_body,
    sign,
    signature_problem,
)
from sessionary.config.secret import Secret
from sessionary.errors import BadInput, NotAllowed, RetryLater, Unreachable
from sessionary.model.question import Card
from sessionary.testing.channel_world import RecordingIntake, delivery_to, run_adapter
from tests.support.fake_program import FakeProgram

SETTINGS = WebhookSettings(secret=Secret("s"))
NOW = 1_772_442_000.0
BODY = b'{"a": 1}'


def test_our_own_signature_is_accepted() -> None:
    assert signature_problem(SETTINGS, sign(SETTINGS, BODY, NOW), BODY, NOW) is None


@pytest.mark.parametrize("seconds", [-299, 0, 299])
def test_a_signature_is_good_for_five_minutes(seconds: float) -> None:
    headers = sign(SETTINGS, BODY, NOW)

    assert signature_problem(SETTINGS, headers, BODY, NOW + seconds) is None


@pytest.mark.parametrize("seconds", [-302, 302])
def test_a_signature_of_another_time_is_refused(seconds: float) -> None:
    headers = sign(SETTINGS, BODY, NOW)

    assert "too old" in str(signature_problem(SETTINGS, headers, BODY, NOW + seconds))


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, BODY),
        (sign(SETTINGS, BODY, NOW), b'{"a":1}'),
        (sign(WebhookSettings(secret=Secret("t")), BODY, NOW), BODY),
        ({"x-sessionary-signature": "sha256=é", "x-sessionary-timestamp": "1772442000"}, BODY),
        (sign(SETTINGS, BODY, NOW) | {"x-sessionary-timestamp": "1772442001"}, BODY),
        (sign(SETTINGS, BODY, NOW) | {"x-sessionary-timestamp": "٣"}, BODY),
        (sign(SETTINGS, BODY, NOW) | {"x-sessionary-timestamp": ""}, BODY),
        (sign(SETTINGS, BODY, NOW) | {"x-sessionary-timestamp": "9" * 400}, BODY),
    ],
)
def test_other_signatures_are_refused(headers: dict[str, str], body: bytes) -> None:
    assert signature_problem(SETTINGS, headers, body, NOW) is not None


async def test_header_names_have_no_case() -> None:
    headers = {name.title(): value for name, value in sign(SETTINGS, BODY, NOW).items()}
    adapter = WebhookAdapter(SETTINGS, now=lambda: NOW)

    assert await adapter.handle_webhook(headers, BODY) != 401


def test_a_signature_in_githubs_format_is_accepted() -> None:
    github = WebhookSettings(
        secret=Secret("It's a Secret to Everybody"),
        signature_header="x-hub-signature-256",
        timestamp_header="",
    )
    given = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

    assert signature_problem(github, {"x-hub-signature-256": given}, b"Hello, World!", NOW) is None


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("{text}", "hi"),
        ("{deep.list.1.name}: {number}", "b: 5"),
        ("{{literal}} {flag}", "{literal} true"),
        ("{deep.list.0}", '{"name": "a"}'),
        ("constant", "constant"),
    ],
)
def test_a_template_is_filled_from_the_body(written: str, filled: str) -> None:
    body = {
        "text": "hi",
        "number": 5,
        "flag": True,
        "deep": {"list": [{"name": "a"}, {"name": "b"}]},
    }

    assert BodyTemplate(written).fill(body) == filled


@pytest.mark.parametrize("written", ["{missing}", "{text.deeper}", "{list.7}", "{list.-1}", "{no}"])
def test_what_is_missing_is_named(written: str) -> None:
    with pytest.raises(BadInput, match=r"nothing at"):
        BodyTemplate(written).fill({"text": "hi", "list": [1], "no": None})


@pytest.mark.parametrize("written", ["{", "a } b", "{a{b}}"])
def test_an_unmatched_brace_is_refused(written: str) -> None:
    with pytest.raises(BadInput, match="brace"):
        BodyTemplate(written)


def test_only_the_named_places_are_looked_at() -> None:
    body = {"chat_id": "a", "person_id": 7, "text": "hi", "message_id": 1, "session_id": "x"}

    source, message = read_body(json.dumps(body).encode(), BodyFields())

    assert source.extra == {}
    assert (source.chat_id, source.user_id, source.platform_message_id) == ("a", "7", "1")
    assert message.text == "hi"


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b"{}", b"[" * 100_000, b'{"chat_id": "", "message_id": 1}']
)
async def test_a_signed_body_that_cannot_be_used_is_refused_for_good(body: bytes) -> None:
    adapter, intake = WebhookAdapter(SETTINGS, now=lambda: NOW), RecordingIntake()
    async with run_adapter(adapter, intake):
        await asyncio.sleep(0)
        assert await adapter.handle_webhook(sign(SETTINGS, body, NOW), body) == 422

    assert intake.messages == []


async def test_before_the_adapter_runs_posts_are_refused() -> None:
    adapter = WebhookAdapter(SETTINGS, now=lambda: NOW)
    body = b'{"chat_id": "1", "person_id": "7", "text": "hello", "message_id": "1"}'

    assert await adapter.handle_webhook(sign(SETTINGS, body, NOW), body) == 503


async def test_without_a_call_back_the_answer_stays_in_the_session() -> None:
    with pytest.raises(Unreachable, match="call_back"):
        await WebhookAdapter(SETTINGS).send(delivery_to(FakeProgram.chat, "hi"))


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, NotAllowed), (403, NotAllowed), (404, Unreachable), (410, Unreachable)],
)
async def test_the_status_of_a_call_back_decides_the_error(
    status: int, error: type[Exception]
) -> None:
    async with FakeProgram() as program:
        program.refuse(status)
        with pytest.raises(error):
            await program.adapter().send(delivery_to(program.chat, "hi"))


async def test_a_program_that_is_away_is_tried_later_each_time() -> None:
    async with FakeProgram(pause_seconds=1.0) as program:
        adapter = program.adapter()
        await program.go_offline()
        waits = []
        for attempts in (1, 2, 3, 20):
            with pytest.raises(RetryLater) as caught:
                await adapter.send(delivery_to(program.chat, "hi", attempts=attempts))
            waits.append(caught.value.after)

    assert waits == [2, 4, 8, 300]


async def test_a_redirect_is_not_followed() -> None:
    async with FakeProgram() as program:
        program.refuse(302)
        with pytest.raises(Unreachable):
            await program.adapter().send(delivery_to(program.chat, "hi"))


async def test_the_configuration_makes_an_adapter() -> None:
    values = {
        "secret_env": "HOOK",
        "call_back": "https://example.org/answers",
        "fields": {"chat": "{repository.name}", "person": "github", "text": "Push by {who}"},
    }
    adapter = registry.build("webhook", values, {"HOOK": "s3cret"})

    assert isinstance(adapter, WebhookAdapter)
    assert adapter.options.fields.text == BodyTemplate("Push by {who}")
    assert "example.org" in await adapter.check()
    assert "s3cret" not in repr(adapter.options)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "secret_env"),
        ({"secret_env": "NONE"}, "NONE"),
        ({"secret_env": "HOOK", "call_back": "ftp://x"}, "https://"),
        ({"secret_env": "HOOK", "fields": {"tekst": "x"}}, "tekst"),
        ({"secret_env": "HOOK", "callback": "x"}, "call_back"),
        ({"secret_env": "HOOK", "signature_header": ""}, "signature_header"),
    ],
)
def test_a_configuration_that_cannot_work_is_named(values: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        registry.build("webhook", values, {"HOOK": "s3cret"})


def test_a_question_names_its_options_and_how_to_answer() -> None:
    card = Card("q1", "secret", ("Approve", "Deny"), "K7QF")

    body = json.loads(body_of(delivery_to(FakeProgram.chat, "May it run?", card.part())))

    assert body["question"] == {"id": "q1", "code": "K7QF", "options": ["Approve", "Deny"]}
    assert body["text"].startswith(
        "May it run?\n\n1. Approve\n2. Deny\n\nReply to this message with a number"
    )
    assert "secret" not in str(body)
