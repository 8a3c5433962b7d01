"""Questions where there are no buttons: by a number, a word or a code, on Signal, Matrix and by e-mail."""

from collections.abc import AsyncIterator
from email.message import EmailMessage
from typing import Any, Protocol
from urllib.parse import quote

import pytest

from sessionary.actions import questions
from sessionary.channels.email import adapter as email_adapter
from sessionary.channels.email import inbound
from sessionary.channels.email.inbound import Mail, MailRules
from sessionary.errors import RetryLater
from sessionary.model.message import Text
from sessionary.model.question import Card, MessageEdit, NewQuestion, QuestionKind
from sessionary.model.source import Channel
from sessionary.store.database import Store
from sessionary.testing.channel_world import (
    TIMEOUT_SECONDS,
    ChannelWorld,
    PlatformDriver,
    delivery_to,
)
from tests.support.dovecot import Dovecot
from tests.support.fake_signal import (
    ACCOUNT_UUID,
    GROUP,
    OUR_MENTION,
    FakeSignal,
    data_message,
    envelope,
)
from tests.support.homeserver import MatrixPlatform
from tests.support.mailbox import DOMAIN, MailPlatform
from tests.support.question_suite import (
    HIDDEN_ARGUMENTS,
    HIDDEN_SHOWN,
    OTHER,
    ApprovalRunner,
    ask_in_home,
    asking_world,
    the_question,
    until_card,
    until_delivered,
)
from tests.support.synapse import Synapse

COLOUR = NewQuestion(name="1", kind=QuestionKind.TEXT, text="Which colour?")
TITLE = "May the tool **send** be called?"
TOKEN = "0123456789abcdef0123456789abcdef"


class TextPlatform(PlatformDriver, Protocol):
    """A platform without buttons; `owner` is the name of `known` there."""

    owner: str

    def cards(self) -> list[str]:
        """Return the texts of the questions in the chat."""

    def replies(self, text: str, *, number: int) -> None:
        """Let `known` reply to the last message of the bot, as apps do that quote it; the text may be empty."""

    def says_elsewhere(self, text: str, *, number: int) -> None:
        """Let `known` write to the bot in another chat."""


class SignalText(FakeSignal):
    """Signal, where an app sends the quote beside the text."""

    owner = "Ada"

    def cards(self) -> list[str]:
        return [text for text in self.seen() if "in any chat." in text]

    def replies(self, text: str, *, number: int) -> None:
        quoted = {"id": self.last_sent_at, "authorUuid": ACCOUNT_UUID, "text": self.seen()[-1]}
        self.tell(envelope(dataMessage=data_message(text, number=number, quote=quoted)))

    def says_elsewhere(self, text: str, *, number: int) -> None:
        more = {"groupInfo": GROUP, "mentions": [OUR_MENTION]}
        self.tell(envelope(dataMessage=data_message(f"\ufffc {text}", number=number, **more)))


class MatrixText(MatrixPlatform):
    """Matrix, where older apps quote in the text itself."""

    owner = "ada"

    def events(self) -> list[dict[str, Any]]:
        """What the bot has written in the room, each with its id."""
        path = f"/_matrix/client/v3/rooms/{quote(self.room)}/messages?dir=f&limit=500"
        found: list[dict[str, Any]] = self.synapse.call("GET", path, token=self.ada)["chunk"]
        is_ours = [each for each in found if each["sender"] == self.bot]
        return [each for each in is_ours if each["type"] == "m.room.message"]

    def cards(self) -> list[str]:
        return [text for text in self.seen() if "in any chat." in text]

    def replies(self, text: str, *, number: int) -> None:
        last = self.events()[-1]
        lines = str(last["content"]["body"]).split("\n")
        above = "\n".join([f"> <{self.bot}> {lines[0]}", *(f"> {line}" for line in lines[1:])])
        relation = {"m.in_reply_to": {"event_id": last["event_id"]}}
        body = f"{above}\n\n{text}" if text else above
        self.put({"msgtype": "m.text", "body": body, "m.relates_to": relation})

    def says_elsewhere(self, text: str, *, number: int) -> None:
        self.put({"msgtype": "m.text", "body": text}, room=self.make_room(self.ada))


