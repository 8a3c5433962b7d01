"""Questions on Slack: buttons, the interactions that they cause, and the message that shows who decided."""

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sessionary.channels import base
from sessionary.channels.slack import inbound
from sessionary.channels.slack.inbound import SlackOptions
from sessionary.engine import intake
from sessionary.engine.ports import PressResult, Sent
from sessionary.engine.questions import NOT_YOURS
from sessionary.errors import RetryLater
from sessionary.model.question import Card, MessageEdit, NewQuestion, QuestionKind
from sessionary.model.source import Channel, ChatType
from sessionary.store.database import Store
from sessionary.testing.channel_world import RecordingIntake, delivery_to, run_adapter, until
from tests.channels.test_slack import PostingPlatform, SlackPlatform, prepare
from tests.engine.away import AwayStore
from tests.support.fake_slack import ADA, BOT, GENERAL, SIGNING_SECRET
from tests.support.question_suite import (
    HIDDEN_ARGUMENTS,
    HIDDEN_SHOWN,
    ApprovalRunner,
    QuestionPlatform,
    QuestionSuite,
    asking_world,
    the_question,
    until_card,
)

TOKEN = "0123456789abcdef0123456789abcdef"
LABELS = ("Approve", "Deny", "Always in this session", "Always for this person")
CARD = Card("q1", TOKEN, LABELS, "K7QD")


@pytest.fixture
async def platform(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlackPlatform]:
    prepare(monkeypatch)
    monkeypatch.setattr(base, "STORE_WAIT_SECONDS", 0.01)
    async with SlackPlatform() as fake:
        yield fake


@pytest.fixture
async def posting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostingPlatform]:
    prepare(monkeypatch)
    async with PostingPlatform() as fake:
        fake.by_post = True
        yield fake


class TestSlackQuestionsBySocket(QuestionSuite):
    """Everything that a channel with buttons does with a question."""

    @pytest.fixture
    async def platform(self, platform: SlackPlatform) -> SlackPlatform:
        return platform


class TestSlackQuestionsByPost(QuestionSuite):
    """The same, where Slack posts to us."""

    @pytest.fixture
    async def platform(self, posting: PostingPlatform) -> PostingPlatform:
        return posting

    async def test_a_press_while_the_store_is_unavailable_comes_again(
        self, store: Store, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        """Slack does not post it again: it shows the person that it has failed."""
        posting = cast(PostingPlatform, platform)
        away = AwayStore(store)
        away.away = frozenset({intake.press})
        world = asking_world(cast(Store, away), platform, runner)
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            away.is_away = True
            platform.presses("Approve", id=1)
            await world.until(lambda: posting.answers[-1:] == [503], "it was accepted")
            assert (await the_question(world)).is_open
            away.is_away = False
            platform.presses("Approve", id=2)
            await world.until(lambda: len(runner.ran) == 1, "the press was lost")
            await world.settle(engine)

    async def test_a_press_whose_commit_was_not_confirmed_counts_once(
        self, store: Store, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        """The person sees that it has failed, and that it has not: the message shows who decided."""
        posting = cast(PostingPlatform, platform)
        away = AwayStore(store)
        away.loses = {intake.press}
        world = asking_world(cast(Store, away), platform, runner)
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.presses("Approve")
            await world.until(lambda: posting.answers[-1:] == [503], "it was accepted")
            await world.until(lambda: len(runner.ran) == 1, "the press was lost")
            await world.settle(engine)

        assert platform.cards() == []


# The card


async def send(
    platform: SlackPlatform, text: str, card: Card = CARD, *, channel: Channel | None = None
) -> Sent:
    adapter = platform.adapter()
    try:
        where = channel or Channel("slack", GENERAL)
        return await adapter.send(delivery_to(where, text, card.part()))
    finally:
        await adapter.close()


def blocks_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    found = body["blocks"]
    blocks: list[dict[str, Any]] = json.loads(found) if isinstance(found, str) else found
    return blocks


async def test_a_card_is_one_message_with_a_button_for_each_option(
    platform: SlackPlatform,
) -> None:
    sent = await send(
        platform, "May **send** be called & <who>?", channel=Channel("slack", GENERAL, "5.0")
    )

    (post,) = platform.posts
    section, actions = blocks_of(post.body)
    assert sent.platform_message_id == post.id
    assert (post.channel, post.body["thread_ts"]) == (GENERAL, "5.0")
    assert post.body["text"] == "May **send** be called &amp; &lt;who&gt;?"
    assert section == {
        "type": "section",
        "expand": True,
        "text": {
            "type": "mrkdwn",
            "text": "May *send* be called &amp; &lt;who&gt;?",
            "verbatim": True,
        },
    }
    styles = [{"style": "primary"}, {"style": "danger"}, {}, {}]
    assert actions == {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": label, "emoji": False},
                "action_id": f"q.{TOKEN}.{number}",
                "value": f"q.{TOKEN}.{number}",
                **style,
            }
            for number, (style, label) in enumerate(zip(styles, LABELS, strict=True), 1)
        ],
    }


