"""Calls a model as Open WebUI does: its own router, with its settings in its own database.

Runs in an environment that has Open WebUI. Arguments: the URL, the key and the headers of the connection, as a person
enters them in Open WebUI's settings. Prints one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

import open_webui.routers.openai as router
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from open_webui.models.config import Config
from open_webui.models.users import UserModel
from open_webui.utils.auth import get_verified_user
from open_webui.utils.session_pool import close_session

CHAT = {"chat_id": "c-1", "message_id": "m-1"}
PERSON = UserModel(
    id="u-1",
    email="anna@example.org",
    name="Anna",
    role="admin",
    profile_image_url="",
    last_active_at=1,
    updated_at=1,
    created_at=1,
)


def main() -> None:
    """Enter a connection, list its models, and chat: whole, streamed, and a title for the chat."""
    url, key, headers = sys.argv[1:]
    app = FastAPI()
    app.state.OPENAI_MODELS = {}
    app.include_router(router.router, prefix="/openai")
    app.dependency_overrides[get_verified_user] = lambda: PERSON

    @app.post("/settings")
    async def settings(request: Request) -> None:
        await Config.upsert(await request.json())

    @app.post("/chat")
    async def chat(request: Request) -> Any:
        return await router.generate_chat_completion(request, await request.json(), PERSON)

    @app.on_event("shutdown")
    async def close() -> None:
        await close_session()
        await asyncio.sleep(0)

    with TestClient(app) as client:
        connection = {
            "openai.enable": True,
            "openai.api_base_urls": [url],
            "openai.api_keys": [key],
            "openai.api_configs": {"0": {"headers": json.loads(headers)}},
        }
        client.post("/settings", json=connection).raise_for_status()
        models = client.get("/openai/models").json()
        talk = [{"role": "user", "content": "What is the capital of Portugal?"}]
        asked = {"model": "assistant", "metadata": CHAT}
        whole = client.post("/chat", json={**asked, "messages": talk}).json()
        talk += [whole["choices"][0]["message"], {"role": "user", "content": "And of Spain?"}]
        streamed = client.post("/chat", json={**asked, "messages": talk, "stream": True}).text
        task = {**asked, "metadata": {**CHAT, "task": "title_generation"}}
        question = [{"role": "user", "content": "Find a title for this chat."}]
        title = client.post("/chat", json={**task, "messages": question}).json()
    answers = {
        "models": [each["id"] for each in models["data"]],
        "whole": whole["choices"][0]["message"]["content"],
        "streamed": streamed,
        "title": title["choices"][0]["message"]["content"],
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
