"""An agent of the OpenAI Agents SDK whose tool must be approved; each run of this program goes on with its turn."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    RunResult,
    function_tool,
    set_tracing_disabled,
)
from sessionary import AsyncRunningTurn, AsyncSessionary
from sessionary.integrations.openai_agents import park_run, resume_run
from tests.integrations.programs.common import MODEL


async def main(task: dict[str, str]) -> None:
    """Ask the agent, or go on with what it asked; `die` says where to be killed."""

    def reach(point: str) -> None:
        if point == task["die"]:
            os.kill(os.getpid(), signal.SIGKILL)

    @function_tool(needs_approval=True)
    def weather(city: str) -> str:
        """The weather in a city."""
        reach("before the tool")
        with Path(task["ran"]).open("a", encoding="utf-8") as lines:
            lines.write(f"{city}\n")
        reach("after the tool")
        return f"{city}: 21 degrees"

    async def finish(turn: AsyncRunningTurn, result: RunResult) -> None:
        if result.interruptions:
            await park_run(turn, result)
            reach("while it waits")
        else:
            await turn.append("assistant", str(result.final_output))

    set_tracing_disabled(True)
    openai_client: Any = AsyncOpenAI(base_url=f"{task['model']}/v1", api_key="none")
    model = OpenAIChatCompletionsModel(MODEL, openai_client)
    agent = Agent(name="guide", model=model, tools=[weather])
    async with AsyncSessionary(task["url"]) as client:
        chat = client.session("alice")
        if await chat.exists():
            async with chat.resume_turn() as turn:
                await finish(turn, await Runner.run(agent, await resume_run(turn, agent)))
        else:
            async with chat.turn("How is the weather in Faro?") as turn:
                await finish(turn, await Runner.run(agent, "How is the weather in Faro?"))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
