"""`/v1/conversations`: the sessions of the record, with their entries as items."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from msgspec import Struct, field
from typing_extensions import TypedDict

from sessionary.actions import files
from sessionary.actions.sessions import append as append_action
from sessionary.actions.sessions import edit, log, read, revise
from sessionary.errors import Conflict
from sessionary.formats.coerce import Json
from sessionary.formats.message_input import MessageInput
from sessionary.formats.openai_responses import entry_items
from sessionary.model import codec
from sessionary.model.message import Entry
from sessionary.model.session import Opening, SessionFolder, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import Caller, WebContext
from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.exchange import source_of
from sessionary.web.openai.items import (
    MOST_LISTED,
    ItemPage,
    find_item,
    list_items,
    page_of,
    read_items,
)
from sessionary.web.responses import StoredAnswer, answer, change, json_response
from sessionary.web.routing import FromBody, FromOptionalBody, JsonAnswer, api_router

router = api_router(prefix="/v1", include_in_schema=False)
PREFIX = "conv_"
# Under this name the `extra` of a session has what programs keep with it by this interface.
KEPT_AS = "openai"
MOST_ITEMS = 20
_MOST_PAIRS, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512
_LONGEST_ID = 300
ConversationId = Annotated[
    str, Path(description="The conversation's id: `conv_` and the session's id, or that alone.")
]
ItemId = Annotated[str, Path(description="The item's id.")]
Order = Literal["asc", "desc"]


class ConversationInfo(TypedDict):
    """A conversation."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ConversationDeleted(TypedDict):
    """A conversation that was moved to the trash."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


class NewConversation(Struct, kw_only=True):
    """What a conversation begins with."""

    items: list[Json] | None = None
    metadata: dict[str, Any] | None = None


class NewMetadata(Struct, kw_only=True):
    """What is kept with a conversation, instead of what was."""

    metadata: dict[str, Any] | None = None


class NewItems(Struct, kw_only=True):
    """Items to append."""

    items: list[Json] = field(default_factory=list)


@router.post("/conversations")
async def create_conversation(
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromOptionalBody[NewConversation],
) -> JsonAnswer[ConversationInfo]:
    """Begin a conversation, with up to 20 items."""
    metadata = checked_metadata(body.metadata)
    messages = await _read_new_items(context, caller, body.items or [])
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[ConversationInfo]:
        extra = {KEPT_AS: {"metadata": metadata}} if metadata else {}
        opening = Opening(caller.profile, source_of(caller, None), extra=extra)
        head = edit.open_with_id(tx, moment.new_id(), opening, moment=moment)
        _append(tx, head, messages, context, caller)
        return answer(_told(tx, head), session_id=head.id)

    return await change(request, caller, apply)


@router.get("/conversations/{conversation_id}")
async def get_conversation(
    conversation_id: ConversationId, context: ContextDep, caller: Reader
) -> JsonAnswer[ConversationInfo]:
    """Get a conversation."""

    def look(tx: Tx) -> ConversationInfo:
        return _told(tx, find_conversation(tx, conversation_id, profile=caller.profile))

    return json_response(await context.store.read(look))


@router.post("/conversations/{conversation_id}")
async def update_conversation(
    conversation_id: ConversationId,
    request: Request,
    caller: Writer,
    body: FromBody[NewMetadata],
) -> JsonAnswer[ConversationInfo]:
    """Replace the metadata of a conversation."""
    metadata = checked_metadata(body.metadata)

    def apply(tx: Tx) -> StoredAnswer[ConversationInfo]:
        head = find_conversation(tx, conversation_id, profile=caller.profile)
        edit.update_extra(tx, head, KEPT_AS, lambda kept: kept | {"metadata": metadata})
        return answer(_told(tx, head), session_id=head.id)

    return await change(request, caller, apply)


@router.delete("/conversations/{conversation_id}")
async def delete_conversation(
    conversation_id: ConversationId, request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[ConversationDeleted]:
    """Move a conversation to the trash, from which people can restore it for a time."""
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[ConversationDeleted]:
        head = find_conversation(tx, conversation_id, profile=caller.profile)
        edit.trash(tx, head.id, profile=caller.profile, moment=moment)
        told = ConversationDeleted(
            id=conversation_name(head.id), object="conversation.deleted", deleted=True
        )
        return answer(told, session_id=head.id)

    return await change(request, caller, apply)


@router.get("/conversations/{conversation_id}/items")
async def list_conversation_items(
    conversation_id: ConversationId,
    context: ContextDep,
    caller: Reader,
    after: Annotated[str | None, Query(max_length=_LONGEST_ID)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 20,
    order: Annotated[Order, Query()] = "desc",
) -> JsonAnswer[ItemPage]:
    """List the items of a conversation, the newest first."""

    def look(tx: Tx) -> ItemPage:
        head = find_conversation(tx, conversation_id, profile=caller.profile)
        return list_items(tx, head, after=after, limit=limit, newest_first=order == "desc")

    return json_response(await context.store.read(look))


@router.post("/conversations/{conversation_id}/items")
async def create_conversation_items(
    conversation_id: ConversationId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[NewItems],
) -> JsonAnswer[ItemPage]:
    """Append up to 20 items to a conversation; no agent answers."""
    if not body.items:
        raise ApiError(400, "There are no items.", param="items")
    messages = await _read_new_items(context, caller, body.items)

    def apply(tx: Tx) -> StoredAnswer[ItemPage]:
        head = find_conversation(tx, conversation_id, profile=caller.profile)
        made = _append(tx, head, messages, context, caller)
        data = [item for each in made for item in entry_items(each)]
        return answer(page_of(data, has_more=False), session_id=head.id)

    return await change(request, caller, apply)


@router.get("/conversations/{conversation_id}/items/{item_id}")
async def get_conversation_item(
    conversation_id: ConversationId, item_id: ItemId, context: ContextDep, caller: Reader
) -> JsonAnswer[dict[str, Any]]:
    """Get one item of a conversation."""

    def look(tx: Tx) -> Json:
        head = find_conversation(tx, conversation_id, profile=caller.profile)
        return find_item(tx, head, item_id).item

    return json_response(await context.store.read(look))


@router.delete("/conversations/{conversation_id}/items/{item_id}")
async def delete_conversation_item(
    conversation_id: ConversationId,
    item_id: ItemId,
    request: Request,
    context: ContextDep,
    caller: Writer,
) -> JsonAnswer[ConversationInfo]:
    """Take back the newest message of a conversation, by any of its items.

    The log is append-only: what stands before other messages cannot be taken out of it.
    """
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[ConversationInfo]:
        head = find_conversation(tx, conversation_id, profile=caller.profile)
        head = log.lock_session(tx, head.id, profile=caller.profile)
        place = find_item(tx, head, item_id)
        window = read.read_window(tx, head.id, profile=head.profile, after=place.entry.seq, limit=1)
        if window.entries:
            raise Conflict(
                f"Item {item_id[:80]!a} is not the newest: only the newest message of a conversation can be taken "
                "back. Nothing was changed. Continue from an earlier response instead, which forks it there."
            )
        revise.retract(
            tx,
            head.id,
            profile=head.profile,
            after=place.entry.seq - 1,
            at=moment.now,
            reason="deleted",
        )
        return answer(_told(tx, head), session_id=head.id)

    return await change(request, caller, apply)


def conversation_name(session_id: str) -> str:
    """The id of a conversation: `conv_` and the session's id."""
    return PREFIX + session_id


