"""Webhooks on a port of their own: nothing else is there, and they are nowhere else."""

import socket
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from sessionary.actions import credentials
from sessionary.config.secret import Secret
from sessionary.web.app import create_app, create_webhook_app
from tests.web.conftest import API, Client, Served
from tests.web.test_login import routes_of

HOOK = f"{API}/channels/sample/webhook"


async def sample(headers: Mapping[str, str], raw: bytes) -> int:
    return 200 if headers.get("x-signature") == "good" else 401


@pytest.fixture
async def two(servers: Any) -> tuple[Served, str]:
    """A server, and the address of its webhooks."""
    server: Served = await servers(webhooks={"sample": sample}, webhook_port=0)
    assert server.webhook_address is not None
    return server, server.webhook_address


async def test_a_webhook_is_taken_on_its_own_port_alone(two: tuple[Served, str]) -> None:
    server, public_address = two
    good = {"X-Signature": "good"}
    async with httpx2.AsyncClient(timeout=60) as platform:
        taken = await platform.post(f"{public_address}{HOOK}", headers=good)
        forged = await platform.post(f"{public_address}{HOOK}")
        elsewhere = await platform.post(f"{server.address}{HOOK}", headers=good)

    assert [each.status_code for each in (taken, forged, elsewhere)] == [200, 401, 404]


async def test_nothing_else_is_behind_the_webhooks_port(two: tuple[Served, str]) -> None:
    server, public_address = two
    admin = await server.client()
    for route in routes_of(create_app(server.parts)):
        for method in route.methods:
            answer = await admin.call(method, public_address + route.path)
            assert answer.status_code == 404, (method, route.path)


async def test_the_webhooks_application_has_only_their_paths(two: tuple[Served, str]) -> None:
    server, _ = two

    found = routes_of(create_webhook_app(server.parts))

    assert {route.path for route in found} == {HOOK}


async def test_a_foreign_name_is_refused_there_too(two: tuple[Served, str]) -> None:
    _, public_address = two
    async with httpx2.AsyncClient(timeout=60) as platform:
        refused = await platform.post(f"{public_address}{HOOK}", headers={"Host": "evil.example"})

    assert refused.status_code == 421


async def test_nobody_listens_at_either_port_after_the_stop(servers: Any) -> None:
    server: Served = await servers(webhooks={"sample": sample}, webhook_port=0)
    assert server.webhook_address is not None
    ports = [int(each.rpartition(":")[2]) for each in (server.address, server.webhook_address)]

    await server.stop()
    await server.stopped.wait()

    for port in ports:
        # From another address: a connection from the port to itself would succeed.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))


async def test_a_configured_password_lets_in_and_is_changed_only_there(servers: Any) -> None:
    hashed = credentials.hash_password("correct horse battery", bytes(16))
    server: Served = await servers(password_hash=Secret(hashed))
    nobody, admin = Client(await server.fresh(), None), await server.client()
    public_address = f"{server.address}{API}/login"

    entered = await nobody.call("POST", public_address, json={"password": "correct horse battery"})
    wrong = await nobody.call("POST", public_address, json={"password": "wrong horse battery"})
    changed = await admin.call("PUT", "/password", json={"new": "another one entirely"})

    assert (entered.status_code, wrong.status_code, changed.status_code) == (200, 401, 409)
    assert "configuration" in changed.json()["detail"]
