"""The outbox as an adapter sees it: the files of deliveries, and news that come late."""

from collections.abc import Sequence

from sessionary.actions import blobs, deliver, moving, places, read
from sessionary.actions.moving import Move
from sessionary.engine.context import EngineContext
from sessionary.errors import NotFound
from sessionary.model.delivery import Delivery
from sessionary.model.source import Channel
from sessionary.store.database import Tx

_LONGEST_REASON = 500


class PlatformServices:
    """The desk of one platform's adapter."""

    def __init__(self, context: EngineContext, platform: str) -> None:
        self._context = context
        self._platform = platform

    async def blob(self, delivery: Delivery, name: str) -> bytes:
        """The bytes of a file, if the session that the delivery comes from has it."""
        return await self._context.store.read(_blob_of, delivery, name)

    async def bounced(self, delivery_id: str, reason: str) -> None:
        """Show the delivery as abandoned, with the reason."""
        await self._context.store.write(
            deliver.bounce,
            delivery_id,
            profile=self._context.profile,
            platform=self._platform,
            reason=reason[:_LONGEST_REASON],
        )

    async def moved(self, old: str, new: str) -> None:
        """Let the conversations of the chat go on under its new id."""
        move = Move(self._platform, old, new)
        context = self._context
        await context.store.write(
            moving.move_chat, move, profile=context.profile, moment=context.moment()
        )

    async def place(self) -> str | None:
        """How far the platform was read."""
        context = self._context
        return await context.store.read(places.place, self._platform, profile=context.profile)

    async def keep_place(self, place: str) -> None:
        """Everything up to here is durable."""
        context = self._context
        await context.store.write(places.keep_place, self._platform, place, profile=context.profile)

    async def chats(self, *, most: int) -> Sequence[Channel]:
        """The channels that have a conversation."""
        context = self._context
        return await context.store.read(
            places.chats, self._platform, profile=context.profile, most=most
        )


def _blob_of(tx: Tx, delivery: Delivery, name: str) -> bytes:
    if delivery.session_id is None:
        raise NotFound(f"Delivery {delivery.id} comes from no session.")
    head = read.head(tx, delivery.session_id, profile=delivery.profile)
    return blobs.read_blob(tx, name, session_no=head.no)