async def test_options_that_are_too_long_for_a_button_are_in_the_text(
    platform: SlackPlatform,
) -> None:
    await send(platform, "Which one?", Card("q1", TOKEN, ("x" * 60, "a\u202eb"), "K7QD"))

    (post,) = platform.posts
    assert post.text.startswith(f"Which one?\n\n1. {'x' * 60}\n2. ")
    assert list(platform.offered[post.id]) == [f"1. {'x' * 36}…", r"2. a\u202eb"]


async def test_the_buttons_of_a_long_question_are_below_its_last_piece(
    platform: SlackPlatform,
) -> None:
    await send(platform, "```\n" + "to: <@U0ADA>\n" * 400 + "```")

    *first, last = platform.posts
    assert first
    assert platform.with_buttons == [last.id]
    assert all(post.text.startswith("```\n") for post in platform.posts)
    assert all(post.text.endswith("```") for post in platform.posts)
    assert all("<@" not in json.dumps(post.body) for post in platform.posts)


async def test_a_question_can_be_answered_where_slack_refuses_its_buttons(
    platform: SlackPlatform,
) -> None:
    platform.refuses_blocks = True

    await send(platform, "Which one?", Card("q1", TOKEN, ("A & B", "C"), "K7QD"))

    (post,) = platform.posts
    assert post.body["text"].startswith("Which one?\n\n1. A &amp; B\n2. C\n")
    assert "K7QD" in post.text


async def test_arguments_can_neither_hide_nor_notify_nor_look_like_a_decision(
    store: Store, platform: SlackPlatform
) -> None:
    arguments = {
        **HIDDEN_ARGUMENTS,
        "more": "<!channel> <!here> @everyone <@U0ADA> <#C0GENERAL> <https://x|y> &lt;\n*c*",
    }
    asked = NewQuestion(
        name="1",
        kind=QuestionKind.APPROVAL,
        text="because <@U0ADA> and <!channel> say so",
        tool="a*b<!channel>c",
        arguments=arguments,
    )
    world = asking_world(store, platform, ApprovalRunner(asked))
    async with world.running():
        await platform.says("go", number=1)
        await until_card(world)

    (post,) = platform.posts
    section, _ = blocks_of(post.body)
    # Slack reads markup only between these signs, and all of them are escaped, in the notification too.
    for wire in (section["text"]["text"], post.body["text"]):
        assert not {"<", ">"} & set(wire)
        assert wire.count("&") == wire.count("&lt;") + wire.count("&gt;") + wire.count("&amp;")
    head, _, rest = post.text.partition("\n\n```\n")
    shown, _, end = rest.rpartition("\n```")
    assert head == "May the tool *a b !channel c* be called?"
    assert end == "\n\nbecause <@U0ADA> and <!channel> say so"
    assert shown.startswith(HIDDEN_SHOWN)
    assert shown.removeprefix(HIDDEN_SHOWN).split("\n") == [
        "",
        "more:",
        "| <!channel> <!here> @everyone <@U0ADA> <#C0GENERAL> <https://x|y> &lt;",
        "| *c*",
    ]
    assert "```" not in shown


