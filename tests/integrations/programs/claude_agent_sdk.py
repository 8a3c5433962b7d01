"""An agent of the Claude Agent SDK, whose transcripts are mirrored into our store.

The program that the SDK brings runs for real. It has a home of its own and talks to the fake model
server alone.
"""

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
    project_key_for_directory,
    tool,
)

from sessionary import Sessionary
from sessionary.integrations.claude_agent_sdk import SessionarySessionStore
from tests.integrations.programs.common import Task, main


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    @tool("weather", "The weather in a city.", {"city": str})
    async def weather(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await task.weather(given["city"])}]}

    # Beside the store that is a file: the same in both processes, and gone with the test.
    folder = Path(task.urls[0].removeprefix("sqlite:///")).parent
    workplace = folder / "workplace"
    workplace.mkdir(exist_ok=True)
    home = tempfile.mkdtemp(dir=folder)
    id = str(uuid.uuid5(uuid.NAMESPACE_URL, task.name))
    store = SessionarySessionStore(store_client)
    project = project_key_for_directory(str(workplace))
    is_known = any(each["session_id"] == id for each in await store.list_sessions(project))
    options = ClaudeAgentOptions(
        session_store=store,
        session_store_flush="eager",
        **({"resume": id} if is_known else {"session_id": id}),  # type: ignore[arg-type]
        cwd=workplace,
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
    async with ClaudeSDKClient(options) as client:
        for prompt in task.prompts:
            await client.query(prompt)
            messages = [message async for message in client.receive_response()]
            answers.append(_last_text(messages))
    return answers


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
