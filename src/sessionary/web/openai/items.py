"""Items of conversations: found in the log by their ids, listed, and read from what a program sends."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from typing_extensions import TypedDict

from sessionary.actions.sessions import read
from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.formats.message_input import MessageInput
from sessionary.formats.openai_responses import (
    ItemName,
    ResponsesInput,
    entry_items,
    map_content,
    parse_item_id,
)
from sessionary.model import codec
from sessionary.model.message import MAX_SEQ, Entry, Message, Role
from sessionary.model.session import SessionFolder, SessionHead, clip
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions, turns
from sessionary.store.tables.files import StoredFile
from sessionary.web.context import Caller, WebContext
from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.files import find_files, named_files, with_file

MOST_LISTED = 100
# As many as a request may have messages, twice: what was thought and called is an item of its own.
MOST_ITEMS = 4096
_MOST_REFERENCES = 1000
_PAGE = 60
# How many entries of nobody's turn may stand between two of a turn: what is recorded while it waits for people.
_MOST_OTHERS = 200
_REFERENCE = "item_reference"


class ItemPage(TypedDict):
    """Items in the order that was asked for."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str
    """Empty in an empty list."""
    last_id: str
    has_more: bool


class ItemPlace(Struct, frozen=True):
    """An item of a conversation, the entry that it is made from, and its number among the items of that."""

    item: Json
    entry: Entry
    number: int
    items: tuple[Json, ...]

    @property
    def message(self) -> Message:
        """The message that it is made from."""
        assert isinstance(self.entry.body, Message)
        return self.entry.body


def find_item(
    tx: Tx,
    head: SessionHead,
    id: str,
    *,
    param: str = "item_id",
    known_steps: dict[str, list[Entry]] | None = None,
) -> ItemPlace:
    """Find an item of a conversation by its id; refuse an id that it does not have.

    `known_steps` keeps what was read of turns, by their ids, for the next item.
    """
    name = parse_item_id(id)
    known = {} if known_steps is None else known_steps
    entry, step = (None, None) if name is None else _find_entry(tx, head, name, known)
    if entry is not None:
        items = entry_items(entry, step)
        # A response shows an agent's own calls in another type.
        wanted = f"fc{id[3:]}" if name is not None and name.kind == "mcp" else id
        for number, item in enumerate(items):
            if item["id"] == wanted:
                return ItemPlace(item, entry, number, tuple(items))
    raise ApiError(404, f"There is no item {id[:80]!a} in this conversation.", param=param)


def _find_entry(
    tx: Tx, head: SessionHead, name: ItemName, known_steps: dict[str, list[Entry]]
) -> tuple[Entry | None, int | None]:
    """The entry that an item is named after, and its number in its turn."""
    if name.is_entry:
        if not 1 <= name.number <= head.last_seq:
            return None, None
        window = read.read_window(tx, head.id, profile=head.profile, after=name.number - 1, limit=1)
        found = next(iter(window.entries), None)
        if found is None or found.seq != name.number:
            return None, None
        return found, _steps_before(tx, head, found)
    if name.owner not in known_steps:
        known_steps[name.owner] = steps_of_turn(tx, head, name.owner)
    steps = known_steps[name.owner]
    return (steps[name.number], name.number) if name.number < len(steps) else (None, None)


def steps_of_turn(tx: Tx, head: SessionHead, turn_id: str, *, before: int = MAX_SEQ) -> list[Entry]:
    """What the agent has said in a turn of this conversation, in order, up to an entry."""
    return [
        each
        for each in entries_of_turn(tx, head, turn_id, before=before)
        if isinstance(each.body, Message) and each.body.role is Role.ASSISTANT
    ]


def entries_of_turn(
    tx: Tx, head: SessionHead, turn_id: str, *, before: int = MAX_SEQ
) -> list[Entry]:
    """The entries of a turn in the history of a conversation, in order."""
    found = turns.get(tx, codec.storable_text(turn_id), profile=head.profile)
    if found is None:
        return []
    made: list[Entry] = []
    segments = clip(sessions.segments(tx, head.no), max(1, found[0].first_seq), before - 1)
    others = 0
    for each in entries.walk(tx, segments):
        if each.turn_id == turn_id:
            made.append(each)
            others = 0
            continue
        others += 1
        if each.turn_id is not None or others > _MOST_OTHERS:
            break
    return made


def _steps_before(tx: Tx, head: SessionHead, entry: Entry) -> int | None:
    """The number of an entry among the steps of its turn; None if it has none."""
    if entry.turn_id is None:
        return None
    return len(steps_of_turn(tx, head, entry.turn_id, before=entry.seq))


