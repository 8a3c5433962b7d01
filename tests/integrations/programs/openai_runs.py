"""An agent of the OpenAI Agents SDK that stores its run with its session; each run of this program goes on with it."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from sessionary import Sessionary
from sessionary.integrations.openai_agents import SessionarySession
from tests.integrations.programs.common import MODEL


async def main(task: dict[str, str]) -> None:
    """Ask the agent, or go on with the run that waits; `die` says where to be killed."""

    def reach(point: str) -> None:
        if point == task["die"]:
            os.kill(os.getpid(), signal.SIGKILL)

    @function_tool(needs_approval=True)
    def weather(city: str) -> str:
        """The weather in a city."""
        with Path(task["ran"]).open("a", encoding="utf-8") as lines:
            lines.write(f"{city}\n")
        return f"{city}: 21 degrees"

    set_tracing_disabled(True)
    openai_client: Any = AsyncOpenAI(base_url=f"{task['model']}/v1", api_key="none")
    agent = Agent(
        name="guide", model=OpenAIChatCompletionsModel(MODEL, openai_client), tools=[weather]
    )
    with Sessionary(task["url"]) as client:
        session = SessionarySession("alice", client)
        state = await session.load_run(agent)
        if state is None:
            result = await Runner.run(agent, "How is the weather in Faro?", session=session)
        else:
            for item in state.get_interruptions():
                state.approve(item)
            result = await Runner.run(agent, state, session=session)
        if result.interruptions:
            await session.save_run(result)
            reach("while it waits")
        else:
            reach("before it is deleted")
            await session.delete_run()
            print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
