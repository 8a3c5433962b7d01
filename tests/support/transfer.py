"""A store with something of everything in it, and the way out of one store into another."""

from collections.abc import Sequence
from datetime import timedelta

from sessionary.actions import turns, usage
from sessionary.actions.sessions import edit, projects, revise
from sessionary.actions.transfer import export, jsonl_import
from sessionary.actions.transfer.jsonl_import import ImportReport
from sessionary.model import codec
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.source import Person, Source
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.database import Store, Tx
from sessionary.store.tables import blobs
from tests.support.world import World

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
HOSTILE = "lone \ud800, nothing \x00, bidi \u202e, line \u2028, end \uffff, \U0001f600"
EVA = Source(
    "slack", "C5", chat_type="group", chat_name="Général", user_id="U1", extra={"team": {"id": 7}}
)


def exported(
    store: Store, ids: Sequence[str] | None = None, *, profile: str | None = "main"
) -> bytes:
    return "".join(export.export_jsonl(store, ids, profile=profile)).encode()


def imported(store: Store, text: bytes, *, profile: str | None = None) -> ImportReport:
    return jsonl_import.import_jsonl(
        store, text.splitlines(keepends=True), moment=World(store).moment(), profile=profile
    )


def attach(tx: Tx, data: bytes) -> str:
    return blobs.add(tx, data)


def fill(world: World) -> dict[str, str]:
    """Do a little of everything; the ids of what came of it, by name."""
    made: dict[str, str] = {}
    made["talk"] = world.talk("hello", "hi!")
    world.talk("and again")
    made["next"] = world.talk("another day", source=EVA)
    made["rich"] = world.session("What is in the picture?", title="Picture #1", source=EVA)
    _say_rich_things(world, made["rich"])
    made["fork"] = world.fork(made["rich"], 3).id
    world.append_text(made["fork"], "on a branch")
    made["twig"] = world.fork(made["fork"], 2).id
    world.append_text(made["twig"], "on a twig")
    made["gone"] = world.fork(made["rich"], 4).id
    world.append_text(made["gone"], "to be purged")
    made["shared"] = _several_speak(world)
    made["asked"] = asks_a_model(world)
    made["heir"] = world.fork(made["gone"]).id
    world.append_text(made["heir"], "it lives on")
    world.purge(made["gone"])
    _put_away(world, made)
    return made


def asks_a_model(world: World, source: Source = EVA) -> str:
    """A turn that a second process has continued; each of them has recorded what the model was sent."""
    session_id = world.session("Who is there?", source=source)
    claim = turns.Claim("first", 60, resumable=True)
    begun = world.write(
        turns.begin_in_session,
        session_id,
        Message(Role.USER, (Text("Answer!"),)),
        profile=world.profile,
        claim=claim,
        moment=world.moment(),
    )
    world.write(turns.store_request, begun.lease, request_record("You talk with Ann, here."))
    world.clock.tick(120)
    again = world.write(
        turns.take_over, begun.lease.turn_id, claim=claim, attempts=3, moment=world.moment()
    )
    assert isinstance(again, turns.Begun)
    world.finish(again, "Ann.", request=request_record("You talk with Ann, there."))
    return session_id


def request_record(system_prompt: str) -> turns.RequestRecord:
    """What a model is sent besides the messages."""
    sent = {"system_prompt": system_prompt, "model": "m-1", "tools": [], "settings": {}}
    text = codec.encode(sent)
    return turns.RequestRecord(blobs.hash_of_text(text), text)


def _say_rich_things(world: World, session_id: str) -> None:
    name = world.write(attach, PICTURE)
    world.append(
        session_id,
        Message(
            Role.USER,
            (Text(HOSTILE), Attachment(name, "image/png", "a/../b.png", len(PICTURE))),
            person=Person("U1", "alt", "Éva"),
            platform_message_id="m\x001",
            extra={"edited": True, "score": 1.5},
        ),
    )
    world.append(
        session_id,
        Message(
            Role.ASSISTANT,
            (
                Reasoning("hm", details={"signature": "x"}),
                ToolCall("c1", "look", {"at": [1, 2.5, None]}),
            ),
            model="m-1",
            finish_reason="tool_calls",
            token_count=12,
        ),
    )
    world.append(session_id, Message(Role.TOOL, (ToolResult("c1", "x" * 70_000, "look"),)))
    world.append(session_id, Message(Role.TOOL, (ToolResult("c2", {"$blob": "no"}, None, True),)))
    world.append(session_id, Message(Role.ASSISTANT, (Unknown({"type": "hologram", "z": [0]}),)))
    profile = world.profile
    world.write(
        revise.compact, session_id, "so far", profile=profile, through=3, at=world.clock.tick()
    )
    world.append_text(session_id, "a mistake")
    world.write(revise.retract, session_id, profile=profile, after=6, at=world.clock.tick())


def _several_speak(world: World) -> str:
    """Two people and a summary: from there on the model reads who says what."""
    session_id = world.session("hello", source=EVA)
    for name in ("Éva", "Béla"):
        sent = Message(Role.USER, (Text(f"I am {name}"),), person=Person(name, name=name))
        world.append(session_id, sent)
    world.write(
        revise.compact,
        session_id,
        "two are here",
        profile=world.profile,
        through=3,
        at=world.clock.tick(),
    )
    sent = Message(Role.USER, (Text("and now?"),), person=Person("Béla", name="Béla"))
    world.append(session_id, sent)
    return session_id


def _put_away(world: World, made: dict[str, str]) -> None:
    profile = world.profile
    world.write(projects.add, "Art", profile=profile, moment=world.moment(), colour="#ff0000")
    world.write(projects.move_session, made["rich"], "Art", profile=profile)
    world.write(edit.pin, made["rich"], profile=profile, pinned=True)
    world.write(edit.set_labels, made["rich"], ["b", "a"], profile=profile)
    world.write(edit.set_draft, made["rich"], HOSTILE, profile=profile, moment=world.moment())
    world.write(edit.archive, made["fork"], profile=profile, archived=True)
    world.write(edit.end, made["next"], profile=profile, moment=world.moment())
    world.write(edit.trash, made["twig"], profile=profile, moment=world.moment())
    head = world.head(made["rich"])
    at = world.clock.now() - timedelta(microseconds=1)
    known = Usage("m-1", 10, 5, cost_microusd=7, cost_status=CostStatus.ESTIMATED, at=at)
    for used in (known, Usage("m-2", 1, task="title")):
        world.write(usage.record, head.no, used, profile=profile, moment=world.moment())
