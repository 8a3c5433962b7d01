"""Notifications of questions in a real Chromium: subscribed on the page, shown and clicked by the real service worker.

Chromium without a window has no push service: the page gets a stand-in for `PushManager`, whose subscription points at
a push service on loopback, and what comes there is handed to the service worker by the debugger. Nor can a notification
be clicked: the tests call what the service worker does then.
"""

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.browser.conftest import (
    CONTROLLED,
    Served,
    Visit,
    Visitor,
    eventually,
    settled,
)
from tests.browser.server_process import ServerProcess
from tests.browser.test_axe import problems
from tests.browser.test_questions import AGENT, SETTINGS, Program, card, result
from tests.support.fake_push import FakeBrowser, FakePushService
from tests.support.packages import Packages

pytestmark = pytest.mark.timeout(300)
# What a browser with a push service has. The endpoint and the keys are those of a browser of the fake.
PUSH_MANAGER = """
    const given = %s
    const key = 'push-subscription'
    const made = () => localStorage.getItem(key) && {
        endpoint: given.endpoint,
        toJSON: () => given,
        unsubscribe: async () => { localStorage.removeItem(key); return true },
    }
    PushManager.prototype.getSubscription = async () => made() || null
    PushManager.prototype.subscribe = async (options) => {
        localStorage.setItem(key, JSON.stringify(options))
        return made()
    }
    Notification.requestPermission = async () => Notification.permission
"""
# What the service worker shows.
SHOWN = """async () => {
    const worker = await navigator.serviceWorker.ready
    return (await worker.getNotifications()).map(({ title, body, tag, lang, silent }) =>
        ({ title, body, tag, lang, silent }))
}"""


class PushThread:
    """A push service on loopback, in a thread of its own: the tests of the browser do not run in an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.service = FakePushService()
        self._run(self.service.__aenter__())

    def browser(self) -> FakeBrowser:
        """A new browser that is subscribed here."""
        return self.service.browser()

    def close(self) -> None:
        """Stop to listen."""
        self._run(self.service.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=60)


@pytest.fixture(scope="module")
def pushes() -> Iterator[PushThread]:
    made = PushThread()
    yield made
    made.close()


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, pushes: PushThread) -> Iterator[Served]:
    """A server whose agent asks, and which may call the push service of the tests."""
    home, packages = tmp_path_factory.mktemp("pushing"), tmp_path_factory.mktemp("packages")
    (home / "sessionary.toml").write_text(
        f'{SETTINGS}[push]\nservices = ["{pushes.service.url}"]\n'
    )
    Packages(packages).install("asking", AGENT, group="sessionary.agents", name="asking")
    program = Program(home, packages)
    made = program.ready
    server = Served(home, cast("ServerProcess", program), made["address"], made["login_link"])
    yield server
    server.stop()


class Subscriber:
    """A browser whose service worker gets what its push service got."""

    def __init__(self, seen: Visit, server: Served, pushes: PushThread, own: FakeBrowser) -> None:
        self.seen = seen
        self.page = seen.page
        self.own = own
        self._server = server
        self._pushes = pushes
        self._delivered = 0
        self._cdp: CDPSession = seen.context.new_cdp_session(seen.page)
        self._registration = ""
        self._cdp.on("ServiceWorker.workerRegistrationUpdated", self._note)
        self._cdp.send("ServiceWorker.enable")

    def turn_on(self) -> None:
        """Subscribe on the page of questions."""
        self.page.goto(f"{self._server.address}/questions")
        self.page.get_by_role("button", name="Turn on").click()
        expect(self.page.get_by_text("This browser notifies you")).to_contain_text("no tab is open")
        self.page.evaluate(CONTROLLED)

    def deliver(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many notifications have come, and give the new ones to the service worker."""
        eventually(self.page, lambda: len(self._pushes.service.of(self.own)) >= count)
        came = self._pushes.service.of(self.own)[self._delivered : count]
        self._delivered = count
        eventually(self.page, lambda: self._registration)
        for data in came:
            self._cdp.send(
                "ServiceWorker.deliverPushMessage",
                {
                    "origin": self._server.address,
                    "registrationId": self._registration,
                    "data": json.dumps(data),
                },
            )
        return came

    def shown(self, page: Page | None = None) -> list[dict[str, Any]]:
        """What the browser shows."""
        return cast("list[dict[str, Any]]", (page or self.page).evaluate(SHOWN))

    def _note(self, event: dict[str, Any]) -> None:
        for each in event["registrations"]:
            if not each["isDeleted"]:
                self._registration = each["registrationId"]


