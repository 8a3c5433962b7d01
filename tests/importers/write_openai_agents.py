"""Fills databases with the sessions of OpenAI's Agents SDK itself."""

import asyncio
import base64
from pathlib import Path
from typing import Any

from agents.extensions.memory import AdvancedSQLiteSession

from agents import SQLiteSession

Json = dict[str, Any]
PICTURE = b"\x89PNG\r\n\x1a\n a picture of an ox"


def add(path: Path, id: str, *items: Json) -> None:
    """What a run adds to a plain session."""
    session = SQLiteSession(id, path)
    asyncio.run(session.add_items(list(items)))  # type: ignore[arg-type]
    session.close()


def branch(path: Path, id: str, first: list[Json], *, turn: int, second: list[Json]) -> None:
    """A run of an advanced session, and another that begins at one of its turns."""

    async def fill() -> None:
        session = AdvancedSQLiteSession(session_id=id, db_path=path, create_tables=True)
        await session.add_items(first)  # type: ignore[arg-type]
        await session.create_branch_from_turn(turn)
        await session.add_items(second)  # type: ignore[arg-type]
        session.close()

    asyncio.run(fill())


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def reply(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "status": "completed",
        "content": content,
    }


def a_day_at_the_mill() -> list[Json]:
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    asked = [
        {"type": "input_text", "text": "What is in a.txt?"},
        {"type": "input_image", "image_url": url},
    ]
    return [
        {"role": "user", "content": asked},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "I read it"}],
        },
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"path": "a.txt"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "flour"},
        reply("Flour."),
        {"type": "novelty", "what": 1},
    ]