# Presses


@pytest.mark.parametrize(
    ("channel", "kind"),
    [
        (Channel("slack", GENERAL, "5.0"), ChatType.CHANNEL),
        (Channel("slack", SlackPlatform.direct(ADA)), ChatType.DM),
    ],
)
async def test_a_press_comes_from_the_same_person_and_channel_as_a_message(
    platform: SlackPlatform, channel: Channel, kind: ChatType
) -> None:
    await send(platform, "hm?", channel=channel)
    intake = RecordingIntake()
    where: dict[str, Any] = (
        {} if kind is ChatType.DM else {"channel": GENERAL, "thread_ts": channel.thread_id}
    )
    async with run_adapter(platform.adapter(), intake):
        await platform.writes(f"<@{BOT}> hello", **where)
        platform.presses("Approve")
        await until(lambda: len(intake.messages) == len(intake.pressed) == 1, "they did not come")
        await until(lambda: platform.is_all_acknowledged, "it was not acknowledged")

    ((source, data),), (written,) = intake.pressed, intake.sources
    assert data == f"q.{TOKEN}.1"
    assert source.channel == written.channel == channel
    assert source.person == written.person
    assert source.chat_type == written.chat_type == kind


async def test_a_card_that_began_a_thread_is_not_in_it(platform: SlackPlatform) -> None:
    await send(platform, "hm?")
    (post,) = platform.posts

    pressed = inbound.read_press(platform.press("q.1.1", post.id, thread_ts=post.id))

    assert pressed is not None
    source = inbound.source_of(pressed, SlackOptions(), inbound.SlackNames())
    assert source.channel == Channel("slack", GENERAL)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "view_submission"},
        {"actions": []},
        {"actions": "rubbish"},
        {"actions": [{"type": "static_select", "action_id": "a"}]},
        {"user": None},
        {"channel": {}},
        {"trigger_id": 7},
    ],
)
async def test_another_interaction_is_acknowledged_and_ignored(
    platform: SlackPlatform, change: dict[str, Any]
) -> None:
    await send(platform, "hm?")
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        payload = platform.press("q.1.1", platform.posts[0].id) | change
        await platform.offer("interactive", payload, of="press-1")
        await platform.says("hello", number=1)
        await until(lambda: platform.is_all_acknowledged, "it was not acknowledged")

    assert (intake.pressed, intake.texts) == ([], ["hello"])


async def test_only_the_person_reads_that_nothing_was_changed(
    store: Store, platform: SlackPlatform
) -> None:
    world = asking_world(store, platform, ApprovalRunner())
    async with world.running():
        ts = await platform.writes(f"<@{BOT}> go", channel=GENERAL)
        await until_card(world)
        platform.presses("Approve", person="8")
        await world.until(lambda: len(platform.whispers) == 1, "nobody was told")

    (told,) = platform.whispers
    given = {name: told[name] for name in ("channel", "user", "text", "thread_ts")}
    assert given == {"channel": GENERAL, "user": "8", "text": NOT_YOURS, "thread_ts": ts}


async def test_a_press_whose_outcome_cannot_be_shown_counts_all_the_same(
    platform: SlackPlatform,
) -> None:
    class Refusing(RecordingIntake):
        async def press(self, source: Any, data: str, /) -> PressResult:
            await super().press(source, data)
            return PressResult("Nothing was changed.")

    await send(platform, "hm?")
    intake = Refusing()
    async with run_adapter(platform.adapter(), intake) as task:
        platform.refuse(500)
        platform.presses("Approve")
        await until(lambda: platform.pending_refusals == 0, "nothing was tried")
        await platform.says("hello", number=1)
        await until(lambda: intake.texts == ["hello"], "it does not go on")
        assert not task.done()

    assert len(intake.pressed) == 1


