"""What the workbench lists and shows of a session besides its head."""

from typing import Any

from sessionary.actions.sessions import append, edit
from sessionary.clock import Moment
from sessionary.model.message import message
from sessionary.model.session import Kind, Opening
from sessionary.model.source import Source
from sessionary.store.database import Tx
from tests.web.conftest import Client, Served
from tests.web.test_sessions import begin_elsewhere, opened


async def with_job(server: Served) -> str:
    opening = Opening("main", Source("schedule"), kind=Kind.JOB)
    moment = server.world.context().moment()
    saying = append.NewMessage(message("user", "work"))
    return (
        await server.store.write(append.append_to_new_session, opening, saying, moment=moment)
    ).session_id


def ids(page: dict[str, Any]) -> set[str]:
    return {head["id"] for head in page["items"]}


async def test_all_are_chats_and_automation(server: Served, client: Client) -> None:
    chat, job = await opened(client), await with_job(server)

    everything = await client.get("/sessions?folder=all")

    assert ids(everything) == {chat, job}
    assert everything["hidden"] == 0
    assert ids(await client.get("/sessions")) == {chat}


async def test_several_sources_are_merged_and_paged_in_order(client: Client) -> None:
    made = [
        await opened(client, f"{n}", source={"platform": ("slack", "telegram", "web")[n % 3]})
        for n in range(9)
    ]

    first = await client.get("/sessions?source=slack&source=telegram&limit=4")
    rest = await client.get(
        f"/sessions?source=slack&source=telegram&limit=4&cursor={first['next']}"
    )

    found = [head["id"] for page in (first, rest) for head in page["items"]]
    assert found == [id for n, id in reversed(list(enumerate(made))) if n % 3 != 2]
    assert rest["next"] is None


async def test_labels_and_being_read_only_narrow_the_list(server: Served, client: Client) -> None:
    blue = await opened(client, labels=["blue"])
    red = await opened(client, labels=["red"])
    await server.store.write(edit.seal, red, profile="main")

    refused = await client.call(
        "POST", f"/sessions/{red}/messages", json={"role": "user", "text": "more"}
    )

    assert ids(await client.get("/sessions?label=blue")) == {blue}
    assert ids(await client.get("/sessions?read_only=true")) == {red}
    assert ids(await client.get("/sessions?read_only=false")) == {blue}
    assert refused.status_code == 409


async def test_a_turn_without_a_result_is_reported(server: Served, client: Client) -> None:
    id = await opened(client)
    assert (await client.get(f"/sessions/{id}"))["failed"] is False
    await begin_elsewhere(server, id)
    running = await client.get("/sessions")
    server.world.clock.tick(600)
    await server.settle()

    (head,) = (await client.get("/sessions"))["items"]

    assert (running["items"][0]["running"], running["items"][0]["failed"]) == (True, False)
    assert (head["running"], head["failed"]) == (False, True)


async def test_subagents_are_counted_and_found_under_their_parent(
    server: Served, client: Client
) -> None:
    parent = await opened(client)
    fork = await client.post(f"/sessions/{parent}/fork", {}, status=201)
    child = await server.store.write(worker_of, parent, moment=server.world.context().moment())

    (head,) = [each for each in (await client.get("/sessions"))["items"] if each["id"] == parent]
    children = await client.get(f"/sessions/{parent}/children")

    assert head["subagents"] == 1
    assert [(each["id"], each["lineage"]) for each in children["items"]] == [
        (fork["id"], "fork"),
        (child, "subagent"),
    ]


async def test_a_subagent_in_the_trash_is_counted_only_with_a_parent_in_the_trash(
    server: Served, client: Client
) -> None:
    parent = await opened(client)
    child = await server.store.write(worker_of, parent, moment=server.world.context().moment())

    await client.call("DELETE", f"/sessions/{child}")
    alone = (await client.get(f"/sessions/{parent}"))["subagents"]
    await client.post(f"/sessions/{child}/restore", {})
    await client.call("DELETE", f"/sessions/{parent}")
    together = (await client.get(f"/sessions/{parent}"))["subagents"]

    assert (alone, together) == (0, 1)


