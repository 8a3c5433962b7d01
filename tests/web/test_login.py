"""Authentication: nothing without a token or a login, nothing from another site."""

import asyncio
import socket
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_network
from typing import Any, NamedTuple

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from sessionary.actions import credentials
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput, Conflict, Damaged
from sessionary.model.access import Scope
from sessionary.store.open import open_store
from sessionary.web.app import create_app
from sessionary.web.auth import CSRF_HEADER
from sessionary.web.context import LOOPBACK, WebContext
from sessionary.web.middleware import is_known
from sessionary.web.openapi import PUBLIC
from sessionary.web.routes import static
from sessionary.web.routes.login import offer_link
from sessionary.web.server import check_exposure, is_loopback, listen, serve
from tests.web.conftest import API, Client, Served, rest_of

PASSWORD = "correct horse battery"


class Route(NamedTuple):
    path: str
    methods: set[str]
    scopes: set[str]
    is_public: bool


def scopes_of(dependant: Any) -> set[str]:
    """The scopes that a route's dependencies ask for."""
    scope = getattr(dependant.call, "scope", None)
    below = [scopes_of(each) for each in dependant.dependencies]
    return (set() if scope is None else {str(scope)}).union(*below)


def routes() -> list[Route]:
    async def webhook(headers: Any, raw: bytes) -> int:
        return 200

    store = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
    app = create_app(WebContext(store, webhooks={"sample": webhook}))
    store.close()
    return routes_of(app)


def routes_of(app: FastAPI) -> list[Route]:
    return [
        Route(
            str(each.path),
            set(each.methods or ()),
            scopes_of(each.dependant),
            bool((each.openapi_extra or {}).get("x-public")),
        )
        for each in iter_route_contexts(app.routes)
    ]


def test_every_route_declares_who_may_use_it() -> None:
    found = routes()

    assert len(found) > 40
    assert [each.path for each in found if bool(each.scopes) == each.is_public] == []


def test_only_these_paths_are_open_to_all() -> None:
    assert {route.path for route in routes() if route.is_public} == {
        *static.PAGES,
        *(f"{path}/" for path in static.PAGES[1:]),
        *(f"/{name}" for name in static.FILES),
        "/assets/{name}",
        "/login",
        "/healthz",
        "/readyz",
        f"{API}/login",
        f"{API}/healthz",
        f"{API}/readyz",
        f"{API}/channels/sample/webhook",
    }


def test_whatever_changes_something_needs_more_than_reading() -> None:
    weak = [
        route.path
        for route in routes()
        if route.methods & {"POST", "PATCH", "PUT", "DELETE"} and route.scopes == {"read"}
    ]

    assert weak == [f"{API}/logout"]


async def test_health_needs_no_token_and_says_nothing(server: Served) -> None:
    for path in ("/healthz", "/readyz", f"{server.address}{API}/healthz"):
        answer = await Client(server.http, None).call("GET", path)
        assert (answer.status_code, answer.text) == (200, "ok\n")


@pytest.mark.parametrize("path", ["/", "/login.css", "/healthz", "/readyz"])
async def test_who_only_asks_for_the_head_gets_what_others_get_without_its_body(
    server: Served, path: str
) -> None:
    whole = await server.http.get(f"{server.address}{path}")
    head = await server.http.head(f"{server.address}{path}")

    assert (head.status_code, head.content) == (whole.status_code, b"")
    for name in ("content-type", "content-length", "content-security-policy"):
        assert head.headers[name] == whole.headers[name]


async def test_a_revoked_token_is_nobodys(server: Served) -> None:
    admin = await server.client()
    secret, token = await server.token(Scope.WRITE)
    assert (await Client(server.http, secret).get("/me"))["scope"] == "write"

    assert (await admin.call("DELETE", f"/tokens/{token.id}")).status_code == 200

    assert (await Client(server.http, secret).call("GET", "/me")).status_code == 401


async def test_a_token_is_shown_once_and_kept_as_a_hash(server: Served, client: Client) -> None:
    made = await client.post("/tokens", {"scope": "read", "name": "probe"}, status=201)

    assert (await Client(server.http, made["token"]).get("/me"))["scope"] == "read"
    heads_json = await client.call("GET", "/tokens")
    assert made["token"] not in heads_json.text
    rows = await server.store.read(lambda tx: tx.all("list_tokens", profile="main"))
    assert made["token"] not in str(rows)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io"])
async def test_a_name_that_is_not_ours_is_refused_on_every_path(server: Served, host: str) -> None:
    client = await server.client()
    for path in ("/sessions", "/events", f"{server.address}/", "/healthz", "/openapi.json"):
        answer = await client.call("GET", path, headers={"Host": host})
        assert answer.status_code in (400, 421), path


