"""The outbox over HTTP: what could not be delivered is seen, and gets another way out."""

from typing import Any

from sessionary.actions import outbox
from sessionary.clock import Moment
from sessionary.model.access import Scope
from sessionary.model.message import Text
from sessionary.model.source import Channel
from sessionary.store.database import Tx
from tests.web.conftest import Client, Served

GONE = Channel("loopback", "gone")


async def abandoned(server: Served) -> str:
    return await server.store.write(_abandoned, server.world.context().moment())


def _abandoned(tx: Tx, moment: Moment) -> str:
    """In one transaction: a sender must not be quicker."""
    id = outbox.enqueue(tx, GONE, (Text("hello"),), profile="main", moment=moment)
    assert outbox.abandon(tx, id, reason="blocked by the user")
    return id


async def talked_in(server: Served, client: Client, chat: str) -> None:
    """Let someone talk with the agent in a chat."""
    body = {"source": {"platform": "loopback", "chat_id": chat, "user_id": "u"}, "text": "hi"}
    await client.post("/arrivals", body, status=202)
    await server.settle()


async def test_what_was_abandoned_is_listed_with_its_reason(server: Served, client: Client) -> None:
    await talked_in(server, client, "1")
    id = await abandoned(server)

    heads_json = await client.get("/deliveries", params={"state": "abandoned"})
    shown = await client.get(f"/deliveries/{id}")

    assert [each["id"] for each in heads_json["items"]] == [id]
    assert heads_json["items"][0]["reason"] == "blocked by the user"
    assert (shown["channel"], shown["text"]) == ("loopback:gone", "hello")
    assert shown["parts"] == [{"type": "text", "text": "hello"}]
    to_one = await client.get("/deliveries", params={"channel": "loopback:1"})
    assert [each["state"] for each in to_one["items"]] == ["sent"]
    page = await client.get("/deliveries", params={"limit": 1})
    rest = await client.get("/deliveries", params={"limit": 1, "cursor": page["next"]})
    assert {each["id"] for each in (*page["items"], *rest["items"])} >= {id}
    assert (await client.call("GET", "/deliveries?state=lost")).status_code == 422
    assert (await client.call("GET", "/deliveries/nothing")).status_code == 404


async def test_a_redirected_delivery_arrives_elsewhere_once(server: Served, client: Client) -> None:
    await talked_in(server, client, "other")
    id = await abandoned(server)
    key = {"Idempotency-Key": "redirect-1"}

    made = [
        await client.post(
            f"/deliveries/{id}/redirect", {"channel": "loopback:other"}, status=201, headers=key
        )
        for _ in range(2)
    ]
    await server.settle()

    assert made[0] == made[1]
    assert server.world.adapter.texts("loopback:other") == ["re: hi", "hello"]
    old = await client.get(f"/deliveries/{id}")
    assert (old["state"], old["redirected_to"]) == ("redirected", made[0]["id"])
    again = await client.call(
        "POST", f"/deliveries/{id}/redirect", json={"channel": "loopback:other"}
    )
    assert again.status_code == 409
    assert made[0]["id"] in again.json()["detail"]


async def test_a_redirect_goes_only_where_the_agent_is_known(
    server: Served, client: Client
) -> None:
    id = await abandoned(server)

    async def refused(channel: str) -> Any:
        answer = await client.call("POST", f"/deliveries/{id}/redirect", json={"channel": channel})
        assert answer.json()["committed"] == "no"
        return answer.status_code, answer.json()["detail"]

    status, why = await refused("loopback:stranger")
    assert (status, "no home channel" in why) == (403, True)
    status, why = await refused("telegram:1")
    assert (status, "no channel 'telegram'" in why) == (403, True)
    assert (await refused("nonsense"))[0] == 422
    writer = await server.client(Scope.WRITE)
    body = {"channel": "loopback:1"}
    denied = await writer.call("POST", f"/deliveries/{id}/redirect", json=body)
    assert denied.status_code == 403


async def test_a_delivery_is_retried_or_given_up(server: Served, client: Client) -> None:
    id = await abandoned(server)
    writer = await server.client(Scope.WRITE)

    again = await writer.post(f"/deliveries/{id}/retry")
    await server.settle()

    assert again["state"] == "waiting"
    assert server.world.adapter.texts("loopback:gone") == ["hello"]
    assert (await writer.call("POST", f"/deliveries/{id}/abandon")).status_code == 409
    given: dict[str, Any] = {"profile": "main", "moment": server.world.context().moment()}
    other = await server.store.write(
        outbox.enqueue, Channel("elsewhere", "1"), (Text("x"),), **given
    )
    done = await writer.post(f"/deliveries/{other}/abandon", {"reason": "told by phone"})
    assert (done["state"], done["reason"]) == ("abandoned", "told by phone")
    reader = await server.client(Scope.READ)
    assert (await reader.call("POST", f"/deliveries/{id}/retry")).status_code == 403
