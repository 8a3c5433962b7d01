"""Long outputs of tools: their beginning with the window, the rest when it is wanted."""

from typing import Any

from tests.web.conftest import Client
from tests.web.test_sessions import opened

LONG = "\n".join(f"line {number:05d} of the log" for number in range(2_000))
SHORT = "\n".join(f"line {number}" for number in range(200))


async def answered(client: Client, *contents: Any) -> str:
    """A session with these tool outputs."""
    id = await opened(client)
    for number, content in enumerate(contents):
        result = {"type": "tool_result", "call_id": str(number), "content": content}
        body = {"role": "tool", "parts": [result]}
        await client.post(f"/sessions/{id}/messages", body, status=201)
    return id


async def outputs(client: Client, id: str, query: str) -> list[dict[str, Any]]:
    page = await client.get(f"/sessions/{id}/entries?{query}")
    return [part for entry in page["items"] for part in entry["parts"] if "call_id" in part]


async def test_a_long_output_comes_with_its_beginning_and_its_size(client: Client) -> None:
    blocks = [{"type": "text", "text": LONG}, {"type": "text", "text": "the end"}]
    id = await answered(client, LONG, SHORT, blocks, {"rows": [1]})

    text, short, joined, data = await outputs(client, id, "outputs=short")

    assert text["content"] == "\n".join(LONG.split("\n")[:40])
    assert text["cut"] == {"lines": 2_000, "characters": len(LONG)}
    assert joined["cut"]["lines"] == 2_001
    assert (short["content"], "cut" in short) == (SHORT, False)
    assert (data["content"], "cut" in data) == ({"rows": [1]}, False)


async def test_one_line_without_an_end_is_cut_too(client: Client) -> None:
    id = await answered(client, "x" * 100_000)

    [part] = await outputs(client, id, "outputs=short")

    assert len(part["content"]) == 16_000
    assert part["cut"] == {"lines": 1, "characters": 100_000}


async def test_the_whole_is_there_for_who_asks_and_by_itself(client: Client) -> None:
    id = await answered(client, LONG)

    [whole] = await outputs(client, id, "")
    [alone] = await outputs(client, id, "view=log&after=1&limit=1")

    assert whole["content"] == alone["content"] == LONG
