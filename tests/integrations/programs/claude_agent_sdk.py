"""An agent of the Claude Agent SDK, whose transcripts are mirrored into our store.

The program that the SDK brings runs for real. It has a home of its own and talks to the fake model
server alone.
"""

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    TextBlock,
    create_sdk_mcp_server,
    tool,
)

from hansard.app.house import House
from hansard.integrations.claude_agent_sdk import HansardSessionStore
from tests.integrations.programs.common import Task, main

# The same directory in both processes: transcripts are filed under it.
WORKPLACE = Path(tempfile.gettempdir()) / "hansard-claude-workplace"


async def converse(task: Task, house: House) -> list[str]:
    @tool("weather", "The weather in a city.", {"city": str})
    async def weather(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await task.weather(given["city"])}]}

    home = tempfile.mkdtemp(prefix="hansard-claude-")
    WORKPLACE.mkdir(exist_ok=True)
    id = str(uuid.uuid5(uuid.NAMESPACE_URL, task.name))
    store = HansardSessionStore(house)
    is_known = any(each["session_id"] == id for each in await store.list_sessions(_project()))
    options = ClaudeAgentOptions(
        session_store=store,
        session_store_flush="eager",
        **({"resume": id} if is_known else {"session_id": id}),  # type: ignore[arg-type]
        cwd=WORKPLACE,
        model="claude-haiku-4-5",
        mcp_servers={"tools": create_sdk_mcp_server("tools", tools=[weather])},
        allowed_tools=["mcp__tools__weather"],
        tools=[],
        system_prompt="You are a guide.",
        setting_sources=[],
        env={
            "HOME": home,
            "CLAUDE_CONFIG_DIR": f"{home}/.claude",
            "ANTHROPIC_BASE_URL": task.model,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    )
    answers = []
    try:
        async with ClaudeSDKClient(options) as client:
            for prompt in task.prompts:
                await client.query(prompt)
                said = [message async for message in client.receive_response()]
                answers.append(_last_text(said))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return answers


def _project() -> str:
    from claude_agent_sdk import project_key_for_directory

    return project_key_for_directory(str(WORKPLACE))


def _last_text(messages: list[Any]) -> str:
    texts = [
        block.text
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return texts[-1] if texts else ""


if __name__ == "__main__":
    main(converse)
