"""ChatGPT's export: a zip, the folder it was unpacked to, its `conversations.json`, or one conversation."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sessionary.formats import shape
from sessionary.importers import exports, files, times, trees
from sessionary.importers.base import (
    Begin,
    End,
    Event,
    Facts,
    Json,
    Resume,
    Said,
    Skipped,
    Unit,
    Where,
)
from sessionary.importers.chatgpt_message import Assets, said

# So many nodes a conversation may have.
MOST = 200_000
_KEPT = ("gizmo_id", "gizmo_type", "conversation_template_id", "conversation_origin", "voice")
_EPOCH = datetime(2022, 11, 30, tzinfo=UTC)


class ChatGpt:
    """Reads the export that ChatGPT sends to its users."""

    name = "chatgpt"
    title = "ChatGPT"

    def places(self, where: Where) -> list[Path]:
        return []

    def recognises(self, path: Path) -> bool:
        return exports.has(path, b'"mapping"', alone=b'"author"')

    def find(self, place: Path) -> Iterator[Unit]:
        yield from exports.find(place)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        assets: Assets | None = None
        for where, item, shelf in exports.conversations(unit.path):
            assets = assets or Assets(shelf)
            if item.why is not None:
                yield Skipped(where=where, why=item.why)
            else:
                yield from _conversation(item.data, where, assets, unit)


def _conversation(data: object, where: str, assets: Assets, unit: Unit) -> Iterator[Event]:
    talk = shape.record(data)
    id = shape.name(talk.get("conversation_id")) or shape.name(talk.get("id"))
    mapping = shape.record(talk.get("mapping"))
    if id is None or not mapping:
        why = "it has no messages" if id is not None else "it has no name"
        yield Skipped(where=where, why=why)
        return
    if len(mapping) > MOST:
        yield Skipped(where=where, why=f"it has more than {MOST:,} messages")
        return
    began = times.of(talk.get("create_time"))
    yield Begin(native_id=id, began_at=began)
    yield Facts(fields=_fields(talk))
    yield from _Tree(talk, mapping, assets, began or files.changed_at(unit.path)).events(where)
    yield End()


def _fields(talk: Json) -> Json:
    kept = {name: talk[name] for name in _KEPT if talk.get(name)}
    return {
        "title": talk.get("title"),
        "model": shape.name(talk.get("default_model_slug")),
        "archived": talk.get("is_archived") is True,
        "pinned": talk.get("is_starred") is True or talk.get("pinned_time") is not None,
        "extra": {"chatgpt": kept} if kept else {},
    }


class _Tree:
    """The messages of one conversation, each way through them a branch."""

    def __init__(self, talk: Json, mapping: Json, assets: Assets, began: datetime) -> None:
        self._assets = assets
        self._began = began
        self._current = talk.get("current_node")
        self._nodes = {id: shape.record(node) for id, node in _by_time(mapping)}
        self._parents: dict[str, str | None] = {
            id: _parent(node, self._nodes) for id, node in self._nodes.items()
        }
        self._skipped = 0

    def events(self, where: str) -> Iterator[Event]:
        """What is to be said: the current way last."""
        messages = self._messages()
        gone = {id for id in self._parents if id not in messages}
        kept = trees.without(self._parents, gone)
        current = self._current if isinstance(self._current, str) else None
        while current in gone:
            gone.discard(current)
            current = self._parents.get(current)
        said = {id: [messages[id]] for id in kept}
        yield from trees.branches(kept, said, current=current, where=where)
        if self._skipped:
            yield Skipped(where=where, why=f"{self._skipped:,} nodes hold no message")

    def _messages(self) -> dict[str, Said]:
        """What each node says; a tool's answer belongs to the call above it."""
        found: dict[str, Said] = {}
        calls: dict[str, str | None] = {}
        at = self._began
        for id in _parents_first(self._parents):
            parent = self._parents[id]
            call = calls.get(parent or "")
            message = self._nodes[id].get("message")
            if message is not None and not isinstance(message, dict):
                self._skipped += 1
            made = None
            if isinstance(message, dict):
                at = times.of(message.get("create_time")) or at
                made = said(message, id=id, at=at, call=call, assets=self._assets)
            if made is not None:
                found[id] = made
            calls[id] = _call_of(made) or (call if made is None or made.role != "user" else None)
        return found


def _call_of(said: Said | None) -> str | None:
    if said is None:
        return None
    return next((part["id"] for part in said.parts if part["type"] == "tool_call"), None)


def _by_time(mapping: Json) -> list[tuple[str, object]]:
    def moment(item: tuple[str, object]) -> datetime:
        message = shape.record(shape.record(item[1]).get("message"))
        return times.of(message.get("create_time")) or _EPOCH

    return sorted(mapping.items(), key=moment)


def _parent(node: Json, nodes: Json) -> str | None:
    parent = node.get("parent")
    return parent if isinstance(parent, str) and parent in nodes else None


def _parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    done: set[str] = set()
    for each in parents:
        line: list[str] = []
        here: str | None = each
        while here is not None and here not in done:
            done.add(here)
            line.append(here)
            here = parents[here]
        yield from reversed(line)


IMPORTER = ChatGpt()