async def test_a_session_at_a_glance(server: Served, client: Client) -> None:
    id = await opened(client, "read the file, please")
    call = {"type": "tool_call", "id": "1", "name": "read_file", "arguments": {"path": "a.py"}}
    edit = {"type": "tool_call", "id": "2", "name": "edit", "arguments": '{"file_path": "b.py"}'}
    odd = {"type": "tool_call", "id": "3", "name": "edit", "arguments": "{no json"}
    await client.post(
        f"/sessions/{id}/messages", {"role": "assistant", "parts": [call, edit, odd]}, status=201
    )
    fork = await client.post(f"/sessions/{id}/fork", {}, status=201)

    seen = await client.get(f"/sessions/{fork['id']}/overview")

    assert [each["text"] for each in seen["prompts"]] == ["read the file, please"]
    assert [(each["path"], each["changed"]) for each in seen["files"]] == [
        ("a.py", False),
        ("b.py", True),
    ]
    assert seen["context"]["used"] == sum(seen["context"]["by_kind"].values()) > 0
    assert [each["id"] for each in seen["ancestors"]] == [id]
    assert seen["children"] == []


async def test_what_was_taken_back_is_in_the_log_still(client: Client) -> None:
    id = await opened(client, "one")
    await client.post(f"/sessions/{id}/messages", {"role": "assistant", "text": "two"}, status=201)
    await client.post(f"/sessions/{id}/retract", {"after": 1})

    shown = await client.get(f"/sessions/{id}/entries")
    raw = await client.get(f"/sessions/{id}/entries?view=log&after=1")

    assert [entry["text"] for entry in shown["items"]] == ["one"]
    assert [(entry["kind"], entry.get("text")) for entry in raw["items"]] == [
        ("message", "two"),
        ("retraction", None),
    ]


def worker_of(tx: Tx, parent: str, *, moment: Moment) -> str:
    """Open the session of a subagent, with its first message."""
    id = edit.open_subagent(
        tx, parent, Opening("main", Source("web"), title="worker"), moment=moment
    )
    append.append_to_session(
        tx, id, append.NewMessage(message("user", "work")), profile="main", moment=moment
    )
    return id


async def test_the_list_is_sorted_as_asked_and_paged(client: Client) -> None:
    names = ["Pear", "apple", "Quince"]
    made = {name: await opened(client, f"about {name}", title=name) for name in names}

    async def sorted_by(sort: str) -> list[str]:
        found, cursor = [], ""
        while True:
            page = await client.get(f"/sessions?sort={sort}&limit=2&cursor={cursor}")
            found += [head["title"] for head in page["items"]]
            if page["next"] is None:
                return found
            cursor = page["next"]

    assert await sorted_by("title") == ["apple", "Pear", "Quince"]
    assert await sorted_by("created") == ["Quince", "apple", "Pear"]
    refused = await client.call("GET", "/sessions?sort=length")
    assert (refused.status_code, len(made)) == (422, 3)


async def test_a_session_is_opened_in_the_project_it_names(client: Client) -> None:
    await client.post("/projects", {"name": "Garden"}, status=201)

    written = await client.post("/sessions", {"text": "one", "project": "Garden"}, status=201)
    asked = await client.post(
        "/sessions", {"text": "two", "project": "Garden", "run": True}, status=202
    )
    unknown = await client.call("POST", "/sessions", json={"text": "three", "project": "Sea"})

    there = await client.get("/sessions?project=Garden")
    assert written["project"] == "Garden"
    assert ids(there) == {written["id"], asked["session_id"]}
    assert unknown.status_code == 404
    assert ids(await client.get("/sessions")) == ids(there)


async def test_the_list_says_how_many_it_leaves_out_and_why(server: Served, client: Client) -> None:
    await with_job(server)
    await opened(client, "kept")
    archived = await opened(client, "put away")
    await client.call("PATCH", f"/sessions/{archived}", json={"archived": True})

    everything = await client.get("/sessions")
    narrowed = await client.get("/sessions?text=AWAY")

    assert everything["hidden"] == 2
    assert everything["hidden_by_folder"] == {"automation": 1, "archive": 1}
    assert narrowed["hidden_by_folder"] == {"automation": 0, "archive": 1}
    assert not everything["hidden_at_least"]


async def test_every_model_of_the_profile_is_named(client: Client) -> None:
    await opened(client, "one", model="large")
    await opened(client, "two", model="small")
    archived = await opened(client, "three", model="tiny")
    await client.call("PATCH", f"/sessions/{archived}", json={"archived": True})

    found = await client.get("/models")

    assert [each["model"] for each in found["items"]] == ["large", "small", "tiny"]
