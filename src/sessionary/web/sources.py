"""`/sources` and `/models`: what the sessions of a list can be narrowed by."""

from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response

from sessionary.actions import counting
from sessionary.errors import BadInput
from sessionary.model.session import Shelf
from sessionary.web.answers import items
from sessionary.web.auth import EngineContext, Reader
from sessionary.web.parts import PREFIX

router = APIRouter(prefix=PREFIX, tags=["sessions"])


@router.get("/sources")
async def count(
    parts: EngineContext, caller: Reader, shelf: Shelf | Literal["all"] = Shelf.CHATS
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


@router.get("/models")
async def list_models(parts: EngineContext, caller: Reader) -> Response:
    """Every model that a session of this profile has, purged sessions aside."""
    found = await parts.store.read(counting.models, profile=caller.profile)
    return items({"model": each} for each in found)