@pytest.fixture
def subscriber(asking: Served, pushes: PushThread, visit: Visitor) -> Subscriber:
    """A browser that is subscribed."""
    own = pushes.browser()
    made = Subscriber(
        visit(asking, script=PUSH_MANAGER % json.dumps(own.body())), asking, pushes, own
    )
    made.seen.context.grant_permissions(["notifications"], origin=asking.address)
    made.turn_on()
    return made


def asks(seen: Visit, server: Served, text: str) -> Page:
    """Another tab, in which an agent asks something."""
    other = seen.another_tab(server.address)
    other.get_by_role("textbox", name="Write a message").fill(text)
    other.keyboard.press("Enter")
    expect(card(other)).to_be_visible()
    return other


def test_a_browser_is_subscribed_tested_and_removed(subscriber: Subscriber) -> None:
    page = subscriber.page
    assert re.fullmatch(
        r"[\w-]{87}",
        page.evaluate("JSON.parse(localStorage['push-subscription']).applicationServerKey"),
    )
    row = page.locator(".item-list li", has_text="this browser")
    expect(row).to_contain_text("Chrome, Linux (this browser)")
    assert problems(settled(page)) == []

    row.get_by_role("button", name="Send a test to Chrome").click()
    expect(page.locator(".toast")).to_contain_text("A test is on its way")
    subscriber.deliver(1)
    eventually(
        page, lambda: [each["title"] for each in subscriber.shown()] == ["Notifications work"]
    )

    row.get_by_role("button", name="Remove Chrome").click()
    expect(page.locator(".toast").last).to_contain_text("notifies you no more")
    expect(row).to_have_count(0)
    expect(page.get_by_role("button", name="Turn on")).to_be_visible()
    assert page.evaluate("localStorage['push-subscription']") is None
    page.reload()
    expect(page.get_by_role("button", name="Turn on")).to_be_visible()


def test_a_question_is_shown_and_its_outcome_takes_its_place(
    subscriber: Subscriber, asking: Served
) -> None:
    page = subscriber.page
    # Nobody looks at the questions.
    page.goto(f"{asking.address}/usage")
    other = asks(subscriber.seen, asking, "mail to Ann")
    other.get_by_role("link", name="Usage").click()

    (data,) = subscriber.deliver(1)
    eventually(page, subscriber.shown)
    assert subscriber.shown() == [
        {
            "title": "May the tool send_mail be called?",
            "body": "the workbench",
            "tag": data["id"],
            "lang": "en",
            "silent": False,
        }
    ]

    other.goto(f"{asking.address}/s/{data['session_id']}")
    card(other).get_by_role("button", name="Approve").click()
    expect(result(other)).to_contain_text("Result")
    other.goto(f"{asking.address}/usage")
    subscriber.deliver(2)
    eventually(
        page, lambda: [each["body"] for each in subscriber.shown()] == ["Approved by the owner"]
    )
    (shown,) = subscriber.shown()
    assert (shown["tag"], shown["silent"]) == (data["id"], True)


def test_a_question_that_somebody_looks_at_is_not_shown(
    subscriber: Subscriber, asking: Served
) -> None:
    other = asks(subscriber.seen, asking, "mail to Bob")
    other.bring_to_front()
    eventually(other, "document.hasFocus()")
    # Behind the listener of the page, which answers.
    other.evaluate(
        "navigator.serviceWorker.addEventListener('message', () => { window.wasAsked = true })"
    )

    subscriber.deliver(1)

    # The page must not go before it has told the service worker what it shows. A test after that is shown.
    eventually(other, "window.wasAsked")
    other.goto(f"{asking.address}/questions")
    row = other.locator(".item-list li", has_text="this browser")
    row.get_by_role("button", name="Send a test to Chrome").click()
    subscriber.deliver(2)
    eventually(
        other, lambda: [each["title"] for each in subscriber.shown(other)] == ["Notifications work"]
    )


# Only a person who clicks lets a service worker focus a window, or open one.
CLICK = """async (session) => {
    WindowClient.prototype.focus = async function () { return this }
    clients.openWindow = async (path) => { self.opened = path }
    await open(session)
    return self.opened ?? null
}"""


def click(subscriber: Subscriber, session: str | None) -> Any:
    """Do what a click on a notification does; return what was opened in a new window."""
    (worker,) = subscriber.seen.context.service_workers
    return worker.evaluate(CLICK, session)


def test_a_click_opens_the_question_in_the_window_that_is_open(
    subscriber: Subscriber, asking: Served
) -> None:
    page = subscriber.page
    other = asks(subscriber.seen, asking, "mail to Cid")
    session = other.url.rpartition("/")[2]
    other.close()
    page.evaluate("window.isSame = true")

    assert click(subscriber, session) is None

    expect(page).to_have_url(f"{asking.address}/s/{session}")
    expect(card(page)).to_be_visible()
    assert page.evaluate("window.isSame")