async def test_a_configured_name_is_ours(servers: Any) -> None:
    server = await servers(allowed_hosts=frozenset({"sessionary.example"}))

    answer = await (await server.client()).call(
        "GET", "/me", headers={"Host": "sessionary.example"}
    )

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "known"),
    [("localhost:8741", True), ("[::1]:80", True), ("LOCALHOST", False), ("localhost:", False)],
)
def test_a_port_is_no_part_of_a_name(host: str, known: bool) -> None:
    assert is_known(host, LOOPBACK) is known


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_another_site_changes_nothing_and_receives_nothing(
    server: Served, client: Client, headers: dict[str, str]
) -> None:
    posted = await client.call("POST", "/sessions", json={"text": "hello"}, headers=headers)
    response = await client.call("GET", "/events", headers=headers)

    assert posted.status_code == response.status_code == 403
    assert posted.json()["committed"] == "no"
    assert (await client.get("/sessions"))["items"] == []


async def test_our_own_pages_may_change_things(server: Served, client: Client) -> None:
    headers = {"Origin": server.address, "Sec-Fetch-Site": "same-origin"}

    await client.post("/sessions", {"text": "hello"}, status=201, headers=headers)


async def test_a_proxy_is_believed_only_if_it_is_configured(servers: Any) -> None:
    claim = {"X-Forwarded-Host": "sessionary.example", "Host": "inner.example"}
    plain = await servers(allowed_hosts=frozenset({"sessionary.example"}))
    proxied = await servers(
        allowed_hosts=frozenset({"sessionary.example"}),
        trusted_proxies=(ip_network("127.0.0.0/8"),),
    )

    outside = await plain.client()
    refused = await outside.call("GET", "/me", headers=claim)
    taken = await Client(proxied.http, outside.token).call("GET", "/me", headers=claim)

    assert (refused.status_code, taken.status_code) == (421, 200)


async def test_every_answer_has_the_headers_that_keep_pages_harmless(
    server: Served, client: Client
) -> None:
    for path in ("/sessions", "/nowhere", f"{server.address}/", "/login"):
        answer = await client.call("GET", path)
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
    assert (await client.call("GET", "/sessions")).headers["cache-control"] == "no-store"


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    server: Served, client: Client
) -> None:
    response = await client.call("POST", "/login", content=b"x" * 70_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST {API}/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode() + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 3)
    answer = await rest_of(reader)
    writer.close()

    assert response.status_code == 413
    assert answer.startswith(b"HTTP/1.1 413")