def find_conversation(
    tx: Tx, id: str, *, profile: str, param: str = "conversation_id"
) -> SessionHead:
    """The session of a conversation, by its id or by the session's own; not one in the trash."""
    known = codec.storable_text(id[:_LONGEST_ID])
    head = sessions.get(tx, known.removeprefix(PREFIX), profile=profile)
    if head is None and known.startswith(PREFIX):
        head = sessions.get(tx, known, profile=profile)
    if head is None or head.folder is SessionFolder.GONE or head.trashed_at is not None:
        raise ApiError(404, f"There is no conversation {id[:80]!a}.", param=param)
    return head


def named_session(given: Mapping[str, Any]) -> str | None:
    """The session that a request names: the first that is given of these, by the parameters that may name it."""
    for param, value in given.items():
        name = value.get("id") if isinstance(value, dict) else value
        if name is None or name == "":
            continue
        # A conversation is a session, too.
        name = codec.storable_text(name).removeprefix(PREFIX) if isinstance(name, str) else ""
        if not 0 < len(name) <= edit.MAX_ID:
            raise ApiError(
                400,
                f"A session is named by a text of 1 to {edit.MAX_ID} characters; nothing was stored.",
                code="invalid_value",
                param=param,
            )
        return name
    return None


def checked_metadata(given: Any, param: str = "metadata") -> dict[str, str]:
    """Up to 16 pairs of short texts; refuse anything else."""
    if given is None:
        return {}
    is_fine = (
        isinstance(given, dict)
        and len(given) <= _MOST_PAIRS
        and all(
            isinstance(value, str) and len(key) <= _LONGEST_KEY and len(value) <= _LONGEST_VALUE
            for key, value in given.items()
        )
    )
    if not is_fine:
        raise ApiError(
            400,
            f"Metadata has at most {_MOST_PAIRS} pairs of texts, with keys of up to {_LONGEST_KEY} and values of up "
            f"to {_LONGEST_VALUE} characters.",
            param=param,
        )
    return {codec.storable_text(key): codec.storable_text(text) for key, text in given.items()}


def _told(tx: Tx, head: SessionHead) -> ConversationInfo:
    kept = sessions.details(tx, head.no).extra.get(KEPT_AS)
    metadata = kept.get("metadata") if isinstance(kept, dict) else None
    return {
        "id": conversation_name(head.id),
        "object": "conversation",
        "created_at": int(head.began_at.timestamp()),
        "metadata": metadata if isinstance(metadata, dict) else {},
    }


async def _read_new_items(
    context: WebContext, caller: Caller, items: Sequence[Json]
) -> list[MessageInput]:
    if len(items) > MOST_ITEMS:
        raise ApiError(400, f"Up to {MOST_ITEMS} items are added at a time.", param="items")
    return await read_items(context, caller, items, param="items")


def _append(
    tx: Tx,
    head: SessionHead,
    messages: Sequence[MessageInput],
    context: WebContext,
    caller: Caller,
) -> list[Entry]:
    made = []
    for each in messages:
        moment = context.moment()
        files.keep_files(tx, each.message, each.files, profile=caller.profile, moment=moment)
        new = append_action.NewMessage(each.message)
        done = append_action.append_to_session(
            tx, head.id, new, profile=caller.profile, moment=moment
        )
        made.append(Entry(done.session_id, done.seq, moment.now, each.message))
    return made
