"""`/push`: which browsers are notified, who may change that, and what is refused."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessionary.channels.push.sender import PushSender
from sessionary.config.engine import AccessPolicy
from sessionary.config.server import PushTable
from sessionary.model.access import Scope
from sessionary.store.database import Store
from sessionary.testing.fakes import FakeClock
from tests.engine.test_questions import AskingRunner
from tests.support.fake_push import FakeBrowser, FakePushService
from tests.web.conftest import Client, Served
from tests.web.test_login import logged_in

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
ACCESS = {"loopback": AccessPolicy(everyone=True, owners=frozenset({"u"}))}


@pytest.fixture
async def service() -> AsyncIterator[FakePushService]:
    async with FakePushService() as fake:
        yield fake


@pytest.fixture
async def server(store: Store, service: FakePushService, servers: Any) -> Served:
    sender = PushSender(store, PushTable(services=(service.url,)), clock=FakeClock())
    made: Served = await servers(push=sender, runner=AskingRunner(), engine={"access": ACCESS})
    return made


async def subscribed(client: Client, browser: FakeBrowser, **more: Any) -> dict[str, Any]:
    body = browser.body(**more)
    return dict(await client.post("/push/subscriptions", body, status=201))


async def items(client: Client) -> list[dict[str, Any]]:
    return list((await client.get("/push"))["items"])


async def refused(client: Client, body: Any, status: int = 422) -> str:
    response = await client.call("POST", "/push/subscriptions", json=body)
    assert response.status_code == status, response.text
    return str(response.json()["detail"])


async def test_a_browser_subscribes_is_listed_and_is_removed(
    client: Client, service: FakePushService
) -> None:
    state = await client.get("/push")
    assert (state["available"], state["reason"], state["items"]) == (True, None, [])
    assert len(state["public_key"]) == 87
    browser = service.browser()

    made = await subscribed(client, browser, language="de", label="The kitchen")

    assert made == (await items(client))[0]
    assert (made["label"], made["language"]) == ("The kitchen", "de")
    assert made["endpoint_sha256"] == hashlib.sha256(browser.endpoint.encode()).hexdigest()
    assert browser.endpoint not in str(made)
    removed = await client.call("DELETE", f"/push/subscriptions/{made['id']}")
    assert removed.json() == {"id": made["id"]}
    again = await client.call("DELETE", f"/push/subscriptions/{made['id']}")
    assert again.status_code == 404
    assert await items(client) == []


async def test_the_key_stays_the_same(client: Client) -> None:
    first, second = await client.get("/push"), await client.get("/push")

    assert first["public_key"] == second["public_key"]


async def test_the_header_says_which_browser_it_is(
    server: Served, service: FakePushService
) -> None:
    client = await server.client()

    response = await client.call(
        "POST",
        "/push/subscriptions",
        json=service.browser().body(),
        headers={"User-Agent": FIREFOX},
    )

    assert response.json()["label"] == "Firefox, Linux"


async def test_a_question_reaches_the_browser_and_its_answer_too(
    server: Served, service: FakePushService
) -> None:
    client, browser = await server.client(name="ops"), service.browser()
    await subscribed(client, browser)
    assert server.engine is not None

    await server.world.asks(server.engine, "go")
    await server.world.until(lambda: len(service.pushed) == 1)
    (question,) = (await client.get("/questions"))["items"]
    await client.post(f"/questions/{question['id']}/answer", {"decision": "approve"})
    await server.world.until(lambda: len(service.pushed) == 2)

    asked, decided = service.of(browser)
    assert asked["id"] == decided["id"] == question["id"]
    assert (asked["state"], decided["state"], decided["by"]) == ("open", "answered", "ops")
    assert service.pushed[0].claims.get("sub") is None  # not an address that others could call


async def test_a_test_is_a_delivery_like_any_other(
    client: Client, server: Served, service: FakePushService
) -> None:
    made = await subscribed(client, service.browser())

    sent = await client.post(f"/push/subscriptions/{made['id']}/test")
    await server.world.until(lambda: len(service.pushed) == 1)
    await server.settle()

    (delivery,) = (await client.get("/deliveries"))["items"]
    assert (delivery["id"], delivery["state"]) == (sent["delivery_id"], "sent")
    assert service.pushed[0].data == {"test": True, "language": "en"}
    missing = await client.call("POST", "/push/subscriptions/nobody/test", json={})
    assert missing.status_code == 404


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://fcm.googleapis.com/fcm/send/1",
        "https://fcm.googleapis.com",
        "https://fcm.googleapis.com:8443/fcm/send/1",
        "https://user@fcm.googleapis.com/fcm/send/1",
        "https://fcm.googleapis.com.example.org/1",
        "https://example.org/fcm.googleapis.com/1",
        "https://push.services.mozilla.com.example.org/1",
        "https://10.0.0.1/1",
        "https://127.0.0.1/1",
        "http://127.0.0.1:1/1",
        "https://[::1]/1",
        "https://[fcm.googleapis.com/1",
        "file:///etc/passwd",
        "https://fcm.googleapis.com\\@example.org/1",
        "https://ﬁrefox.push.apple.com/1",
        "",
    ],
)
async def test_only_push_services_are_ever_called(
    client: Client, service: FakePushService, endpoint: str
) -> None:
    body = service.browser().body() | {"endpoint": endpoint}

    assert "no address of a push service that is known here" in await refused(client, body)

    assert await items(client) == []


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://fcm.googleapis.com/fcm/send/abc:def",
        "https://updates.push.services.mozilla.com/wpush/v2/abc",
        "https://web.push.apple.com/abc",
        "https://wns2-par02p.notify.windows.com/w/?token=abc",
    ],
)
async def test_the_push_services_of_the_known_browsers_are_accepted(
    client: Client, service: FakePushService, endpoint: str
) -> None:
    body = service.browser().body() | {"endpoint": endpoint}

    await client.post("/push/subscriptions", body, status=201)

    assert len(await items(client)) == 1


async def test_keys_that_no_browser_has_are_refused(
    client: Client, service: FakePushService
) -> None:
    body = service.browser().body()

    for keys in ({"p256dh": "AAAA", "auth": body["keys"]["auth"]}, body["keys"] | {"auth": "AA"}):
        assert "no keys of a browser" in await refused(client, body | {"keys": keys})
    await refused(client, body | {"keys": {"p256dh": "a" * 201, "auth": "AA"}})
    await refused(client, body | {"language": "fr"})
    await refused(client, body | {"more": 1})
    assert await items(client) == []


@pytest.mark.parametrize("scope", [Scope.READ, Scope.WRITE])
async def test_only_the_owner_sees_or_changes_who_is_notified(
    server: Served, service: FakePushService, scope: Scope
) -> None:
    admin, other = await server.client(), await server.client(scope)
    made = await subscribed(admin, service.browser())

    one = f"/push/subscriptions/{made['id']}"
    for method, path in (
        ("GET", "/push"),
        ("POST", "/push/subscriptions"),
        ("DELETE", one),
        ("POST", f"{one}/test"),
    ):
        body = {"json": service.browser().body()} if method == "POST" else {}
        assert (await other.call(method, path, **body)).status_code == 403
        anonymous = Client(server.http, None)
        assert (await anonymous.call(method, path, **body)).status_code == 401

    assert len(await items(admin)) == 1


async def test_another_profile_sees_nothing_and_cannot_subscribe(
    server: Served, service: FakePushService
) -> None:
    admin, foreign = await server.client(), await server.client(profile="other")
    made = await subscribed(admin, service.browser())

    state = await foreign.get("/push")
    assert (state["available"], state["reason"], state["items"]) == (False, "no_agent", [])
    assert state["public_key"] is None
    await refused(foreign, service.browser().body(), status=409)
    one = f"/push/subscriptions/{made['id']}"
    assert (await foreign.call("DELETE", one)).status_code == 404
    assert len(await items(admin)) == 1


async def test_without_the_extra_the_answer_says_what_to_install(
    servers: Any, service: FakePushService
) -> None:
    server: Served = await servers()
    client = await server.client()

    state = await client.get("/push")

    assert (state["available"], state["reason"]) == (False, "extra_missing")
    assert "install sessionary[push]" in await refused(client, service.browser().body(), status=409)


async def test_a_browser_that_is_logged_out_is_notified_no_more(
    server: Served, service: FakePushService
) -> None:
    admin = await server.client()
    kept = await subscribed(admin, service.browser())
    browser = await logged_in(server)
    body = service.browser().body()
    assert (await browser.call("POST", "/push/subscriptions", json=body)).status_code == 201
    assert len(await items(admin)) == 2

    await browser.call("POST", "/logout", json={})

    assert [each["id"] for each in await items(admin)] == [kept["id"]]


async def test_a_new_password_ends_what_other_browsers_have_subscribed(
    server: Served, service: FakePushService
) -> None:
    admin, browser = await server.client(), await logged_in(server)
    body = service.browser().body()
    await browser.call("POST", "/push/subscriptions", json=body)

    changed = await admin.call("PUT", "/password", json={"new": "a long password"})

    assert changed.status_code == 200, changed.text
    assert await items(admin) == []


async def test_the_same_request_subscribes_once(client: Client, service: FakePushService) -> None:
    body, headers = service.browser().body(), {"Idempotency-Key": "one"}

    both = await asyncio.gather(
        *(client.call("POST", "/push/subscriptions", json=body, headers=headers) for _ in "12")
    )

    assert both[0].json() == both[1].json()
    assert len(await items(client)) == 1