class Browser:
    """A browser: it keeps cookies, and says what our pages say."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.csrf = ""

    async def call(self, method: str, path: str, **how: Any) -> httpx2.Response:
        headers = {CSRF_HEADER: self.csrf} if self.csrf else {}
        return await self.http.request(method, API + path, headers=headers, **how)


async def logged_in(server: Served) -> Browser:
    browser = Browser(await server.fresh())
    entered = await browser.http.get(server.login_link)
    assert entered.status_code == 303
    browser.csrf = (await browser.call("GET", "/me")).json()["csrf"]
    return browser


async def test_the_printed_link_lets_one_browser_in_once(server: Served) -> None:
    browser = await logged_in(server)

    again = await (await server.fresh()).get(server.login_link)

    assert (await browser.call("GET", "/sessions")).status_code == 200
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


async def test_the_link_is_good_for_a_minute(server: Served) -> None:
    server.world.clock.tick(61)

    late = await (await server.fresh()).get(server.login_link)

    assert late.status_code == 403


async def test_the_cookie_cannot_be_read_or_sent_by_others(server: Served) -> None:
    entered = await (await server.fresh()).get(server.login_link)

    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"sessionary_{server.port}=" in cookie


async def test_a_cookie_alone_changes_nothing(server: Served) -> None:
    browser = await logged_in(server)
    csrf, browser.csrf = browser.csrf, ""

    refused = await browser.call("POST", "/sessions", json={"text": "hello"})
    browser.csrf = csrf
    done = await browser.call("POST", "/sessions", json={"text": "hello"})

    assert (refused.status_code, done.status_code) == (403, 201)


async def test_who_logs_out_is_out(server: Served) -> None:
    browser = await logged_in(server)

    assert (await browser.call("POST", "/logout")).status_code == 200

    assert (await browser.call("GET", "/sessions")).status_code == 401


async def test_a_login_ends_after_a_month(server: Served) -> None:
    browser = await logged_in(server)

    server.world.clock.tick(credentials.LIFE / timedelta(seconds=1))

    assert (await browser.call("GET", "/sessions")).status_code == 401


async def with_password(server: Served) -> Browser:
    browser = await logged_in(server)
    assert (await browser.call("PUT", "/password", json={"new": PASSWORD})).status_code == 200
    return browser


async def test_a_password_lets_in_and_a_wrong_one_does_not(server: Served) -> None:
    await with_password(server)
    browser = Browser(await server.fresh())

    wrong = await browser.call("POST", "/login", json={"password": "correct horse"})
    right = await browser.call("POST", "/login", json={"password": PASSWORD})
    browser.csrf = right.json()["csrf"]

    assert (wrong.status_code, right.status_code) == (401, 200)
    assert (await browser.call("POST", "/sessions", json={"text": "hi"})).status_code == 201


async def test_the_login_page_works_without_scripts(server: Served) -> None:
    await with_password(server)
    browser = Browser(await server.fresh())

    page = await browser.http.get("/login")
    entered = await browser.http.post("/login", data={"password": PASSWORD})

    assert "<form" in page.text
    assert "<script" not in page.text
    assert entered.status_code == 303
    assert (await browser.call("GET", "/me")).status_code == 200


async def test_guessing_is_slowed_down(server: Served) -> None:
    await with_password(server)
    browser = Browser(await server.fresh())

    answers = [
        await browser.call("POST", "/login", json={"password": "a guess at it"})
        for _ in range(credentials.WRONG_PASSWORDS + 1)
    ]
    right = await browser.call("POST", "/login", json={"password": PASSWORD})

    assert [each.status_code for each in answers][-1] == right.status_code == 429
    assert int(right.headers["retry-after"]) >= 1
    server.world.clock.tick(10)
    assert (await browser.call("POST", "/login", json={"password": PASSWORD})).status_code == 200


async def guess(browser: Browser, address: str, password: str = "a guess at it") -> httpx2.Response:
    """Try a password through the proxy, from this address."""
    headers = {"X-Forwarded-For": address}
    body = {"password": password}
    return await browser.http.post(f"{API}/login", json=body, headers=headers)


async def test_wrong_passwords_lock_only_the_address_they_came_from(servers: Any) -> None:
    server: Served = await servers(trusted_proxies=(ip_network("127.0.0.0/8"),))
    first = await with_password(server)
    browser = Browser(await server.fresh())
    waits = []
    for _ in range(credentials.WRONG_PASSWORDS + 4):
        response = await guess(browser, "203.0.113.9")
        if response.status_code == 429:
            waits.append(int(response.headers["retry-after"]))
            assert "sessionary password link" in response.json()["detail"]
            server.world.clock.tick(waits[-1])

    locked = await guess(browser, "203.0.113.9", PASSWORD)
    elsewhere = await guess(browser, "203.0.113.10", PASSWORD)

    assert waits == sorted(set(waits)), "each wait is longer than the one before"
    assert (locked.status_code, elsewhere.status_code) == (429, 200)
    assert (await first.call("GET", "/me")).status_code == 200


async def test_an_address_that_nobody_vouches_for_is_not_believed(server: Served) -> None:
    await with_password(server)
    browser = Browser(await server.fresh())

    answers = [
        (await guess(browser, f"203.0.113.{n}")).status_code
        for n in range(credentials.WRONG_PASSWORDS + 1)
    ]

    assert answers[-1] == 429


@pytest.mark.parametrize("address", ["203.0.113.9:{}", "[2001:db8::9]:{}", "unknown, _{}"])
async def test_the_port_of_a_connection_makes_no_other_address_of_it(
    servers: Any, address: str
) -> None:
    server: Served = await servers(trusted_proxies=(ip_network("127.0.0.0/8"),))
    await with_password(server)
    browser = Browser(await server.fresh())

    answers = [
        (await guess(browser, address.format(40_000 + n))).status_code
        for n in range(credentials.WRONG_PASSWORDS + 1)
    ]

    assert answers[-1] == 429


async def test_guesses_from_many_addresses_lock_out_strangers_alone(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = 8
    monkeypatch.setattr(credentials.count_guess, "__kwdefaults__", {"most": few})
    server: Served = await servers(trusted_proxies=(ip_network("127.0.0.0/8"),))
    first = await with_password(server)
    browser = Browser(await server.fresh())
    assert (await guess(browser, "198.51.100.7", PASSWORD)).status_code == 200
    for n in range(few):
        assert (await guess(browser, f"203.0.113.{n}")).status_code == 401

    stranger = await guess(browser, "203.0.113.99", PASSWORD)
    known = await guess(browser, "198.51.100.7", PASSWORD)
    for n in range(few):
        await guess(browser, f"203.0.113.{n + 100}")
    link = await offer_link(server.parts, server.address)
    by_link = await (await server.fresh()).get(link)
    on_the_machine = await browser.http.post(f"{API}/login", json={"password": PASSWORD})

    assert (stranger.status_code, known.status_code) == (429, 200)
    assert (by_link.status_code, on_the_machine.status_code) == (303, 200)
    assert (await first.call("GET", "/me")).status_code == 200


async def test_many_passwords_at_once_do_not_queue_up(server: Served) -> None:
    await with_password(server)
    browsers = [Browser(await server.fresh()) for _ in range(6)]

    answers = await asyncio.gather(
        *(each.call("POST", "/login", json={"password": "a guess"}) for each in browsers)
    )

    assert {each.status_code for each in answers} == {401, 429}


async def test_a_new_password_logs_the_other_browsers_out(server: Served) -> None:
    first = await with_password(server)
    second = Browser(await server.fresh())
    entered = await second.call("POST", "/login", json={"password": PASSWORD})
    second.csrf = entered.json()["csrf"]

    change = {"old": PASSWORD, "new": "another one entirely"}
    assert (await first.call("PUT", "/password", json=change)).status_code == 200

    assert (await second.call("GET", "/me")).status_code == 401
    assert (await first.call("GET", "/me")).status_code == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("h.example", False)],
)
def test_what_is_of_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_an_address_for_others_needs_a_password_and_a_word(server: Served) -> None:
    parts = WebContext(server.store)
    with pytest.raises(BadInput, match="Set a password"):
        await check_exposure(parts, "0.0.0.0", exposed=True)
    await with_password(server)
    with pytest.raises(BadInput, match="If that is meant: --exposed"):
        await check_exposure(parts, "0.0.0.0", exposed=False)
    await check_exposure(parts, "0.0.0.0", exposed=True)


async def test_a_port_that_is_taken_is_refused_in_one_line(server: Served) -> None:
    with pytest.raises(Conflict, match=f"Port {server.port}"):
        await serve(WebContext(server.store), port=server.port)


def test_what_is_marked_as_open_asks_for_nothing_in_the_description() -> None:
    assert PUBLIC["security"] == []


async def test_a_webhook_takes_no_more_than_its_platform_sends(servers: Any) -> None:
    seen: list[int] = []

    async def webhook(headers: Any, raw: bytes) -> int:
        seen.append(len(raw))
        return 200

    largest = {"small": 1000, "large": 300_000}
    server: Served = await servers(webhooks=dict.fromkeys(largest, webhook), webhook_bytes=largest)
    client = await server.client()

    for channel, most in largest.items():
        taken = await client.call("POST", f"/channels/{channel}/webhook", content=bytes(most))
        refused = await client.call("POST", f"/channels/{channel}/webhook", content=bytes(most + 1))
        assert (taken.status_code, refused.status_code) == (200, 413)

    assert seen == [1000, 300_000]


async def test_only_a_valid_link_costs_a_write(servers: Any) -> None:
    server: Served = await servers(with_engine=False)
    browser = await server.fresh()
    server.store.note_damage(Damaged("From now on every write is refused."))

    unknown = await browser.get("/login?code=unknown")
    valid = await browser.get(server.login_link)

    assert (unknown.status_code, valid.status_code) == (403, 503)


async def test_a_webhook_is_there_only_with_its_adapter(servers: Any) -> None:
    seen: list[tuple[str | None, bytes]] = []

    async def webhook(headers: Mapping[str, str], raw: bytes) -> int:
        seen.append((headers.get("x-signature"), raw))
        return 200 if headers.get("x-signature") == "good" else 401

    server: Served = await servers(webhooks={"sample": webhook})
    platform = Client(server.http, None)
    headers = {"X-Signature": "good"}

    known = await platform.call("POST", "/channels/sample/webhook", content=b"raw", headers=headers)
    forged = await platform.call("POST", "/channels/sample/webhook", content=b"raw")
    absent = await platform.call("POST", "/channels/other/webhook", content=b"raw")

    assert [each.status_code for each in (known, forged, absent)] == [200, 401, 404]
    assert seen == [("good", b"raw"), (None, b"raw")]


def test_small_answers_do_not_wait_for_more() -> None:
    # asyncio sends at once only on sockets that are named as TCP.
    made = listen("127.0.0.1", 0)
    made.close()

    assert made.proto == socket.IPPROTO_TCP
