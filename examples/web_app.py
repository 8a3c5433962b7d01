"""A FastAPI application: `uvicorn web_app:app --workers 2`, or `gunicorn --preload -k asgi -w 2 web_app:app`.

Each worker opens the store when it starts, after the fork. A client that was opened before a fork, by `--preload` for
instance, refuses to work in the child.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from sessionary import AsyncSessionary, Conflict


class NewMessage(BaseModel):
    """What a person writes."""

    text: str
    id: str | None = None


class Stored(BaseModel):
    """Where a message is stored, and by which worker."""

    session_id: str
    seq: int
    worker: int


@asynccontextmanager
async def lifespan(application: FastAPI) -> AsyncGenerator[None]:
    """Open the store for this worker, and close it when the worker stops."""
    async with AsyncSessionary() as s:
        application.state.sessionary = s
        yield


app = FastAPI(lifespan=lifespan)


def sessionary_of(request: Request) -> AsyncSessionary:
    """Return the client of this worker."""
    s = request.app.state.sessionary
    assert isinstance(s, AsyncSessionary)
    return s


Client = Annotated[AsyncSessionary, Depends(sessionary_of)]


@app.post("/chats/{name}/messages", status_code=201)
async def write(name: str, message: NewMessage, s: Client) -> Stored:
    """Store a message; the same id twice is stored once."""
    try:
        done = await s.session(name).append("user", message.text, idempotency_key=message.id)
    except Conflict as error:
        raise HTTPException(409, str(error)) from error
    return Stored(session_id=done.session_id, seq=done.seq, worker=os.getpid())


@app.get("/chats/{name}/messages")
async def read(name: str, s: Client) -> list[str]:
    """Return all messages of a conversation."""
    return [f"{message.role}: {message.text}" async for message in s.session(name).messages()]


@app.get("/search")
async def search(q: str, s: Client) -> list[str]:
    """Return the best hits."""
    page = await s.search(q, limit=10)
    return [hit.snippet for hit in page.items]