def list_items(
    tx: Tx, head: SessionHead, *, after: str | None, limit: int, newest_first: bool
) -> ItemPage:
    """A page of a conversation's items behind one of them."""
    found: list[Json] = []
    seq = None
    if after is not None:
        place = find_item(tx, head, after, param="after")
        seq = place.entry.seq
        rest = place.items[: place.number] if newest_first else place.items[place.number + 1 :]
        found += reversed(rest) if newest_first else rest
    elif not newest_first:
        seq = 0
    more = True
    while more and len(found) <= limit:
        where = {"before": seq} if newest_first else {"after": seq}
        window = read.read_window(tx, head.id, profile=head.profile, limit=_PAGE, **where)
        items = _items_of(tx, head, window.entries)
        found += reversed(items) if newest_first else items
        more = window.more_before if newest_first else window.more_after
        if window.entries:
            seq = window.entries[0 if newest_first else -1].seq
    return page_of(found[:limit], has_more=len(found) > limit)


def _items_of(tx: Tx, head: SessionHead, found: Sequence[Entry]) -> list[Json]:
    items: list[Json] = []
    turn_id, step = None, 0
    for entry in found:
        if entry.turn_id is not None and entry.turn_id != turn_id:
            turn_id, step = entry.turn_id, _steps_before(tx, head, entry) or 0
        items += entry_items(entry, step)
        is_step = isinstance(entry.body, Message) and entry.body.role is Role.ASSISTANT
        step += is_step and entry.turn_id == turn_id
    return items


def page_of(data: list[Json], *, has_more: bool) -> ItemPage:
    """Items as a list is answered."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": has_more,
    }


class _Named(Struct, frozen=True):
    """What the items of an input name: files, and items of the record."""

    files: Mapping[str, StoredFile]
    items: Mapping[str, ItemPlace]


async def read_items(
    context: WebContext, caller: Caller, items: Sequence[Any], *, param: str
) -> list[MessageInput]:
    """Read the items that a program has sent as messages; refuse those that no model could read."""
    if len(items) > MOST_ITEMS:
        raise ApiError(400, f"Up to {MOST_ITEMS:,} items are taken.", param=param)
    contents = [coerce.record(item).get(name) for item in items for name in ("content", "output")]
    file_ids = {id for each in contents for id in named_files(coerce.items(each))}
    references = [id for item in items if (id := _referred(item)) is not None]
    named = _Named({}, {})
    if file_ids or references:
        now = context.clock.now()
        named = await context.store.read(
            _find_named, file_ids, references, profile=caller.profile, now=now, param=param
        )
    reader = ResponsesInput()
    for number, item in enumerate(map_content(items, partial(with_file, found=named.files))):
        place = named.items.get(_referred(item) or "")
        try:
            if place is None:
                reader.add(item)
            elif place.message.role is Role.ASSISTANT:
                reader.add(place.item)
            else:
                stored = place.message
                reader.add_message(MessageInput(Message(stored.role, stored.parts)))
        except BadInput as error:
            raise ApiError(400, str(error), param=f"{param}[{number}]") from error
    return reader.messages


def _referred(item: Any) -> str | None:
    given = coerce.record(item)
    is_reference = given.get("type") == _REFERENCE or set(given) == {"id"}
    return coerce.name(given.get("id")) if is_reference else None


def _find_named(
    tx: Tx,
    file_ids: set[str],
    references: Sequence[str],
    *,
    profile: str,
    now: datetime,
    param: str,
) -> _Named:
    if len(references) > _MOST_REFERENCES:
        raise ApiError(400, f"Up to {_MOST_REFERENCES:,} items are referred to.", param=param)
    heads: dict[str, SessionHead | None] = {}
    steps: dict[str, list[Entry]] = {}
    places: dict[str, ItemPlace] = {}
    for id in references:
        name = parse_item_id(id)
        head = None
        if name is not None:
            if name.owner not in heads:
                heads[name.owner] = _head_of(tx, name, profile=profile)
            head = heads[name.owner]
        if head is None:
            raise ApiError(404, f"There is no item {id[:80]!a}.", param=param)
        places[id] = find_item(tx, head, id, param=param, known_steps=steps)
    return _Named(find_files(tx, file_ids, profile=profile, now=now), places)


def _head_of(tx: Tx, name: ItemName, *, profile: str) -> SessionHead | None:
    """The session that an item was written in."""
    session_id = name.owner
    if not name.is_entry:
        turn = turns.get(tx, codec.storable_text(name.owner), profile=profile)
        session_id = "" if turn is None else turn[0].session_id
    head = sessions.get(tx, codec.storable_text(session_id), profile=profile)
    is_there = head is not None and head.folder is not SessionFolder.GONE and not head.trashed_at
    return head if is_there else None
