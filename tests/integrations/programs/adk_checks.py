"""Promises about the session service, checked where Google's Agent Development Kit is installed.

Each check is a function that fails or does not; `test_google_adk.py` runs them all in one process
and reports each as a test of its own.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from sessionary import Sessionary
from sessionary.actions import verify
from sessionary.integrations.google_adk import SessionarySessionService
from sessionary.model.message import Message
from sessionary.model.session import SessionFolder

ADA: dict[str, Any] = {"app_name": "guide", "user_id": "ada"}


def event(text: str, *, author: str = "user", at: float = 1.0, **fields: Any) -> Event:
    content = types.Content(
        role="user" if author == "user" else "model", parts=[types.Part(text=text)]
    )
    return Event(author=author, content=content, timestamp=1_790_000_000 + at, **fields)


def changing(**delta: Any) -> EventActions:
    return EventActions(
        state_delta={name.replace("__", ":"): value for name, value in delta.items()}
    )


def texts(session: Any) -> list[str]:
    return [each.content.parts[0].text for each in session.events if each.content]


async def raises(kind: type[Exception], call: Awaitable[Any]) -> str:
    try:
        await call
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


async def check_events_and_state_come_back_as_they_were(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    session = await service.create_session(**ADA, session_id="s", state={"mood": "good"})
    first = event("Hello", actions=changing(seen=1, user__name="Ada", app__open=True, temp__x=2))
    answer = Event(
        author="guide",
        content=types.Content(
            role="model",
            parts=[
                types.Part(text="I think", thought=True),
                types.Part(
                    function_call=types.FunctionCall(id="c", name="look", args={"at": "sea"})
                ),
                types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png")),
            ],
        ),
        usage_metadata=types.GenerateContentResponseUsageMetadata(
            prompt_token_count=100,
            cached_content_token_count=40,
            candidates_token_count=5,
            thoughts_token_count=3,
        ),
        model_version="gemini-2.5-flash",
        timestamp=1_790_000_002.5,
    )
    for each in (first, answer):
        await service.append_event(session, each)

    found = await service.get_session(**ADA, session_id="s")
    assert found is not None
    assert found.events == session.events
    assert found.state == {"mood": "good", "seen": 1, "user:name": "Ada", "app:open": True}
    assert session.state["temp:x"] == 2
    assert found.last_update_time == answer.timestamp
    (head,) = store_client.sessions().items
    assert (head.preview, head.tool_call_count) == ("Hello", 1)
    assert (head.usage.input_tokens, head.usage.cache_read_tokens) == (60, 40)
    assert (head.usage.output_tokens, head.usage.reasoning_tokens) == (8, 3)
    assert head.usage.cost_microusd
    assert store_client.search("Hello source:google-adk").items
    first = store_client.find(head.id).entries().entries[-1].body
    assert isinstance(first, Message)
    assert [type(part).__name__ for part in first.parts] == ["Reasoning", "ToolCall", "Attachment"]


async def check_state_belongs_to_whom_its_prefix_says(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    await service.create_session(
        **ADA,
        session_id="one",
        state={"own": 1, "user:name": "Ada", "app:motto": "go", "temp:x": 1},
    )
    same_user = await service.create_session(**ADA, session_id="two")
    other_user = await service.create_session(app_name="guide", user_id="bob")
    other_app = await service.create_session(app_name="guide2", user_id="ada")

    assert same_user.state == {"user:name": "Ada", "app:motto": "go"}
    assert other_user.state == {"app:motto": "go"}
    assert other_app.state == {}
    assert await service.get_user_state(**ADA) == {"name": "Ada"}
    assert await service.get_user_state(app_name="guide", user_id="nobody") == {}
    # The state is a record of its own that people can read and find.
    assert len(store_client.sessions(folder=SessionFolder.AUTOMATION).items) == 2
    assert store_client.search("motto").items


async def check_a_second_run_on_one_session_is_told_and_nothing_is_lost(
    store_client: Sessionary,
) -> None:
    service: Any = SessionarySessionService(store_client)
    await service.create_session(**ADA, session_id="s")
    mine = await service.get_session(**ADA, session_id="s")
    theirs = await service.get_session(**ADA, session_id="s")
    await service.append_event(theirs, event("theirs"))

    problem = await raises(StaleSessionError, service.append_event(mine, event("mine")))

    assert "get the session again" in problem
    assert texts(mine) == []
    fresh = await service.get_session(**ADA, session_id="s")
    await service.append_event(fresh, event("mine"))
    await service.append_event(fresh, event("more"))
    assert texts(await service.get_session(**ADA, session_id="s")) == ["theirs", "mine", "more"]


async def check_a_session_built_by_hand_is_stale_only_when_it_is(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    made = await service.create_session(**ADA, session_id="s")
    await service.append_event(made, event("one"))
    copy = made.model_copy(deep=True)
    copy._storage_update_marker = None
    await service.append_event(copy, event("two"))
    empty = made.model_copy(update={"events": []})
    empty._storage_update_marker = None
    await raises(StaleSessionError, service.append_event(empty, event("three")))


async def check_a_person_in_the_workbench_makes_no_session_stale(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    session = await service.create_session(**ADA, session_id="s")
    await service.append_event(session, event("one"))
    store_client.find(store_client.sessions().items[0].id).append("user", "a person was here")
    await service.append_event(session, event("two"))
    assert texts(await service.get_session(**ADA, session_id="s")) == ["one", "two"]


async def check_branches_of_one_invocation_append_at_once(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    session = await service.create_session(**ADA, session_id="s")
    await asyncio.gather(*(service.append_event(session, event(str(n))) for n in range(20)))
    found = await service.get_session(**ADA, session_id="s")
    assert found.events == session.events
    assert len(found.events) == 20


async def check_an_event_that_comes_twice_is_there_once(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    session = await service.create_session(**ADA, session_id="s")
    one = event("one", actions=changing(n=1))
    await service.append_event(session, one)
    await service.append_event(session, event("two", actions=changing(n=2)))
    await service.append_event(session, one.model_copy(deep=True))
    await service.append_event(session, event("another", id=one.id))
    found = await service.get_session(**ADA, session_id="s")
    assert (texts(found), found.state) == (["one", "two", "another"], {"n": 2})


async def check_a_cancelled_append_is_whole_or_not_there(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    for number in range(15):
        session = await service.create_session(**ADA, session_id=f"s{number}")
        task = asyncio.create_task(
            service.append_event(session, event("one", actions=changing(n=1)))
        )
        for _ in range(number % 5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        found = await service.get_session(**ADA, session_id=f"s{number}")
        assert (texts(found), found.state) in (([], {}), (["one"], {"n": 1}))


async def check_a_partial_event_is_not_stored(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    session = await service.create_session(**ADA, session_id="s")
    await service.append_event(session, event("On", partial=True))
    assert (await service.get_session(**ADA, session_id="s")).events == []


async def check_deleted_sessions_lie_in_the_trash(store_client: Sessionary) -> None:
    service: Any = SessionarySessionService(store_client)
    session = await service.create_session(**ADA, session_id="s")
    await service.delete_session(**ADA, session_id="s")
    await service.delete_session(**ADA, session_id="never")
    assert await service.get_session(**ADA, session_id="s") is None
    assert "not found" in await raises(
        SessionNotFoundError, service.append_event(session, event("x"))
    )
    assert len(store_client.sessions(folder=SessionFolder.TRASH).items) == 1
    await service.create_session(**ADA, session_id="s")


async def check_it_answers_as_the_service_in_memory_does(store_client: Sessionary) -> None:
    ours = await _story(SessionarySessionService(store_client))
    theirs = await _story(InMemorySessionService())
    assert ours == theirs, f"{ours}\n{theirs}"


async def _story(service: BaseSessionService) -> list[Any]:
    records: list[Any] = []
    for user, name in (("ada", "b"), ("ada", "a"), ("bob", "a")):
        session = await service.create_session(
            app_name="guide", user_id=user, session_id=f" {name} ", state={"k": name}
        )
        for number in range(6):
            await service.append_event(
                session, event(f"{user} {number}", at=number, id=f"{user}{name}{number}")
            )
    await raises(AlreadyExistsError, service.create_session(**ADA, session_id="a"))
    for config in (
        None,
        GetSessionConfig(num_recent_events=0),
        GetSessionConfig(num_recent_events=2),
        GetSessionConfig(num_recent_events=100),
        GetSessionConfig(after_timestamp=1_790_000_003),
        GetSessionConfig(after_timestamp=1_790_000_999, num_recent_events=3),
    ):
        found = await service.get_session(**ADA, session_id="a", config=config)
        records.append((texts(found), found.state, found.last_update_time))
    for wanted in ("ada", "bob", "nobody", None):
        listed = await service.list_sessions(app_name="guide", user_id=wanted)
        records.append(
            [
                (one.user_id, one.id, one.events, one.state, one.last_update_time)
                for one in listed.sessions
            ]
        )
    records.append(await service.get_session(**ADA, session_id="nothing"))
    return records


CHECKS: dict[str, Callable[[Sessionary], Coroutine[Any, Any, None]]] = {
    name: found for name, found in globals().items() if name.startswith("check_")
}


def main(urls: list[str]) -> None:
    """Run every check on every store, each in a profile of its own; say what went wrong."""
    found: dict[str, str] = {}
    for place, url in enumerate(urls):
        for number, (name, check) in enumerate(CHECKS.items()):
            with Sessionary(url, profile=f"p{number}") as store_client:
                try:
                    asyncio.run(check(store_client))
                    assert not verify.verify(store_client.store).broken
                    found[f"{name}/{place}"] = ""
                except Exception:
                    found[f"{name}/{place}"] = traceback.format_exc()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