class MailText(MailPlatform):
    """E-mail, where the whole mail is quoted below the reply."""

    owner = "Ada"

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        if self.sent and person is None:
            self.deliver(self.reply(text, number=number), number)
        else:
            await super().says(text, number=number, person=person, file=file)

    def cards(self) -> list[str]:
        return [text for text in self.seen() if "in any chat." in text]

    def replies(self, text: str, *, number: int) -> None:
        self.deliver(self.reply(f"{text}\n\n{self.quoted()}", number=number), number)

    def reply(self, text: str, *, number: int) -> bytes:
        """A mail of Ada that answers the last one of the bot."""
        mail = self.mail(text, number=number)
        mail["References"] = self.root
        mail["In-Reply-To"] = str(self.sent[-1].mail["Message-ID"])
        return mail.as_bytes()

    def says_elsewhere(self, text: str, *, number: int) -> None:
        self.deliver(self.mail(text, number=number).as_bytes(), number)

    def quoted(self) -> str:
        """The last mail of the bot, as mail programs quote it."""
        lines = self.seen()[-1].split("\n")
        return "\n".join(["On Monday, the bot wrote:", *(f"> {line}".rstrip() for line in lines)])

    def mail(self, text: str, *, number: int, **headers: str) -> EmailMessage:
        """A mail of Ada that is in no thread."""
        mail = EmailMessage()
        given = {"From": f"Ada <{self.known}>", "To": self.address, "Subject": "Re: our talk"}
        for name, value in (given | headers).items():
            mail[name] = value
        mail["Message-ID"] = f"<n{number}-{self.root[1:]}"
        mail.set_content(text)
        return mail


def world_of(
    store: Store, platform: PlatformDriver, runner: ApprovalRunner, **access: Any
) -> ChannelWorld:
    """A world in which everybody may write to the agent, and `known` is the owner."""
    return asking_world(store, platform, runner, everyone=True, **access)


def results(platform: TextPlatform) -> list[str]:
    """What the agent has said at the end."""
    return [text for text in platform.seen() if text.startswith("Result: ")]