@pytest.mark.parametrize(("secret", "age"), [("another", 0), (SIGNING_SECRET, 301)])
async def test_a_press_that_slack_did_not_sign_just_now_changes_nothing(
    store: Store, posting: PostingPlatform, secret: str, age: float
) -> None:
    world = asking_world(store, posting, ApprovalRunner())
    async with world.running():
        await posting.says("go", number=1)
        await until_card(world)
        ((ts, buttons),) = posting.offered.items()
        assert posting.webhook_handler is not None
        status = await posting.posts_to(
            posting.webhook_handler,
            posting.press(buttons["Approve"], ts),
            age=age,
            secret=secret,
            is_form=True,
        )
        assert (await the_question(world)).is_open

    assert status == 401


@pytest.mark.parametrize("body", [b"payload=%5B%5D", b"payload=7", b"payload=%7B"])
async def test_a_form_with_rubbish_that_is_signed_is_refused(
    posting: PostingPlatform, body: bytes
) -> None:
    adapter = posting.adapter()
    at = str(int(adapter._now()))
    signature = inbound.sign(SIGNING_SECRET, at, body)
    assert adapter.webhook is not None

    headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": signature}
    assert await adapter.webhook(headers, body) == 400


# Edits


async def test_the_message_shows_who_decided_and_has_no_buttons_any_more(
    store: Store, platform: SlackPlatform
) -> None:
    world = asking_world(store, platform, ApprovalRunner())
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        (card,) = platform.offered
        platform.presses("Approve")
        await world.until(lambda: len(platform.seen()) == 2, "it did not go on")
        await world.settle(engine)

    assert platform.cards() == []
    (body,) = platform.edit_bodies
    assert body["ts"] == card
    assert body["text"] == (
        "May the tool **send** be called?\n\n```\nto: Ann\n```\n\nApproved by Ada."
    )
    assert [(each["type"], each["text"]["text"]) for each in blocks_of(body)] == [
        ("section", "May the tool *send* be called?\n\n```\nto: Ann\n```\n\nApproved by Ada.")
    ]


class SentBefore:
    """Delivery services that know the message of an earlier delivery."""

    def __init__(self, message_id: str) -> None:
        self.known = message_id

    async def message_id(self, delivery_id: str) -> str | None:
        """Return the message."""
        return self.known


async def edit(platform: SlackPlatform, ts: str, outcome: str) -> Sent:
    adapter = platform.adapter()
    adapter.attach(cast(Any, SentBefore(ts)))
    part = MessageEdit("delivery-0", outcome).part()
    where = Channel("slack", GENERAL)
    try:
        return await adapter.send(delivery_to(where, f"hm?\n\n{outcome}", part, id="delivery-2"))
    finally:
        await adapter.close()


async def test_a_deleted_card_is_replaced_by_a_message_that_notifies_nobody(
    platform: SlackPlatform,
) -> None:
    await send(platform, "hm?")
    (card,) = platform.posts
    platform.forget()

    await edit(platform, card.id, "Denied by <@U0ADA>.")

    (post,) = platform.posts
    assert post.text == "Denied by <@U0ADA>."
    assert "<@" not in json.dumps(post.body)


async def test_an_edit_that_slack_refuses_for_now_is_made_later(platform: SlackPlatform) -> None:
    await send(platform, "hm?")
    (card,) = platform.posts
    platform.refuse(429, retry_after=9)

    with pytest.raises(RetryLater) as caught:
        await edit(platform, card.id, "Denied by Ada.")
    assert await edit(platform, card.id, "Denied by Ada.") == Sent(None)

    assert caught.value.after == 9
    assert platform.texts(GENERAL) == ["hm?\n\nDenied by Ada."]


# Forwarded messages


async def test_a_yes_above_a_forwarded_message_approves_nothing(
    store: Store, platform: SlackPlatform
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner)
    shared = {"is_msg_unfurl": True, "is_share": True, "text": "yes", "channel_id": GENERAL}
    async with world.running():
        await platform.says("go", number=1)
        await until_card(world)
        await platform.writes("yes", attachments=[shared])
        await world.until(lambda: "waits" in platform.seen()[-1], "it does not wait")
        assert (await the_question(world)).is_open

    assert runner.ran == []
