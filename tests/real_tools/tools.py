"""The tools that are run for real: how each is installed and started, and where its records are."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.model_server import Ask, Call, Reply, Tokens

Json = dict[str, Any]
HOME = Path("/home/ann")
PROJECT = HOME / "mill"


@dataclass(frozen=True)
class Start:
    """One start of a program: its arguments, and what the model answers meanwhile."""

    arguments: tuple[str, ...]
    answers: tuple[Reply, ...]
    prompt: str
    # What the agents that it starts are asked.
    asked: tuple[str, ...] = ()
    # Whether the answers compact the conversation: a tool keeps the summary, and not the call.
    is_compaction: bool = False


@dataclass(frozen=True)
class Tool:
    """How a tool is installed and run; `{…}` in its texts is filled in when it runs."""

    name: str
    importer: str
    package: str
    program: str
    starts: tuple[Start, ...]
    registry: str = "npm"
    environment: Mapping[str, str] = field(default_factory=dict)
    # Files of its configuration, below the home directory.
    files: Mapping[str, str] = field(default_factory=dict)
    # Where its records are, below the home directory.
    record: str = ""
    # Whether a request is the conversation's own, and not for a title or the like.
    is_main: Callable[[Ask], bool] = lambda ask: bool(ask.body.get("tools"))
    # Whether it notes the tokens that the model's server tells, and not some count of its own.
    has_tokens: bool = True
    # What the docs say besides.
    remark: str = ""
    # What becomes a record for the ordinary tests: files below the home directory, and the tables of databases.
    kept: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def tokens(number: int) -> Tokens:
    """Different for each answer, so that one counted twice or never is seen."""
    return Tokens(fresh=100 + number, cache_read=10 + number, output=20 + number)


def says(text: str, number: int) -> Reply:
    """An answer in words."""
    return Reply(text, tokens=tokens(number))


def calls(name: str, arguments: Mapping[str, Any], number: int, *, text: str = "") -> Reply:
    """An answer that asks for one tool."""
    call = Call(name, arguments, f"call_{number}")
    return Reply(text, calls=(call,), tokens=tokens(number))


def day(
    first: tuple[str, ...],
    again: tuple[str, ...],
    *,
    read: tuple[str, Json],
    run: tuple[str, Json],
    edit: tuple[str, Json],
) -> tuple[Start, ...]:
    """Read a file and run a command; then, started again, edit the file."""
    return (
        Start(
            first,
            (
                calls(*read, 1, text="I read the notes."),
                calls(*run, 2),
                says("The notes say flour and water.", 3),
            ),
            "What is in notes.txt?",
        ),
        Start(
            again,
            (calls(*edit, 4), says("Salt is on the list now.", 5)),
            "Put salt on the list.",
        ),
    )


NOTES_FILE = f"{PROJECT}/notes.txt"
TOOLS = (
    Tool(
        "Claude Code",
        "claude-code",
        "@anthropic-ai/claude-code",
        "claude",
        (
            *day(
                ("-p", "{prompt}", "--allowedTools", "Read,Bash,Edit,Task,Agent"),
                ("-p", "{prompt}", "--continue", "--allowedTools", "Read,Bash,Edit"),
                read=("Read", {"file_path": NOTES_FILE}),
                run=("Bash", {"command": "wc -l notes.txt", "description": "Count lines"}),
                edit=(
                    "Edit",
                    {"file_path": NOTES_FILE, "old_string": "water", "new_string": "water\nsalt"},
                ),
            ),
            Start(
                ("-p", "{prompt}", "--continue", "--allowedTools", "Read,Task,Agent"),
                (
                    calls(
                        "Agent",
                        {
                            "description": "Weigh the flour",
                            "prompt": "How much flour is there?",
                            "subagent_type": "general-purpose",
                            "run_in_background": False,
                        },
                        6,
                    ),
                    calls("Read", {"file_path": NOTES_FILE}, 7),
                    says("Two sacks of flour.", 8),
                    says("There are two sacks.", 9),
                ),
                "Let an agent weigh the flour.",
                ("How much flour is there?",),
            ),
            Start(
                ("-p", "{prompt}", "--continue", "--fork-session"),
                (says("Yes, that is all.", 10),),
                "Is that all?",
            ),
            Start(
                ("-p", "{prompt}", "--continue"),
                (says("<summary>The notes list flour, water and salt.</summary>", 11),),
                "/compact",
                is_compaction=True,
            ),
            Start(
                ("-p", "{prompt}", "--continue"),
                (says("Flour, water and salt.", 12),),
                "What do we need?",
            ),
        ),
        environment={
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "ANTHROPIC_MODEL": "claude-sonnet-4-5",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        record=".claude/projects",
        remark="an agent, a fork and a compaction included; the call that writes a compaction is not in its files",
        kept=(".claude/projects/**/*",),
    ),
    Tool(
        "Codex",
        "codex",
        "@openai/codex",
        "codex",
        day(
            ("exec", "--skip-git-repo-check", "-s", "danger-full-access", "{prompt}"),
            (
                "exec",
                "--skip-git-repo-check",
                "-s",
                "danger-full-access",
                "resume",
                "--last",
                "{prompt}",
            ),
            read=("exec_command", {"cmd": "cat notes.txt"}),
            run=("exec_command", {"cmd": "wc -l notes.txt"}),
            edit=("exec_command", {"cmd": "echo salt >> notes.txt"}),
        ),
        environment={"FAKE_KEY": "sk-fake"},
        files={
            ".codex/config.toml": 'model = "gpt-5"\nmodel_provider = "fake"\n[model_providers.fake]\n'
            'name = "fake"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
        },
        record=".codex",
        kept=(".codex/sessions/**/*.jsonl",),
    ),
    Tool(
        "Gemini CLI",
        "gemini-cli",
        "@google/gemini-cli",
        "gemini",
        day(
            ("--yolo", "-p", "{prompt}"),
            ("--yolo", "--resume", "latest", "-p", "{prompt}"),
            read=("read_file", {"file_path": NOTES_FILE}),
            run=("run_shell_command", {"command": "wc -l notes.txt"}),
            edit=(
                "replace",
                {
                    "file_path": NOTES_FILE,
                    "instruction": "Add salt.",
                    "old_string": "water",
                    "new_string": "water\nsalt",
                },
            ),
        ),
        environment={
            "GEMINI_API_KEY": "fake",
            "GOOGLE_GEMINI_BASE_URL": "{url}",
            "GEMINI_MODEL": "gemini-2.5-pro",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        files={
            ".gemini/settings.json": json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": False},
                    "general": {"disableAutoUpdate": True},
                }
            )
        },
        record=".gemini/tmp",
        kept=(".gemini/tmp/*/chats/*", ".gemini/tmp/*/.project_root"),
    ),
    Tool(
        "Qwen Code",
        "qwen-code",
        "@qwen-code/qwen-code",
        "qwen",
        day(
            ("--yolo", "-p", "{prompt}"),
            ("--yolo", "--continue", "-p", "{prompt}"),
            read=("read_file", {"file_path": NOTES_FILE}),
            run=("run_shell_command", {"command": "wc -l notes.txt", "is_background": False}),
            edit=(
                "edit",
                {"file_path": NOTES_FILE, "old_string": "water", "new_string": "water\nsalt"},
            ),
        ),
        environment={
            "OPENAI_API_KEY": "fake",
            "OPENAI_BASE_URL": "{url}/v1",
            "OPENAI_MODEL": "qwen3-coder-plus",
        },
        files={
            ".qwen/settings.json": json.dumps(
                {
                    "security": {"auth": {"selectedType": "openai"}},
                    "privacy": {"usageStatisticsEnabled": False},
                    "general": {"disableAutoUpdate": True},
                }
            )
        },
        record=".qwen",
        kept=(".qwen/projects/**/*.jsonl",),
    ),
    Tool(
        "OpenCode",
        "opencode",
        "opencode-ai",
        "opencode",
        day(
            ("run", "--model", "anthropic/claude-sonnet-4-5", "{prompt}"),
            ("run", "--continue", "--model", "anthropic/claude-sonnet-4-5", "{prompt}"),
            read=("read", {"filePath": NOTES_FILE}),
            run=("bash", {"command": "wc -l notes.txt", "description": "Count lines"}),
            edit=(
                "edit",
                {"filePath": NOTES_FILE, "oldString": "water", "newString": "water\nsalt"},
            ),
        ),
        environment={"ANTHROPIC_API_KEY": "fake", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        files={
            ".config/opencode/opencode.json": json.dumps(
                {
                    "share": "disabled",
                    "provider": {
                        "anthropic": {"options": {"baseURL": "{url}/v1", "apiKey": "fake"}}
                    },
                }
            )
        },
        record=".local/share/opencode",
        kept=(".local/share/opencode/opencode.db",),
        tables=("project", "session", "message", "part"),
    ),
    Tool(
        "Pi",
        "pi",
        "@earendil-works/pi-coding-agent",
        "pi",
        day(
            ("-p", "--provider", "fake", "--model", "gpt-5", "{prompt}"),
            ("-p", "--continue", "--provider", "fake", "--model", "gpt-5", "{prompt}"),
            read=("read", {"path": "notes.txt"}),
            run=("bash", {"command": "wc -l notes.txt"}),
            edit=(
                "edit",
                {"path": "notes.txt", "edits": [{"oldText": "water", "newText": "water\nsalt"}]},
            ),
        ),
        environment={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        files={
            ".pi/agent/models.json": json.dumps(
                {
                    "providers": {
                        "fake": {
                            "baseUrl": "{url}/v1",
                            "api": "openai-completions",
                            "apiKey": "fake",
                            "models": [{"id": "gpt-5"}],
                        }
                    }
                }
            )
        },
        record=".pi/agent/sessions",
        kept=(".pi/agent/sessions/**/*.jsonl",),
    ),
    Tool(
        "Copilot CLI",
        "copilot",
        "@github/copilot",
        "copilot",
        day(
            ("--allow-all-tools", "-p", "{prompt}"),
            ("--allow-all-tools", "--continue", "-p", "{prompt}"),
            read=("view", {"path": NOTES_FILE}),
            run=("bash", {"command": "wc -l notes.txt", "description": "Count lines"}),
            edit=("edit", {"path": NOTES_FILE, "old_str": "water", "new_str": "water\nsalt"}),
        ),
        environment={
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "fake",
            "COPILOT_MODEL": "gpt-5",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
        },
        record=".copilot/session-state",
        remark="with a model provider of one's own; GitHub's models need a login",
        kept=(".copilot/session-state/*/events.jsonl", ".copilot/session-state/*/workspace.yaml"),
    ),
    Tool(
        "Cline CLI",
        "cline",
        "cline",
        "cline",
        day(
            ("{prompt}",),
            ("{prompt}",),
            read=("read_files", {"files": [{"path": NOTES_FILE}]}),
            run=("run_commands", {"commands": ["wc -l notes.txt"]}),
            edit=("run_commands", {"commands": ["echo salt >> notes.txt"]}),
        ),
        files={
            ".cline/data/settings/providers.json": json.dumps(
                {
                    "version": 1,
                    "lastUsedProvider": "openai-compatible",
                    "modes": {},
                    "providers": {
                        "openai-compatible": {
                            "settings": {
                                "provider": "openai-compatible",
                                "apiKey": "fake",
                                "model": "gpt-5",
                                "baseUrl": "{url}/v1",
                            },
                            "updatedAt": "2026-01-01T00:00:00.000Z",
                            "tokenSource": "manual",
                        }
                    },
                }
            )
        },
        environment={"CLINE_TELEMETRY_DISABLED": "1"},
        record=".cline/data",
        kept=(".cline/data/sessions/*/*.json",),
        remark="it resumes a session only in a terminal: two sessions",
    ),
    Tool(
        "llm",
        "llm",
        "llm",
        "llm",
        day(
            ("-m", "fake", "--functions", "tools.py", "{prompt}"),
            ("-c", "--functions", "tools.py", "{prompt}"),
            read=("read_notes", {}),
            run=("count_lines", {"name": "notes.txt"}),
            edit=("add_note", {"note": "salt"}),
        ),
        registry="pypi",
        environment={"OPENAI_API_KEY": "fake"},
        files={
            ".config/io.datasette.llm/extra-openai-models.yaml": "- model_id: fake\n"
            "  model_name: gpt-5\n  api_base: {url}/v1\n  supports_tools: true\n",
            "mill/tools.py": "def read_notes() -> str:\n    return open('notes.txt').read()\n\n\n"
            "def count_lines(name: str) -> str:\n    return str(len(open(name).readlines()))\n\n\n"
            "def add_note(note: str) -> str:\n    open('notes.txt', 'a').write(note)\n    return 'ok'\n",
        },
        record=".config/io.datasette.llm",
        kept=(".config/io.datasette.llm/logs.db",),
        tables=("conversations", "responses", "threads", "turns", "messages", "parts", "fragments"),
    ),
    Tool(
        "Aider",
        "aider",
        "aider-chat",
        "aider",
        (
            Start(
                ("--message", "{prompt}"),
                (says("The notes say flour and water.", 1),),
                "What is in notes.txt?",
            ),
            Start(
                ("--restore-chat-history", "--message", "{prompt}"),
                (
                    says(
                        "notes.txt\n<<<<<<< SEARCH\nwater\n=======\nwater\nsalt\n>>>>>>> REPLACE\n",
                        2,
                    ),
                ),
                "Put salt on the list.",
            ),
        ),
        registry="pypi",
        environment={
            "OPENAI_API_KEY": "fake",
            "OPENAI_API_BASE": "{url}/v1",
            "AIDER_MODEL": "openai/gpt-4o",
            "AIDER_YES_ALWAYS": "true",
            "AIDER_GIT": "false",
            "AIDER_ANALYTICS": "false",
            "AIDER_CHECK_UPDATE": "false",
            "AIDER_SHOW_MODEL_WARNINGS": "false",
            "AIDER_FILE": "notes.txt",
        },
        record="mill",
        is_main=lambda _: True,
        has_tokens=False,
        remark="it tells its own count of tokens, rounded",
        kept=("mill/.aider.chat.history.md",),
    ),
)
# Why others that are imported are not run.
NOT_RUN = {
    "Goose": "it is in neither registry",
    "Kilo Code": "its package lacks the program for this system",
    "OpenClaw": "its package in the registry is a placeholder",
    "Hermes": "it is in neither registry",
    "Cursor": "it is in neither registry",
    "Copilot in VS Code": "it needs the editor and a login",
    "Open WebUI, LibreChat": "they are servers for browsers",
}