def test_a_click_loads_the_question_in_a_page_that_does_not_answer(
    subscriber: Subscriber, asking: Served
) -> None:
    page = subscriber.page
    other = asks(subscriber.seen, asking, "mail to Dan")
    session = other.url.rpartition("/")[2]
    other.close()
    page.goto(f"{asking.address}/login")
    page.evaluate(CONTROLLED)

    assert click(subscriber, session) is None

    expect(page).to_have_url(f"{asking.address}/s/{session}")
    expect(card(page)).to_be_visible()


def test_a_browser_without_a_push_service_says_so_and_notifies_from_the_tab(
    asking: Served, visit: Visitor
) -> None:
    refuse = """
        PushManager.prototype.subscribe = async () => { throw new Error('no push service here') }
        Notification.requestPermission = async () => Notification.permission
    """
    seen = visit(asking, script=refuse)
    seen.context.grant_permissions(["notifications"], origin=asking.address)
    page = seen.page
    page.goto(f"{asking.address}/questions")

    page.get_by_role("button", name="Turn on").click()

    expect(page.get_by_role("alert")).to_contain_text("could not be subscribed: no push service")
    expect(page.get_by_text("This browser notifies you")).to_contain_text("in the background")
    assert problems(settled(page)) == []


def test_a_page_without_https_says_why_nobody_is_notified(asking: Served, visit: Visitor) -> None:
    insecure = "Object.defineProperty(window, 'isSecureContext', { get: () => false })"
    page = visit(asking, "/questions", script=insecure).page

    expect(page.get_by_text("Browsers notify only on pages that came by https")).to_be_visible()
    expect(page.get_by_role("button", name="Turn on")).to_have_count(0)


def test_the_words_are_those_of_the_page(
    asking: Served, pushes: PushThread, visit: Visitor
) -> None:
    own = pushes.browser()
    seen = visit(asking, script=PUSH_MANAGER % json.dumps(own.body()))
    seen.context.grant_permissions(["notifications"], origin=asking.address)
    page = seen.page
    page.goto(f"{asking.address}/settings")
    page.get_by_label("Language").select_option("de")
    page.goto(f"{asking.address}/questions")
    page.get_by_role("button", name="Einschalten").click()
    expect(page.get_by_text("Dieser Browser benachrichtigt Sie")).to_be_visible()
    page.evaluate(CONTROLLED)
    reader = Subscriber(seen, asking, pushes, own)
    page.locator("li", has_text="(dieser Browser)").get_by_role("button", name="Test").click()

    reader.deliver(1)

    eventually(page, lambda: [each["lang"] for each in reader.shown()] == ["de"])
    assert reader.shown()[0]["title"] == "Benachrichtigungen funktionieren"


def test_a_tab_in_the_background_and_a_push_service_show_one_notification(
    subscriber: Subscriber, asking: Served
) -> None:
    page = subscriber.page
    page.get_by_role("link", name="Usage").click()
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
    other = asks(subscriber.seen, asking, "mail to Eva")
    other.get_by_role("link", name="Usage").click()
    eventually(page, subscriber.shown)
    before = subscriber.shown()

    subscriber.deliver(1)
    # The service worker does one thing after the other.
    test = "() => navigator.serviceWorker.ready.then((worker) => worker.getNotifications({ tag: 'test' }))"
    subscriber.seen.context.service_workers[0].evaluate("notify({ test: true, language: 'en' })")
    eventually(page, f"async () => (await ({test})()).length === 1")

    assert [each for each in subscriber.shown() if each["tag"] != "test"] == before
    assert len(before) == 1


def test_a_subscription_that_the_browser_replaces_is_replaced_here_too(
    subscriber: Subscriber, pushes: PushThread
) -> None:
    page, new = subscriber.page, pushes.browser()
    (worker,) = subscriber.seen.context.service_workers
    count = page.locator(".item-list li").count()

    worker.evaluate(
        """async ([old, given]) => subscribeAgain({
            oldSubscription: { endpoint: old },
            newSubscription: { toJSON: () => given },
        })""",
        [subscriber.own.endpoint, new.body()],
    )

    page.reload()
    expect(page.locator(".item-list li")).to_have_count(count)
    name = hashlib.sha256(new.endpoint.encode()).hexdigest()
    listed = page.evaluate("fetch('/api/v1/push').then((answer) => answer.json())")["items"]
    assert [each["language"] for each in listed if each["endpoint_sha256"] == name] == ["en"]
    assert page.get_by_text("(this browser)").count() == 0