class TextQuestionSuite:
    """For every platform without buttons; a subclass has the fixture `platform`."""

    @pytest.fixture
    def runner(self) -> ApprovalRunner:
        return ApprovalRunner()

    @pytest.fixture
    def world(self, store: Store, platform: TextPlatform, runner: ApprovalRunner) -> ChannelWorld:
        return world_of(store, platform, runner)

    async def test_a_question_ends_with_its_numbers_and_a_code(
        self, world: ChannelWorld, platform: TextPlatform
    ) -> None:
        async with world.running():
            await platform.says("go", number=1)
            await until_card(world)
            question = await the_question(world)

        (card,) = platform.cards()
        lines = card.split("\n")
        assert lines[:5] == [TITLE, "", "```", "to: Ann", "```"]
        assert [line for line in lines[5:] if line] == [
            "1. Approve",
            "2. Deny",
            "3. Always in this session",
            "4. Always for this person",
            f"Reply to this message with a number, or write it after {question.code} in any chat.",
        ]

    @pytest.mark.parametrize(
        ("typed", "outcome"),
        [
            ("1", "Approved by {}."),
            ("Yes!", "Approved by {}."),
            ("2", "Denied by {}."),
            ("deny: not today", "Denied by {}: not today."),
        ],
    )
    async def test_a_number_or_a_word_answers_and_the_turn_goes_on(
        self,
        world: ChannelWorld,
        platform: TextPlatform,
        runner: ApprovalRunner,
        typed: str,
        outcome: str,
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            await platform.says(typed, number=2)
            await world.until(lambda: len(results(platform)) == 1, "it was no answer")
            await world.settle(engine)

        assert results(platform) == [f"Result: {outcome.format(platform.owner)}"]
        assert len(runner.ran) == outcome.startswith("Approved")

    async def test_a_reply_that_quotes_the_question_answers_with_its_own_words(
        self, world: ChannelWorld, platform: TextPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.replies("2", number=2)
            await world.until(lambda: len(results(platform)) == 1, "it was no answer")
            await world.settle(engine)

        assert results(platform) == [f"Result: Denied by {platform.owner}."]
        assert runner.ran == []

    @pytest.mark.parametrize("asked", [None, COLOUR], ids=["approval", "text"])
    async def test_a_quote_alone_answers_nothing(
        self, store: Store, platform: TextPlatform, asked: NewQuestion | None
    ) -> None:
        runner = ApprovalRunner() if asked is None else ApprovalRunner(asked)
        world = world_of(store, platform, runner)
        async with world.running():
            await platform.says("go", number=1)
            await until_card(world)
            platform.replies("", number=2)
            await world.until(lambda: "message waits" in platform.seen()[-1], "it does not wait")
            assert (await the_question(world)).is_open

        assert runner.ran == []

    async def test_the_code_answers_from_another_chat(
        self, world: ChannelWorld, platform: TextPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            question = await the_question(world)
            platform.says_elsewhere(f"{question.code.lower()} 1", number=2)
            await world.until(lambda: len(runner.ran) == 1, "it was no answer")
            await world.settle(engine)

        assert len(await world.transcripts()) == 1

    async def test_somebody_else_answers_nothing(
        self, world: ChannelWorld, platform: TextPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running():
            await platform.says("go", number=1)
            await until_card(world)
            question = await the_question(world)
            await platform.says(f"{question.code} 1", number=2, person=OTHER)
            await world.until_heard(2)
            found = await world.store.read(questions.get, question.id, profile="main")

        assert found is not None
        assert found.is_open
        assert runner.ran == []

    async def test_the_owner_decides_in_their_own_chat_about_somebody_elses_turn(
        self, world: ChannelWorld, platform: TextPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await ask_in_home(world)
            question = await the_question(world)
            await platform.says(f"{question.code} yes", number=2)
            await world.until(lambda: len(runner.ran) == 1, "it was no answer")
            await world.settle(engine)

        assert "asks:" in platform.cards()[0]

    async def test_arguments_can_neither_hide_nor_notify_nor_look_like_a_decision(
        self, store: Store, platform: TextPlatform
    ) -> None:
        arguments = {
            **HIDDEN_ARGUMENTS,
            "more": f"<!channel> @everyone @room {platform.known} <https://x|y>\n1. Deny\n> quoted",
        }
        asked = NewQuestion(
            name="1",
            kind=QuestionKind.APPROVAL,
            text=f"because {platform.known} and @room say so",
            tool="send",
            arguments=arguments,
        )
        world = world_of(store, platform, ApprovalRunner(asked))
        async with world.running():
            await platform.says("go", number=1)
            await until_card(world)

        (card,) = platform.cards()
        head, _, rest = card.partition("\n\n```\n")
        shown, _, end = rest.rpartition("\n```")
        assert head == TITLE
        assert shown.startswith(HIDDEN_SHOWN)
        assert shown.removeprefix(HIDDEN_SHOWN).split("\n") == [
            "",
            "more:",
            f"| <!channel> @everyone @room {platform.known} <https://x|y>",
            "| 1. Deny",
            "| > quoted",
        ]
        assert "```" not in shown
        assert end.startswith(f"\n\nbecause {platform.known} and @room say so\n\n1. Approve")
        self.notifies_nobody(platform)

    def notifies_nobody(self, platform: Any) -> None:
        """Check what the platform was sent besides the text."""


class TestSignalQuestions(TextQuestionSuite):
    @pytest.fixture(params=["tcp", "http"])
    async def platform(self, request: pytest.FixtureRequest) -> AsyncIterator[SignalText]:
        async with SignalText(request.param) as fake:
            yield fake

    def notifies_nobody(self, platform: SignalText) -> None:
        assert all(set(each) == {"recipient", "message"} for each in platform.sent)


class TestMatrixQuestions(TextQuestionSuite):
    @pytest.fixture
    async def platform(self, synapse: Synapse) -> AsyncIterator[MatrixText]:
        async with MatrixText(synapse) as homeserver:
            yield homeserver

    def notifies_nobody(self, platform: MatrixText) -> None:
        (card,) = (each["content"] for each in platform.events())
        assert card["m.mentions"] == {}
        html = card["formatted_body"]
        # Nothing of the arguments is a tag, a link or a list: they are in one block, escaped.
        block, _, rest = html.partition("<pre><code>")[2].partition("</code></pre>")
        assert "<" not in block
        assert "&lt;https://x|y&gt;\n| 1. Deny\n| &gt; quoted" in block
        assert "<a " not in html
        assert rest.count("<li>") == 4


class TestMailQuestions(TextQuestionSuite):
    @pytest.fixture
    async def platform(
        self, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[MailText]:
        # On a busy machine it may take longer than ten seconds to look up a thread.
        monkeypatch.setattr(email_adapter, "_LOOKUP_SECONDS", TIMEOUT_SECONDS)
        async with MailText(dovecot) as mail:
            yield mail

    def notifies_nobody(self, platform: MailText) -> None:
        (sent,) = platform.sent
        assert (sent.to, sent.mail.get_content_type()) == (platform.known, "text/plain")


# Signal


@pytest.mark.parametrize("edit", [{"targetSentTimestamp": 1}])
async def test_a_message_that_was_changed_to_yes_answers_nothing(
    store: Store, edit: dict[str, Any]
) -> None:
    runner = ApprovalRunner()
    async with SignalText("tcp") as platform:
        world = world_of(store, platform, runner)
        async with world.running():
            await platform.says("go", number=1)
            await until_card(world)
            changed = edit | {"dataMessage": data_message("yes", number=2)}
            platform.tell(envelope(editMessage=changed))
            await world.until(lambda: "message waits" in platform.seen()[-1], "it does not wait")
            assert (await the_question(world)).is_open

    assert runner.ran == []


async def test_in_a_signal_group_a_reply_that_quotes_the_question_answers(store: Store) -> None:
    runner = ApprovalRunner()
    async with SignalText("tcp") as platform:
        world = world_of(store, platform, runner)
        async with world.running() as engine:
            platform.says_elsewhere("go", number=1)
            await world.until(lambda: len(platform.sent) == 1, "nothing was asked")
            await until_delivered(world)
            text = platform.sent[0]["message"]
            quoted = {"id": platform.last_sent_at, "authorUuid": ACCOUNT_UUID, "text": text}
            for number, person in ((2, "8"), (3, None)):
                data = data_message("1", number=number, quote=quoted, groupInfo=GROUP)
                platform.tell(envelope(person, dataMessage=data))
            await world.until(lambda: len(runner.ran) == 1, "it was no answer")
            await world.settle(engine)

    assert runner.ran[0].who == "Ada"


# Matrix


@pytest.fixture
async def matrix(synapse: Synapse) -> AsyncIterator[MatrixText]:
    async with MatrixText(synapse) as homeserver:
        yield homeserver


async def test_the_message_on_matrix_is_replaced_by_one_that_shows_who_decided(
    store: Store, matrix: MatrixText
) -> None:
    world = world_of(store, matrix, ApprovalRunner())
    async with world.running() as engine:
        await matrix.says("go", number=1)
        await until_card(world)
        await matrix.says("yes", number=2)
        await world.until(lambda: len(results(matrix)) == 1, "it did not go on")
        await world.settle(engine)

    card, *others = matrix.events()
    (edit,) = (each["content"] for each in others if "m.new_content" in each["content"])
    text = f"{TITLE}\n\n```\nto: Ann\n```\n\nApproved by ada."
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": card["event_id"]}
    assert (edit["body"], edit["m.mentions"]) == (f"* {text}", {})
    assert edit["m.new_content"] == {
        "msgtype": "m.text",
        "body": text,
        "m.mentions": {},
        "format": "org.matrix.custom.html",
        "formatted_body": (
            "<p>May the tool <strong>send</strong> be called?</p>\n"
            "<pre><code>to: Ann\n</code></pre>\n<p>Approved by ada.</p>"
        ),
    }
    assert len(others) == 2


class SentBefore:
    """Delivery services that know the message of an earlier delivery."""

    def __init__(self, message_id: str) -> None:
        self.known = message_id

    async def message_id(self, delivery_id: str) -> str | None:
        """Return the message."""
        return self.known


async def test_an_edit_on_matrix_is_made_once_however_often_it_is_tried(
    matrix: MatrixText,
) -> None:
    adapter: Any = matrix.adapter()
    card = Card("q1", TOKEN, ("Yes", "No"), "K7QD")
    sent = await adapter.send(delivery_to(matrix.chat, "hm?", card.part()))
    adapter.attach(SentBefore(sent.platform_message_id))
    part = MessageEdit("delivery-1", "Denied by @ada:test.").part()
    shown = delivery_to(matrix.chat, "hm?\n\nDenied by @ada:test.", part, id="delivery-2")

    matrix.refuse(429, retry_after=9)
    with pytest.raises(RetryLater):
        await adapter.send(shown)
    for _ in range(2):
        await adapter.send(shown)
    await adapter.close()

    question, edit = matrix.events()
    assert "1. Yes\n2. No" in question["content"]["body"]
    assert edit["content"]["m.new_content"]["body"] == "hm?\n\nDenied by @ada:test."
    assert edit["content"]["m.new_content"]["m.mentions"] == {}


async def test_a_card_on_matrix_that_cannot_be_edited_is_followed_by_a_message(
    matrix: MatrixText,
) -> None:
    adapter: Any = matrix.adapter()
    adapter.attach(SentBefore("$unknown"))
    matrix.refuse(403)
    part = MessageEdit("delivery-1", "Denied by @ada:test.").part()

    await adapter.send(delivery_to(matrix.chat, "hm?\n\nDenied by @ada:test.", part))
    await adapter.close()

    (event,) = matrix.events()
    assert (event["content"]["body"], event["content"]["m.mentions"]) == (
        "Denied by @ada:test.",
        {},
    )


# E-mail


@pytest.fixture
async def mailbox(dovecot: Dovecot) -> AsyncIterator[MailText]:
    async with MailText(dovecot) as mail:
        yield mail


async def test_a_decision_in_another_chat_comes_as_a_mail_and_one_in_the_thread_does_not(
    store: Store, mailbox: MailText
) -> None:
    world = world_of(store, mailbox, ApprovalRunner())
    async with world.running() as engine:
        await mailbox.says("go", number=1)
        await until_card(world)
        mailbox.says_elsewhere(f"{(await the_question(world)).code} 1", number=2)
        await world.until(lambda: len(results(mailbox)) == 1, "it did not go on")
        await world.settle(engine)
        before = len(mailbox.sent)
        await mailbox.says("go on", number=3)
        await world.until(lambda: len(mailbox.cards()) == 2, "nothing was asked")
        await mailbox.says("1", number=4)
        await world.until(lambda: len(results(mailbox)) == 2, "it did not go on")
        await world.settle(engine)

    assert "Approved by Ada." in mailbox.seen()[:before]
    assert "Approved by Ada." not in mailbox.seen()[before:]


RULES = MailRules(f"bot@{DOMAIN}")
HEADERS = {"From": f"ada@{DOMAIN}", "To": f"Bot <BOT@{DOMAIN}>", "Subject": "Re: Tea"}
QUOTE = "> May the tool send be called?\n>\n> 1. Approve"


def read_mail(text: str, **headers: str | None) -> Mail:
    mail = EmailMessage()
    for name, value in (HEADERS | {"Message-ID": "<1@x>"} | headers).items():
        if value is not None:
            mail[name.replace("_", "-")] = value
    mail.set_content(text)
    found = inbound.read(mail.as_bytes(), RULES)
    assert isinstance(found, Mail)
    return found


def own_words(mail: Mail) -> list[str]:
    """What the sender has typed, as a question would be answered with it."""
    message, _ = inbound.message_of(mail)
    return [part.text.strip() for part in message.parts if part == Text(message_text(part))]


def message_text(part: Any) -> str:
    return part.text if isinstance(part, Text) else ""


@pytest.mark.parametrize(
    ("text", "own"),
    [
        (f"1\n\nOn Monday, Bot wrote:\n{QUOTE}", ["1"]),
        (f"1\n\n{QUOTE}\n", ["1"]),
        (f"{QUOTE}\n1", ["1"]),
        (f"{QUOTE}\n\n1\n\n> 2. Deny\n> 3. Always", ["1"]),
        (f"no\n\n{QUOTE}\nyes", ["no", "yes"]),
        (QUOTE, []),
        (f"On Monday, Bot wrote:\n{QUOTE}", []),
        ("From: Bot\nSent: Monday\nTo: Ada\n\n1", []),
        ("-----Original Message-----\nFrom: Bot\n\n1", []),
        ("2\n\nFrom: Bot\nSent: Monday\nTo: Ada\n\n1", ["2"]),
        ("1\n-- \nAda\nyes", ["1"]),
        ("yes, but\n> 1. Approve\nonly tomorrow", ["yes, but", "only tomorrow"]),
        ("", []),
    ],
)
def test_only_what_the_sender_of_a_mail_has_typed_can_answer(text: str, own: list[str]) -> None:
    mail = read_mail(text)

    assert own_words(mail) == own
    # Nothing is lost: whoever reads the mail, reads the quotes too.
    message, _ = inbound.message_of(mail)
    assert message.text == (mail.words or "")


@pytest.mark.parametrize(
    ("headers", "is_forwarded"),
    [
        ({}, False),
        ({"To": f"eve@{DOMAIN}", "Cc": f"x@{DOMAIN}, bot@{DOMAIN}"}, False),
        ({"Subject": "Re: Fwd: Tea"}, False),
        ({"Subject": "Fwd: Tea"}, True),
        ({"Subject": "WG: Tea"}, True),
        ({"Resent_From": f"eve@{DOMAIN}"}, True),
        ({"To": f"eve@{DOMAIN}"}, True),
        ({"To": None}, True),
    ],
)
def test_a_mail_that_was_passed_on_to_us_says_so(
    headers: dict[str, str | None], is_forwarded: bool
) -> None:
    message, _ = inbound.message_of(read_mail("yes", **headers))

    assert message.extra.get("forwarded", False) is is_forwarded


@pytest.mark.parametrize(
    "headers", [{"Subject": "Fwd: our talk"}, {"To": "eve@example.org"}, {"Resent-From": "e@x.org"}]
)
async def test_a_yes_in_a_mail_that_was_passed_on_approves_nothing(
    store: Store, mailbox: MailText, headers: dict[str, str]
) -> None:
    runner = ApprovalRunner()
    world = world_of(store, mailbox, runner)
    async with world.running():
        await mailbox.says("go", number=1)
        await until_card(world)
        mail = mailbox.mail("yes", number=2, **headers)
        mail["In-Reply-To"] = mail["References"] = mailbox.root
        mailbox.deliver(mail.as_bytes(), 2)
        await world.until(lambda: "message waits" in mailbox.seen()[-1], "it does not wait")
        assert (await the_question(world)).is_open

    assert runner.ran == []


def test_the_chat_of_a_mail_is_its_thread() -> None:
    source = inbound.source_of(read_mail("1", References="<root@x>"))

    assert source.channel == Channel("email", f"ada@{DOMAIN}", "<root@x>")
