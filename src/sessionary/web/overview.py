"""`/sessions/ID/overview` and `/children`: a session at a glance, and its family."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from sessionary.actions.upkeep import overview
from sessionary.actions.upkeep.overview import Overview
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web import heads
from sessionary.web.answers import items, json_response, name
from sessionary.web.auth import EngineContext, Reader
from sessionary.web.parts import PREFIX

router = APIRouter(prefix=f"{PREFIX}/sessions/{{session_id}}", tags=["sessions"])


@router.get("/overview")
async def show(session_id: str, parts: EngineContext, caller: Reader) -> Response:
    """What was asked, which files were touched, how full the context is, and the family."""
    known = name(session_id, "session")
    engine = parts.engine
    is_ours = engine is not None and engine.context.profile == caller.profile
    threshold = (
        engine.context.settings.compact_at_tokens if engine is not None and is_ours else None
    )

    def look(tx: Tx) -> dict[str, Any]:
        found = overview.overview(tx, known, profile=caller.profile)
        return _shown(tx, found, threshold)

    return json_response(await parts.store.read(look))


@router.get("/children")
async def list_children(session_id: str, parts: EngineContext, caller: Reader) -> Response:
    """The sessions that came from this one: forks, continuations, subagents."""
    known = name(session_id, "session")
    return items(await parts.store.read(heads.children, known, profile=caller.profile))


def _shown(tx: Tx, found: Overview, threshold: int | None) -> dict[str, Any]:
    return {
        "prompts": [
            {"seq": each.seq, "text": each.text, "at": time_text(each.at)} for each in found.prompts
        ],
        "files": [
            {"path": each.path, "changed": each.changed, "seq": each.seq} for each in found.files
        ],
        "context": {
            "used": sum(found.sizes.values()),
            "by_kind": dict(found.sizes),
            "compacts_at": threshold,
            "status": "estimate",
        },
        "ancestors": heads.listed(tx, found.ancestors),
        "children": heads.listed(tx, found.children),
    }
