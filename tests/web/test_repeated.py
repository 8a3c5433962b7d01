"""Requests that come twice, and answers that must not mislead the caller."""

import pytest

from sessionary.actions import access
from sessionary.model.source import Person
from tests.web.conftest import API, Client, Served
from tests.web.test_import_jobs import Machine

KEY = {"Idempotency-Key": "once"}
CODE = "ABCD2345"


async def someone_asks(server: Served) -> None:
    stranger, moment = Person("7", name="Ada"), server.parts.moment()
    assert await server.store.write(
        access.request_pairing, "telegram", stranger, profile="main", code=CODE, moment=moment
    )


async def test_a_code_that_is_sent_twice_lets_in_once_and_is_answered_alike(
    server: Served, client: Client
) -> None:
    await someone_asks(server)

    responses = [
        await client.call("POST", "/access", json={"code": CODE}, headers=KEY) for _ in range(2)
    ]

    assert [each.status_code for each in responses] == [201, 201]
    assert responses[0].json() == responses[1].json()
    assert [each["name"] for each in (await client.get("/access"))["items"]] == ["Ada"]


async def test_a_wrong_code_is_counted_and_explained(server: Served, client: Client) -> None:
    await someone_asks(server)

    wrong = [
        await client.call("POST", "/access", json={"code": f"WR2345{place}A"}) for place in range(6)
    ]

    assert [each.status_code for each in wrong] == [404] * 5 + [429]
    assert wrong[0].headers["content-type"] == "application/problem+json"
    assert wrong[0].json()["detail"] == "Nobody was given that code, or it has expired."


async def test_a_browser_that_is_logged_out_twice_is_out_and_answered_alike(
    server: Served, client: Client
) -> None:
    browser = await server.fresh()
    await browser.get(server.login_link)
    (login,) = (await client.get("/logins"))["items"]

    responses = [
        await client.call("DELETE", f"/logins/{login['id']}", headers=KEY) for _ in range(2)
    ]

    assert [each.status_code for each in responses] == [200, 200]
    assert (await browser.get(f"{API}/me")).status_code == 401


async def test_a_key_of_another_import_begins_nothing(servers: object, store: object) -> None:
    machine = Machine()
    server: Served = await servers(imports=machine)  # type: ignore[operator]
    client = await server.client()
    machine.go_on.set()
    await client.post("/imports", {"dry_run": True}, status=202, headers=KEY)

    other = await client.call("POST", "/imports", json={"dry_run": False}, headers=KEY)

    assert other.status_code == 422
    assert machine.runs == 0


async def test_nothing_is_compacted_through_no_entry(client: Client) -> None:
    id = (await client.post("/sessions", {"text": "one"}, status=201))["id"]

    response = await client.call(
        "POST", f"/sessions/{id}/compact", json={"summary": "short", "through": 0}
    )

    assert response.status_code == 422
    assert (await client.get(f"/sessions/{id}"))["last_seq"] == 1


@pytest.mark.parametrize("path", ["/sessions/", "/search/"])
async def test_no_answer_sends_a_token_elsewhere(client: Client, path: str) -> None:
    for method in ("GET", "POST"):
        response = await client.call(method, path, follow_redirects=False)

        assert response.status_code == 404
        assert "location" not in response.headers


async def test_a_part_of_the_raw_log_says_that_there_is_more(client: Client) -> None:
    id = (await client.post("/sessions", {"text": "1"}, status=201))["id"]
    for number in ("2", "3"):
        body = {"role": "user", "text": number}
        await client.post(f"/sessions/{id}/messages", body, status=201)

    first = await client.get(f"/sessions/{id}/entries?view=log&limit=2")
    rest = await client.get(f"/sessions/{id}/entries?view=log&limit=2&after=2")

    assert (first["more_before"], first["more_after"]) == (False, True)
    assert (rest["more_before"], rest["more_after"]) == (True, False)


async def test_a_key_that_is_empty_is_nobodys(client: Client) -> None:
    empty = {"Idempotency-Key": ""}

    responses = [
        await client.call("POST", path, json=body, headers=empty)
        for path, body in (("/sessions", {"text": "one"}), ("/projects", {"name": "One"}))
    ]

    assert [each.status_code for each in responses] == [422, 422]
    assert "1 to 200" in responses[0].json()["detail"]
    assert (await client.get("/sessions"))["items"] == []


async def test_what_is_too_long_is_named_by_its_beginning(client: Client) -> None:
    response = await client.call("POST", "/sessions", json={"text": "a", "model": "gpt" * 2000})

    assert response.status_code == 422
    assert "gptgpt" in response.json()["detail"]
