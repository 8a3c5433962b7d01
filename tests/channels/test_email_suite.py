"""The adapter of e-mail against a real IMAP server and a real SMTP server."""

from collections.abc import AsyncIterator

import pytest

from sessionary.channels.email import adapter as email_adapter
from sessionary.errors import BadInput, NotAllowed, Unreachable
from sessionary.testing.adapter_suite import AdapterSuite
from sessionary.testing.channel_world import (
    TIMEOUT_SECONDS,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from tests.support.dovecot import Dovecot
from tests.support.mailbox import MailPlatform


@pytest.fixture
async def platform(
    dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MailPlatform]:
    # On a busy machine it may take longer than ten seconds to look up a thread.
    monkeypatch.setattr(email_adapter, "_LOOKUP_SECONDS", TIMEOUT_SECONDS)
    async with MailPlatform(dovecot) as mail:
        yield mail


class TestEmail(AdapterSuite):
    """Everything that an adapter keeps to."""


async def test_an_idle_connection_reports_a_new_mail_by_itself(platform: MailPlatform) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(idle_seconds=240), intake):
        for number in (1, 2):
            await platform.says(f"word {number}", number=number)
            await until(lambda: platform.acknowledged(number), "no notification came")  # noqa: B023

    assert intake.texts == ["word 1", "word 2"]


async def test_an_answer_names_its_thread_even_after_a_restart(platform: MailPlatform) -> None:
    async with run_adapter(platform.adapter(), RecordingIntake()):
        await platform.says("hello", number=1)
        await until(lambda: platform.acknowledged(1), "it was not taken")

    await platform.adapter().send(delivery_to(platform.chat, "hi"))

    mail = platform.sent[0].mail
    assert mail["Subject"] == "Re: our talk"
    assert mail["In-Reply-To"] == f"<n1-{platform.root[1:]}"
    assert str(mail["References"]).split() == [platform.root, f"<n1-{platform.root[1:]}"]


async def test_an_automatic_reply_is_marked_as_seen_and_reaches_nobody(
    platform: MailPlatform,
) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        platform.deliver(b"From: ada@example.org\nAuto-Submitted: auto-replied\n\nAway.", 1)
        await until(lambda: platform.acknowledged(1), "it was left unseen")

    assert intake.texts == []


async def test_a_mail_that_is_too_large_is_cut_and_says_so(platform: MailPlatform) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(largest_mail_bytes=200_000), intake):
        await platform.says("look", number=1, file=b"x" * 300_000)
        await until(lambda: platform.acknowledged(1), "it was not taken")

    assert intake.texts[0].startswith("look")
    assert "too large" in intake.texts[0]


async def test_a_mail_that_is_always_refused_does_not_block_the_others(
    platform: MailPlatform,
) -> None:
    async def refuse_first(count: int) -> None:
        if count == 1:
            raise BadInput("it cannot be kept")

    intake = RecordingIntake(refuse_first)
    async with run_adapter(platform.adapter(), intake) as task:
        for number in (1, 2):
            await platform.says(f"word {number}", number=number)
            await until(lambda: task.done() or platform.acknowledged(number), "seen")  # noqa: B023

    assert intake.texts == ["word 1", "word 2"]


@pytest.mark.parametrize("status", [550, 554])
async def test_an_address_that_does_not_exist_is_unreachable(
    platform: MailPlatform, status: int
) -> None:
    platform.refuse(status)

    with pytest.raises(Unreachable):
        await platform.adapter().send(delivery_to(platform.chat, "hi"))


async def test_checking_says_who_the_bot_is(platform: MailPlatform) -> None:
    assert platform.address in await platform.adapter().check()
    platform.revoke()
    adapter = platform.adapter()
    platform.revoke()
    with pytest.raises(NotAllowed, match="password"):
        await adapter.check()
