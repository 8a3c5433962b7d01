"""Files: brought in before their message, known by looking at them, never run, never another's."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from sessionary.actions import files
from sessionary.actions.retention import purge
from sessionary.config.server import Limits
from sessionary.model import media
from tests.web.conftest import Client, Served
from tests.web.test_sessions import begin_elsewhere, end_elsewhere, opened

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
HTML = b"<!doctype html><script>alert(1)</script>"


async def brought(client: Client, data: bytes = PNG, name: str = "", media_type: str = "") -> Any:
    headers = {"Content-Type": media_type} if media_type else {}
    answer = await client.call(
        "POST", "/blobs", content=data, params={"name": name}, headers=headers
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


async def fetched(client: Client, session_id: str, blob: str, query: str = "") -> Any:
    return await client.call("GET", f"/sessions/{session_id}/blobs/{blob}{query}")


async def test_a_file_is_brought_in_sent_with_a_message_and_read_again(
    server: Served, client: Client
) -> None:
    part = await brought(client, name="plan.png", media_type="image/png")

    answer = await client.post(
        "/sessions", {"parts": [{"type": "text", "text": "look"}, part], "run": True}, status=202
    )
    await server.settle()

    assert part == {
        "type": "attachment",
        "blob": hashlib.sha256(PNG).hexdigest(),
        "media_type": "image/png",
        "name": "plan.png",
        "size": len(PNG),
    }
    window = await client.get(f"/sessions/{answer['session_id']}/entries")
    assert window["items"][0]["parts"][1] == part
    got = await fetched(client, answer["session_id"], part["blob"])
    assert (got.content, got.headers["content-type"]) == (PNG, "image/png")


@pytest.mark.parametrize(
    ("data", "media_type", "found"),
    [
        (PNG, "text/html", "image/png"),
        (HTML, "text/html", "text/plain"),
        (SVG, "image/svg+xml", "text/plain"),
        (b"a,b\n1,2\n", "text/csv; charset=utf-8", "text/csv"),
        (b"a,b\n1,2\n", "application/javascript", "text/plain"),
        (b"\x00\x01\x02", "image/png", "application/octet-stream"),
        (b"PK\x03\x04....", "application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
        (b"PK\x03\x04....", "text/html", "application/zip"),
        ("é".encode() * 3000, "", "text/plain"),
        (b"x" + "é".encode() * 3000, "", "text/plain"),
        ("é".encode("latin-1"), "text/plain", "application/octet-stream"),
    ],
)  # fmt: skip
def test_what_a_file_is_is_found_by_looking(data: bytes, media_type: str, found: str) -> None:
    assert media.media_type_of(data, media_type) == found


@pytest.mark.parametrize("data", [HTML, SVG, b"%PDF-1.7"])
async def test_what_could_run_is_only_ever_a_download(client: Client, data: bytes) -> None:
    part = await brought(client, data, name="x.html", media_type="text/html")
    id = (await client.post("/sessions", {"parts": [part]}, status=201))["id"]

    got = await fetched(client, id, part["blob"])

    assert got.content == data
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == "attachment"
    assert got.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert got.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ('a".html\r\nX-Evil: 1', "a%22.html%20X-Evil%3A%201"),
        ("\u202egpj.exe", "gpj.exe"),
        ("..\\..\\x", "_.._x"),
    ],
)
async def test_a_name_is_only_a_name(client: Client, name: str, kept: str) -> None:
    part = await brought(client, name=name)
    id = (await client.post("/sessions", {"parts": [part]}, status=201))["id"]

    got = await client.call("GET", f"/sessions/{id}/blobs/{part['blob']}", params={"name": name})

    assert "\n" not in part["name"]
    assert got.headers["content-disposition"] == f"attachment; filename*=UTF-8''{kept}"
    assert "x-evil" not in got.headers


async def test_a_file_that_is_too_large_or_empty_is_refused(servers: Any) -> None:
    server: Served = await servers(limits=Limits(upload_bytes=1000))
    client = await server.client()

    large = await client.call("POST", "/blobs", content=b"x" * 1001)
    empty = await client.call("POST", "/blobs", content=b"")

    assert (large.status_code, empty.status_code) == (413, 422)
    assert large.json()["committed"] == empty.json()["committed"] == "no"


async def test_another_profiles_file_looks_exactly_like_nothing(
    server: Served, client: Client
) -> None:
    other = await server.client(profile="other")
    foreign = await brought(client, b"ours alone")
    missing = foreign | {"blob": "0" * 64}
    id = (await other.post("/sessions", {"text": "mine"}, status=201))["id"]

    answers = [
        await other.call(method, path, json={"parts": [part], **more})
        for part in (foreign, missing)
        for method, path, more in (
            ("POST", "/sessions", {}),
            ("POST", f"/sessions/{id}/messages", {"role": "user"}),
        )
    ]

    assert {each.status_code for each in answers} == {422}
    assert answers[0].text.replace(foreign["blob"], "?") == answers[2].text.replace("0" * 64, "?")
    assert (await fetched(other, id, foreign["blob"])).status_code == 404
    again = await brought(other, b"ours alone")
    await other.post(f"/sessions/{id}/messages", {"role": "user", "parts": [again]}, status=201)


async def test_every_body_that_takes_parts_takes_only_files_of_ours(
    server: Served, client: Client
) -> None:
    foreign = await brought(await server.client(profile="other"), b"theirs")
    id = await opened(client)
    begun = await begin_elsewhere(server, id)
    queued = await client.post(f"/sessions/{id}/turns", {"text": "next"}, status=202)
    more: dict[str, dict[str, Any]] = {
        "NewArrival": {"source": {"platform": "api", "chat_id": "1"}},
        "NewMessageBody": {"role": "user"},
    }
    description = await client.get("/openapi.json")
    shapes = description["components"]["schemas"]
    tried = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            ref = content.get("application/json", {}).get("schema", {}).get("$ref", "")
            kind = ref.rpartition("/")[2]
            if "parts" not in shapes.get(kind, {}).get("properties", {}):
                continue
            where = path.format(session_id=id, arrival_id=queued["arrival_id"])
            body = {"parts": [foreign], **more.get(kind, {})}
            refused = await client.call(method.upper(), server.address + where, json=body)
            assert refused.status_code == 422, (where, refused.text)
            assert "Upload them first" in refused.json()["detail"]
            tried.append(path)
    await end_elsewhere(server, begun)

    assert len(tried) >= 5


async def forgotten(server: Served) -> int:
    moment = server.world.context().moment()
    return await server.store.write(files.delete_old_uploads, moment=moment)


async def is_kept(server: Served, part: dict[str, Any]) -> bool:
    return bool(
        await server.store.read(lambda tx: tx.one("has_blob", hash=part["blob"]) is not None)
    )


async def test_a_file_that_no_message_has_is_let_go_after_a_week(
    server: Served, client: Client
) -> None:
    unused, used = await brought(client, b"unused"), await brought(client, b"used")
    await client.post("/sessions", {"parts": [used]}, status=201)

    assert await forgotten(server) == 0
    server.world.clock.tick(files.KEPT / timedelta(seconds=1) + 1)
    await forgotten(server)

    assert (await is_kept(server, unused), await is_kept(server, used)) == (False, True)


async def test_what_waits_in_the_inbox_keeps_its_files(server: Served, client: Client) -> None:
    part = await brought(client)
    elsewhere = (await client.post("/sessions", {"parts": [part]}, status=201))["id"]
    id = await opened(client)
    begun = await begin_elsewhere(server, id)
    await client.post(f"/sessions/{id}/turns", {"parts": [part]}, status=202)

    moment = server.world.context().moment()
    await server.store.write(purge.purge, elsewhere, profile="main", moment=moment)
    assert await is_kept(server, part)
    await end_elsewhere(server, begun)
    await server.settle()

    window = await client.get(f"/sessions/{id}/entries")
    assert part in [each for entry in window["items"] for each in entry["parts"]]


async def test_a_purge_takes_the_files_along(server: Served, client: Client) -> None:
    part = await brought(client)
    id = (await client.post("/sessions", {"parts": [part]}, status=201))["id"]

    moment = server.world.context().moment()
    await server.store.write(purge.purge, id, profile="main", moment=moment)

    assert not await is_kept(server, part)
