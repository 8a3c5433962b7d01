"""`/sources`: where sessions came from, and how many stand where."""

from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response

from hansard.actions import counting
from hansard.errors import BadInput
from hansard.model.session import Shelf
from hansard.web.answers import items
from hansard.web.auth import Parts, Reader

router = APIRouter(tags=["sessions"])


@router.get("/sources")
async def count(
    parts: Parts, caller: Reader, shelf: Shelf | Literal["all"] = Shelf.CHATS
) -> Response:
    """Sessions by source on a shelf, and by shelf; `most` means «so many or more»."""
    if shelf == Shelf.GONE:
        raise BadInput("What was purged is in no list.")
    shelves = (Shelf.CHATS, Shelf.AUTOMATION) if shelf == "all" else (Shelf(shelf),)
    found = await parts.store.read(counting.counts, shelves, profile=caller.profile)
    sources = sorted(found.sources.items(), key=lambda each: (-each[1], each[0]))
    return items(
        ({"platform": platform, "sessions": number} for platform, number in sources),
        shelves={str(shelf): number for shelf, number in found.shelves.items()},
        most=counting.MOST,
    )
