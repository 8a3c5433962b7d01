"""`/v1/files` with the official client: kept, found again, never another's, and refused in words."""

import io
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI
from openai.types import FileObject

from sessionary.config.server import Limits
from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.web.openai.forms import parse_form
from tests.web.conftest import Served, Server

REPORT = b"Sales rose.\r\n--boundary?\r\n\x00"


async def connected(server: Served, **who: Any) -> AsyncOpenAI:
    """OpenAI's client with a token of ours."""
    secret, _ = await server.token(**who)
    client = AsyncOpenAI(base_url=f"{server.address}/v1", api_key=secret, max_retries=0)
    return await server.ending.enter_async_context(client)


async def kept(client: AsyncOpenAI, name: str = "report.txt", **more: Any) -> FileObject:
    file = (name, io.BytesIO(more.pop("data", REPORT)), "text/plain")
    return await client.files.create(file=file, purpose=more.pop("purpose", "user_data"), **more)


async def test_a_file_is_kept_and_found_again(server: Served) -> None:
    client = await connected(server)

    made = await kept(client, 'Ümsätze "neu".txt')

    FileObject.model_validate(made.model_dump())
    assert (made.filename, made.bytes) == ('Ümsätze "neu".txt', len(REPORT))
    assert (made.purpose, made.expires_at) == ("user_data", None)
    assert await client.files.retrieve(made.id) == made
    content = await client.files.content(made.id)
    assert content.content == REPORT
    assert content.response.headers["content-type"] == "application/octet-stream"
    assert (await client.files.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError, match="no file"):
        await client.files.retrieve(made.id)


async def test_files_are_listed_page_by_page(server: Served) -> None:
    client = await connected(server)
    names = [f"{number}.txt" for number in range(5)]
    for name in names:
        await kept(client, name)
    await kept(client, "other.txt", purpose="assistants")

    newest = [each.filename async for each in client.files.list(limit=2, purpose="user_data")]
    oldest = [each.filename async for each in client.files.list(limit=2, order="asc")]

    assert newest == names[::-1]
    assert oldest == [*names, "other.txt"]


async def test_a_file_expires_when_it_was_asked_to(server: Served) -> None:
    client = await connected(server)

    made = await kept(client, expires_after={"anchor": "created_at", "seconds": 3600})

    assert made.expires_at == made.created_at + 3600
    server.world.clock.tick(hours=1)
    assert [each async for each in client.files.list()] == []
    with pytest.raises(openai.NotFoundError):
        await client.files.content(made.id)


async def test_another_profile_sees_no_file(server: Served) -> None:
    made = await kept(await connected(server))
    other = await connected(server, profile="other")

    assert [each async for each in other.files.list()] == []
    for use in (other.files.retrieve, other.files.content, other.files.delete):
        with pytest.raises(openai.NotFoundError):
            await use(made.id)


async def test_a_token_that_only_reads_keeps_and_deletes_nothing(server: Served) -> None:
    made = await kept(await connected(server))
    reader = await connected(server, scope=Scope.READ)

    assert (await reader.files.retrieve(made.id)).id == made.id
    with pytest.raises(openai.PermissionDeniedError):
        await kept(reader)
    with pytest.raises(openai.PermissionDeniedError):
        await reader.files.delete(made.id)
    with pytest.raises(openai.AuthenticationError):
        await reader.copy(api_key="wrong").files.list()


async def test_a_repeated_upload_with_its_key_keeps_one_file(server: Served) -> None:
    client = await connected(server)
    key = {"Idempotency-Key": "once"}

    one = await kept(client, extra_headers=key)
    two = await kept(client, extra_headers=key)

    assert one == two
    assert [each.id async for each in client.files.list()] == [one.id]
    with pytest.raises(openai.BadRequestError, match="another request"):
        await kept(client, data=b"another", extra_headers=key)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"data": b""}, "file"),
        ({"purpose": "world peace"}, "purpose"),
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after"),
        ({"expires_after": {"anchor": "last_active_at", "seconds": 3600}}, "expires_after"),
    ],
)
async def test_what_cannot_be_kept_is_refused_with_its_parameter(
    server: Served, more: dict[str, Any], param: str
) -> None:
    client = await connected(server)

    with pytest.raises(openai.BadRequestError) as caught:
        await kept(client, **more)

    assert caught.value.param == param
    assert [each async for each in client.files.list()] == []


async def test_a_wrong_parameter_of_a_list_is_named(server: Served) -> None:
    client = await connected(server)

    for query, param in (({"limit": 0}, "limit"), ({"order": "up"}, "order")):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.files.list(extra_query=query)
        assert caught.value.param == param


async def test_a_file_over_the_limit_is_refused(servers: Server) -> None:
    server = await servers(limits=Limits(upload_bytes=1000))
    client = await connected(server)

    with pytest.raises(openai.APIStatusError) as caught:
        await kept(client, data=bytes(1001))

    assert caught.value.status_code == 413


async def test_a_body_that_is_no_form_is_refused_in_openais_shape(server: Served) -> None:
    secret, _ = await server.token()
    async with httpx2.AsyncClient(base_url=server.address) as http:
        answer = await http.post(
            "/v1/files",
            content=b"--x\r\n",
            headers={
                "Authorization": f"Bearer {secret}",
                "Content-Type": "multipart/form-data; boundary=x",
            },
        )

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@given(st.binary(max_size=200), st.text(max_size=60))
def test_whatever_is_sent_as_a_form_is_read_or_refused(body: bytes, boundary: str) -> None:
    for content_type in (boundary, f"multipart/form-data; boundary={boundary}"):
        try:
            found = parse_form(body, content_type)
        except BadInput:
            continue
        assert all(isinstance(each.data, bytes) for each in found.values())


@given(st.binary(max_size=120).filter(lambda each: b"\r\n--x" not in each), st.text(max_size=40))
def test_a_field_of_a_form_has_the_bytes_that_were_sent(data: bytes, head: str) -> None:
    clean = "".join(each for each in head if each.isprintable() and each not in '"\\')
    name = f'Content-Disposition: form-data; name="file"; filename="{clean}"'.encode()

    try:
        found = parse_form(
            b"--x\r\n" + name + b"\r\n\r\n" + data + b"\r\n--x--\r\n",
            "multipart/form-data; boundary=x",
        )
    except UnicodeEncodeError:
        return

    assert found["file"].data == data
