"""An agent of Google's Agent Development Kit on a session service of ours."""

import logging
import os
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.genai import types

from sessionary import Sessionary
from sessionary.integrations.google_adk import SessionarySessionService
from tests.integrations.programs.common import Task, main


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    logging.disable(logging.WARNING)
    os.environ["GOOGLE_API_KEY"] = "none"
    service = SessionarySessionService(store_client)
    where: dict[str, Any] = {"app_name": "guide", "user_id": "ada", "session_id": task.name}
    if await service.get_session(**where) is None:
        await service.create_session(**where, state={"user:name": "Ada"})

    async def weather(city: str) -> str:
        """The weather in a city."""
        return await task.weather(city)

    agent = LlmAgent(
        name="guide",
        model=Gemini(model="gemini-2.5-flash", base_url=task.model),
        instruction="You are a guide.",
        tools=[weather],
    )
    runner = Runner(app_name="guide", agent=agent, session_service=service)
    answers = []
    for prompt in task.prompts:
        content = types.Content(role="user", parts=[types.Part(text=prompt)])
        run = runner.run_async(user_id="ada", session_id=task.name, new_message=content)
        texts = [
            part.text
            async for event in run
            for part in (event.content and event.content.parts) or ()
            if part.text
        ]
        answers.append(texts[-1])
    return answers


if __name__ == "__main__":
    main(converse)
