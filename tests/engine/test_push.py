"""Browsers that are subscribed are notified of questions, by a push service on loopback that reads what it gets."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from sessionary.actions import access as homes
from sessionary.actions import push, schedules
from sessionary.actions import questions as actions
from sessionary.channels.push.sender import PushSender
from sessionary.config.engine import QuestionSettings
from sessionary.config.server import PushTable
from sessionary.engine.engine import Engine
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.prompt import HomeAddress
from sessionary.model.push import PLATFORM, PushSubscription
from sessionary.model.question import Answer, Decision, NewQuestion, QuestionKind
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.store.database import Store
from tests.engine.test_questions import (
    DENY,
    SEND,
    AskingRunner,
    answer,
    make_world,
    open_questions,
)
from tests.support.fake_push import FakeBrowser, FakePushService


@pytest.fixture
async def service() -> AsyncIterator[FakePushService]:
    async with FakePushService() as fake:
        yield fake


class PushWorld:
    """An engine that asks, and browsers that are told."""

    def __init__(self, store: Store, service: FakePushService, **questions: Any) -> None:
        self.store = store
        self.service = service
        self.world = make_world(store, questions=QuestionSettings(**questions))
        self.sender = self.make_sender()
        self.world.use(push=self.sender)
        self.runner = AskingRunner()

    def make_sender(self) -> PushSender:
        settings = PushTable(services=(self.service.url,))
        return PushSender(self.store, settings, clock=self.world.clock)

    async def browser(self, language: str = "en", *, profile: str = "main") -> FakeBrowser:
        """A browser that is subscribed."""
        made = self.service.browser()
        await self.store.write(
            push.subscribe,
            made.subscription(language),
            profile=profile,
            moment=self.world.context().moment(),
            login_id="login",
        )
        return made

    async def subscriptions(self) -> list[PushSubscription]:
        return await self.store.read(push.list_subscriptions, "main")

    async def deliveries(self) -> list[Delivery]:
        """What the outbox has for browsers, oldest first."""
        found = await self.world.deliveries()
        return [each for each in reversed(found) if each.channel.platform == PLATFORM]

    async def reasons(self) -> list[tuple[DeliveryState, str | None]]:
        return [(each.state, each.reason) for each in await self.deliveries()]

    async def pushed(self, count: int) -> None:
        """Wait until so many notifications have come, and nothing is on its way."""
        await self.world.until(lambda: len(self.service.pushed) >= count)
        await self.world.until_outbox_is_idle()
        assert len(self.service.pushed) == count

    async def ask(self, engine: Engine, text: str = "go", **fields: Any) -> None:
        """Somebody writes, and the agent asks."""
        await self.world.says(engine, text, **fields)
        await self.world.eventually(self._has_question)

    async def _has_question(self) -> bool:
        return bool(await open_questions(self.world))

    async def only_question(self) -> Any:
        (question,) = await open_questions(self.world)
        return question


async def test_a_question_is_shown_once_in_each_subscribed_browser(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    first, second = await here.browser("de"), await here.browser("zh-Hans")
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.pushed(2)
    await engine.stop()

    question = await here.only_question()
    (shown,), (other,) = service.of(first), service.of(second)
    assert shown == {
        "id": question.id,
        "session_id": question.session_id,
        "kind": "approval",
        "state": "open",
        "text": "",
        "tool": "send",
        "where": question.body.where,
        "language": "de",
    }
    assert other["language"] == "zh-Hans"
    assert "Ann" not in json.dumps(shown)
    assert [state for state, _ in await here.reasons()] == [DeliveryState.SENT] * 2
    (one, two) = await here.subscriptions()
    assert one.succeeded_at == two.succeeded_at == here.world.clock.now()


async def test_a_push_service_is_told_how_long_and_how_urgent_a_notification_is(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service, expire_seconds=600, remind_seconds=0)
    await here.browser()
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.pushed(1)
    await answer(here.world, await here.only_question())
    await here.pushed(2)
    await engine.stop()

    asked, decided = service.pushed
    assert (asked.headers["ttl"], asked.headers["urgency"]) == ("600", "high")
    assert (decided.headers["ttl"], decided.headers["urgency"]) == ("86400", "normal")
    assert asked.headers["topic"] == decided.headers["topic"]
    assert len(asked.headers["topic"]) == 32
    assert asked.claims["sub"] == "https://agents.example.org"
    assert asked.public_key == decided.public_key == await here.sender.public_key()


async def test_a_decision_replaces_the_notification(store: Store, service: FakePushService) -> None:
    here = PushWorld(store, service)
    browser = await here.browser()
    engine = await here.world.started(runner=here.runner)
    await here.ask(engine)
    await here.pushed(1)

    await answer(here.world, await here.only_question(), DENY)
    await here.pushed(2)
    await engine.stop()

    asked, decided = service.of(browser)
    assert decided["id"] == asked["id"]
    assert (decided["state"], decided["decision"], decided["by"]) == (
        "answered",
        "deny",
        "The owner",
    )


async def test_a_question_that_was_decided_before_is_not_shown(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    await here.browser()
    # This process has nothing that notifies browsers.
    here.world.use(push=None)
    asking = await here.world.started(runner=here.runner)
    await here.ask(asking)
    await answer(here.world, await here.only_question())
    await asking.stop()

    here.world.use(push=here.sender)
    engine = await here.world.started(runner=here.runner)
    await here.world.settle(engine)
    await engine.stop()

    assert service.requests == 0
    assert await here.reasons() == [(DeliveryState.ABANDONED, "the question was decided before")]


async def test_what_is_sent_is_read_when_it_is_sent(store: Store, service: FakePushService) -> None:
    """The push service was busy when the question came, and it was decided meanwhile by a process that is sending."""
    here = PushWorld(store, service)
    await here.browser()
    here.world.use(push=None)
    asking = await here.world.started(runner=here.runner)
    await here.ask(asking)
    (delivery,) = await here.deliveries()
    await answer(here.world, await here.only_question())
    await asking.stop()

    with pytest.raises(Exception, match="decided before"):
        await store.read(push.read_request, delivery, now=here.world.clock.now())


@pytest.mark.parametrize("status", [404, 410])
async def test_a_subscription_that_is_gone_is_removed_and_the_outbox_says_so(
    store: Store, service: FakePushService, status: int
) -> None:
    here = PushWorld(store, service)
    await here.browser()
    service.answer_next(status)
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.world.until_outbox_is_idle()
    await here.world.until(lambda: service.requests == 1)
    await here.world.eventually(lambda: _is_empty(here))
    await here.world.until_outbox_is_idle()
    await engine.stop()

    ((state, reason),) = await here.reasons()
    assert state is DeliveryState.ABANDONED
    assert reason == (
        f"127.0.0.1 answered {status}: this browser is not subscribed any more, and was removed."
    )


async def _is_empty(here: PushWorld) -> bool:
    return not await here.subscriptions()


async def test_a_push_service_that_is_busy_is_asked_again_when_it_says(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service, remind_seconds=0)
    browser = await here.browser()
    service.answer_next(429, retry_after="120")
    engine = await here.world.started(runner=here.runner)
    await here.ask(engine)
    await here.world.until(lambda: service.requests == 1)
    await here.world.eventually(lambda: _is_waiting(here))

    (delivery,) = await here.deliveries()
    (subscription,) = await here.subscriptions()
    assert delivery.not_before == here.world.clock.now() + timedelta(seconds=120)
    assert (subscription.failures, subscription.problem) == (1, "127.0.0.1 answered 429")

    here.world.clock.tick(121)
    await here.pushed(1)
    await engine.stop()

    (subscription,) = await here.subscriptions()
    assert len(service.of(browser)) == 1
    assert (subscription.failures, subscription.problem) == (0, None)


async def _is_waiting(here: PushWorld) -> bool:
    return all(
        each.state is DeliveryState.WAITING and each.reason for each in await here.deliveries()
    )


@pytest.mark.parametrize("status", [301, 307, 400, 403, 413])
async def test_what_a_push_service_refuses_is_abandoned(
    store: Store, service: FakePushService, status: int
) -> None:
    here = PushWorld(store, service)
    await here.browser()
    service.answer_next(status, location=f"{service.url}/elsewhere")
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.world.until(lambda: service.requests == 1)
    await here.world.eventually(lambda: _is_abandoned(here))
    await engine.stop()

    assert await here.reasons() == [(DeliveryState.ABANDONED, f"127.0.0.1 answered {status}")]
    (subscription,) = await here.subscriptions()
    assert subscription.problem == f"127.0.0.1 answered {status}"
    assert service.requests == 1


async def _is_abandoned(here: PushWorld) -> bool:
    return all(state is DeliveryState.ABANDONED for state, _ in await here.reasons())


async def test_people_are_reminded_once_and_the_notification_is_replaced_once(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service, remind_seconds=60)
    browser = await here.browser()
    engine = await here.world.started(runner=here.runner)
    await here.ask(engine)
    await here.pushed(1)
    late = await here.browser()

    here.world.clock.tick(61)
    await here.pushed(3)
    await answer(here.world, await here.only_question())
    await here.pushed(5)
    await here.world.settle(engine)
    await engine.stop()

    assert [(each["state"], each.get("reminder")) for each in service.of(browser)] == [
        ("open", None),
        ("open", True),
        ("answered", None),
    ]
    assert [each["state"] for each in service.of(late)] == ["open", "answered"]
    # In the chat too, each message says what became of the question.
    assert len(here.world.adapter.texts("loopback:1")) == 5


async def test_a_question_that_expires_says_so(store: Store, service: FakePushService) -> None:
    here = PushWorld(store, service, expire_seconds=60, remind_seconds=0)
    browser = await here.browser()
    engine = await here.world.started(runner=here.runner)
    await here.ask(engine)
    await here.pushed(1)

    here.world.clock.tick(61)
    await here.pushed(2)
    await engine.stop()

    assert [each["state"] for each in service.of(browser)] == ["open", "expired"]


async def test_a_notification_that_comes_too_late_is_not_sent(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service, expire_seconds=60, remind_seconds=0)
    await here.browser()
    here.world.use(push=None)
    asking = await here.world.started(runner=here.runner)
    await here.ask(asking)
    await asking.stop()
    (delivery,) = await here.deliveries()

    with pytest.raises(Exception, match="too late"):
        await store.read(
            push.read_request, delivery, now=delivery.created_at + timedelta(seconds=60)
        )


async def test_a_browser_of_another_profile_gets_nothing(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    other = await here.browser(profile="other")
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.world.until_outbox_is_idle()
    await engine.stop()

    assert service.of(other) == []
    assert await here.deliveries() == []
    (foreign,) = await store.read(push.list_subscriptions, "other")
    with pytest.raises(NotFound):
        await store.write(push.remove, foreign.id, profile="main")


async def test_a_browser_that_changes_its_profile_is_told_nothing_of_the_old_one(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    browser = await here.browser()
    (before,) = await here.subscriptions()
    here.world.use(push=None)
    asking = await here.world.started(runner=here.runner)
    await here.ask(asking)
    await asking.stop()

    moment = here.world.context().moment()
    moved = await store.write(
        push.subscribe, browser.subscription(), profile="other", moment=moment, login_id="login"
    )
    here.world.use(push=here.sender)
    engine = await here.world.started(runner=here.runner)
    await here.world.eventually(lambda: _is_abandoned(here))
    await engine.stop()

    assert moved.id != before.id
    assert await here.subscriptions() == []
    assert service.requests == 0
    assert await here.reasons() == [
        (DeliveryState.ABANDONED, "This browser is not subscribed any more.")
    ]


async def test_a_browser_that_subscribes_again_keeps_its_id(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    browser = await here.browser("en")
    (before,) = await here.subscriptions()

    moment = here.world.context().moment()
    await store.write(
        push.subscribe, browser.subscription("ru"), profile="main", moment=moment, login_id="login"
    )

    (after,) = await here.subscriptions()
    assert (after.id, after.language) == (before.id, "ru")


async def test_only_so_many_browsers_are_subscribed(store: Store, service: FakePushService) -> None:
    here = PushWorld(store, service)
    browsers = [await here.browser() for _ in range(push.MOST_SUBSCRIPTIONS)]

    with pytest.raises(Conflict, match="remove one first"):
        await here.browser()

    moment = here.world.context().moment()
    again = browsers[0].subscription("de")
    await store.write(push.subscribe, again, profile="main", moment=moment, login_id="login")
    assert len(await here.subscriptions()) == push.MOST_SUBSCRIPTIONS


async def test_a_test_says_only_that_it_works(store: Store, service: FakePushService) -> None:
    here = PushWorld(store, service)
    browser, _ = await here.browser(), await here.browser()
    engine = await here.world.started(runner=here.runner)
    (first, _) = await here.subscriptions()

    moment = here.world.context().moment()
    await store.write(push.send_test, first.id, profile="main", moment=moment)
    await here.pushed(1)
    await engine.stop()

    assert service.of(browser) == [{"test": True, "language": "en"}]
    assert "topic" not in service.pushed[0].headers


async def test_two_processes_at_once_make_one_key(store: Store, service: FakePushService) -> None:
    here = PushWorld(store, service)
    first, second = here.make_sender(), here.make_sender()
    one = store.write(push.keep_key, "AQ")
    two = store.write(push.keep_key, "Ag")

    assert await one == await two == await store.read(push.get_key)
    assert await first.public_key() == await second.public_key()


async def test_a_long_question_with_hidden_characters_is_cut_and_shown_as_it_is(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    text = "Pay\u202e now?\n" + "\U0001f4b8\u200b漢" * 5_000
    here.runner = AskingRunner(NewQuestion(name="1", kind=QuestionKind.TEXT, text=text))
    browser = await here.browser()
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.pushed(1)
    await engine.stop()

    (shown,) = service.of(browser)
    assert shown["text"].startswith("Pay\\u202e now? \U0001f4b8\\u200b漢")
    assert len(shown["text"]) == 200
    assert len(json.dumps(shown, ensure_ascii=False).encode()) < 3_000


async def test_a_turn_that_asks_nothing_writes_nothing_for_browsers(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    await here.browser()
    engine = await here.world.started()

    await here.world.asks(engine, "hello")
    await engine.stop()

    assert await here.deliveries() == []


async def test_the_agent_is_not_told_of_browsers_as_of_a_platform(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    await here.browser()
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine)
    await here.pushed(1)
    await engine.stop()

    (request,) = here.runner.requests
    assert PLATFORM not in request.system_prompt
    assert PLATFORM not in engine.context.deliverable
    assert PLATFORM not in engine.context.adapters


def test_a_schedule_cannot_deliver_to_a_browser() -> None:
    for target in ("push", "push:1"):
        with pytest.raises(BadInput, match="questions only"):
            schedules.check_target(target)


async def test_an_owner_who_is_asked_elsewhere_is_notified_too(
    store: Store, service: FakePushService
) -> None:
    here = PushWorld(store, service)
    browser = await here.browser()
    home = HomeAddress("loopback", "owner")
    moment = here.world.context().moment()
    await store.write(homes.set_home, home, profile="main", moment=moment)
    engine = await here.world.started(runner=here.runner)

    await here.ask(engine, chat="7", user_id="eva")
    await here.pushed(1)
    question = await here.only_question()
    await answer(here.world, question, Answer(decision=Decision.APPROVE))
    await here.pushed(2)
    await engine.stop()

    assert [each["state"] for each in service.of(browser)] == ["open", "answered"]
    page = await store.read(actions.list_questions, profile="main", limit=5)
    assert [each.asked for each in page.items] == [SEND]
