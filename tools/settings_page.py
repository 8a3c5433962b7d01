"""Generate sessionary.example.toml, docs/settings.md and the tables of settings in guides from the declared settings.

`.venv/bin/python -m tools.settings_page`
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sessionary.agents import registry as agents
from sessionary.agents.acp import AcpOptions
from sessionary.agents.command import CommandOptions
from sessionary.agents.demo import ScriptSettings
from sessionary.agents.model import ModelOptions, ToolServer
from sessionary.agents.python import PythonSettings
from sessionary.app.settings import SINGLE_TABLES
from sessionary.channels import registry as channels
from sessionary.channels.telegram import TelegramSettings
from sessionary.config import IsolationSettings, StoreSettings
from sessionary.config.engine import (
    AccessPolicy,
    AgentTable,
    Budget,
    ChannelTable,
    EngineSettings,
    PersonaTable,
    PolicyRule,
    QuestionSettings,
)
from sessionary.config.proxy import ProxySettings, UpstreamTable
from sessionary.config.reader import MISSING, Declared, settings_of
from sessionary.config.reset import ResetSettings, ResetTable
from sessionary.config.schema import toml, type_text, written
from sessionary.config.server import ImportTable, Limits, PushTable, TelemetryTable, WebSettings
from sessionary.plugins import PluginGroup

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "sessionary.example.toml"
PAGE = ROOT / "docs" / "settings.md"
GUIDES = (*sorted((ROOT / "docs" / "channels").glob("*.md")), ROOT / "docs" / "agents.md")
# In a guide: the place of a generated table, and its name in sessionary.toml.
_GENERATED = re.compile(r"(<!-- settings of (\S+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)
LONGEST_LINE = 118
# A longer setting does not move the comments of the others.
LONGEST_ALIGNED = 40


def example() -> str:
    """Return the example file."""
    blocks = [
        _text(
            "Sessionary's configuration. Copy this file as sessionary.toml to the home directory (SESSIONARY_HOME) and",
            "change what you need: every line below that is not a comment shows the default. `sessionary config check`",
            "checks your file, and docs/settings.md lists every setting. Secrets do not belong here: refer to an",
            "environment variable (…_env) or a file (…_file).",
        ),
        _table("", StoreSettings),
        _table("isolation", IsolationSettings),
        _table("reset", ResetTable),
        _text(
            "The same for a chat type (dm, group, channel, thread), or for a platform, which takes precedence:"
        )
        + _table("reset.type.group", ResetSettings, values={"mode": "daily"}, is_active=False)
        + _table(
            "reset.platform.email",
            ResetSettings,
            values={"mode": "idle", "idle_minutes": 10_080},
            is_active=False,
        ),
        _text("--- Agents. Without any, the demo answers, offline."),
        _table(
            "agents.assistant",
            AgentTable,
            ScriptSettings,
            defaults={"kind": "script", "prompt": "You are a helpful assistant."},
        ),
        _table(
            "agents.gpt",
            AgentTable,
            ModelOptions,
            defaults={"kind": "model"},
            comments={"kind": "a model of any provider"},
            without=["prompt", "provider", "requires_finish_reason"],
            is_active=False,
        )
        + _table("[agents.gpt.mcp]", ToolServer, only=["command"], is_active=False),
        _table(
            "agents.mine",
            AgentTable,
            CommandOptions,
            defaults={"kind": "command", "pass_env": ["MY_KEY"]},
            comments={"kind": "any program: JSON lines in and out"},
            without=["prompt", "env"],
            is_active=False,
        ),
        _table(
            "agents.coder",
            AgentTable,
            AcpOptions,
            defaults={"kind": "acp", "command": ["claude-agent-acp"]},
            comments={"kind": "a coding agent that speaks the Agent Client Protocol"},
            only=["kind", "command", "workspace", "mode", "model"],
            is_active=False,
        ),
        _table(
            "agents.function",
            AgentTable,
            PythonSettings,
            defaults={"kind": "python"},
            comments={
                "kind": "a function of a module beside this file, or of an installed package"
            },
            without=["prompt"],
            is_active=False,
        ),
        _text("--- Texts that a session may choose: /persona teacher. See docs/choose.md."),
        _table("personas.teacher", PersonaTable, is_active=False),
        _text(
            "--- Channels: see docs/channels for each platform, and docs/settings.md for all its settings."
        ),
        _table("channels.telegram", TelegramSettings, only=["token", "agent"], is_active=False),
        _text("--- Who may reach the agent. A platform without a table here is closed."),
        _table("access.telegram", AccessPolicy),
        _text(
            "--- Budgets for each person, channel, schedule, session, agent or model, or for one by name,",
            "--- and for the whole profile: see docs/engine.md. Default: no limit.",
        ),
        _table("budget.person", Budget, is_active=False)
        + _table(
            'budget."schedule:morning"', Budget, values={"per": "month", "usd": 3}, is_active=False
        ),
        _text(
            "--- Which tool calls run, need an approval, or are refused: the first rule that matches decides. See",
            "--- docs/questions.md. Default: a tool that changes something needs one in groups, and for people who are",
            "--- not owners.",
        ),
        _table("[policy]", PolicyRule, is_active=False),
        _text("--- How long a question to people waits."),
        _table("questions", QuestionSettings),
        _text("--- How turns run."),
        _table("engine", EngineSettings),
        _text(
            "--- Conversations of other tools, imported while `sessionary serve` runs. See docs/importing.md."
        ),
        _table("imports", ImportTable),
        _text("--- The server, and how much one caller may ask of it."),
        _table("web", WebSettings),
        _table("web.limits", Limits),
        _text(
            "--- Notifications of browsers that a question came: see docs/questions.md. Needs sessionary[push]."
        ),
        _table("push", PushTable),
        _text(
            "--- The recording proxy, if `serve` is to run it too, and the APIs behind it: see docs/proxy.md."
        ),
        _table("proxy", ProxySettings),
        _table("proxy.upstreams.openrouter", UpstreamTable, is_active=False),
        _text(
            "--- OpenTelemetry: see docs/telemetry.md. Sending needs sessionary[otel]; OTEL_* variables count too."
        ),
        _table("telemetry", TelemetryTable),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _text(*lines: str) -> list[str]:
    return [f"# {line}" for line in lines]


def _table(
    name: str,
    *tables: type[Any],
    values: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    comments: Mapping[str, str] | None = None,
    only: list[str] | None = None,
    without: Collection[str] = (),
    is_active: bool = True,
) -> list[str]:
    """Return the lines of a table; with `values`, those alone and without comments."""
    rows: list[tuple[str, str]] = []
    found = [setting for table in tables for setting in settings_of(table)]
    if only is not None:
        found.sort(key=lambda each: only.index(each.name) if each.name in only else len(only))
    for each in found:
        is_wanted = each.name not in without and (only is None or each.name in only)
        if values is not None:
            rows += (
                [(f"{each.name} = {toml(values[each.name])}", "")] if each.name in values else []
            )
        elif is_wanted and not _is_table(each):
            line, comment = _row(each, defaults or {}, is_active=is_active)
            rows.append((line, (comments or {}).get(each.name, comment)))
    head = [f"[{name}]" if is_active else f"# [{name}]"] if name else []
    if values is not None:
        return [*head, *(f"# {line}" for line, _ in rows)]
    return [*head, *_aligned(rows)]


def _row(declared: Declared, defaults: Mapping[str, Any], *, is_active: bool) -> tuple[str, str]:
    """Return the line of a setting, commented out if it is only an example, and its help."""
    default = declared.default
    if declared.is_secret:
        # A path is the example of a file, anything else that of a variable.
        suffix = "file" if "/" in str(declared.example) else "env"
        value, is_shown, name = declared.example, False, f"{declared.name}_{suffix}"
    elif declared.name in defaults:
        value, is_shown, name = defaults[declared.name], True, declared.name
    elif default is MISSING or default is None or (default in ((), {}) and declared.example):
        value, is_shown, name = declared.example, False, declared.name
    else:
        value, is_shown, name = written(declared.shape, default), True, declared.name
    line = f"{name} = {toml(value)}"
    comment = declared.description or ""
    if name.endswith("_env") and declared.is_secret:
        comment += f"; or {declared.name}_file"
    return line if is_active and is_shown else f"# {line}", comment


def _is_table(declared: Declared) -> bool:
    shape = declared.shape
    return shape.is_table or (shape.item is not None and shape.item.is_table)


def _aligned(rows: list[tuple[str, str]]) -> Iterator[str]:
    column = max((len(line) for line, _ in rows if len(line) <= LONGEST_ALIGNED), default=0) + 2
    for line, comment in rows:
        whole = f"{line:<{column}}" if len(line) < column else f"{line}  "
        if not comment:
            yield line
        elif len(whole) + len(comment) + 2 <= LONGEST_LINE:
            yield f"{whole}# {comment}"
        else:
            yield f"# {comment[:1].upper()}{comment[1:]}:"
            yield line


BEGINNING = """\
# Settings

Every setting of `sessionary.toml`, generated from the declarations in the code by `tools/settings_page.py`; a test
compares the two. The file is in the home directory (`--home`, else `SESSIONARY_HOME`).
[`sessionary.example.toml`](../sessionary.example.toml) is a file to start with. `sessionary config check` checks
yours, and `sessionary config show` prints what is in force and where it comes from. A setting that does not exist is
refused.

A secret never belongs in the file: `…_env` names an environment variable, `…_file` the path of a file whose first line
is the secret. An option of the command line overrides a variable (`SESSIONARY_DATABASE`, `SESSIONARY_PROFILE`), which
overrides the file.
"""


def page() -> str:
    """Return the reference page."""
    parts = [
        BEGINNING,
        *_section("Outside any table", [StoreSettings]),
        *_section("[isolation]", [IsolationSettings]),
        *_section(
            "[reset]",
            [ResetTable],
            "The same settings may be in `[reset.type.TYPE]` (dm, group, channel, thread) and in\n"
            "`[reset.platform.NAME]`; the platform's take precedence. What is missing there comes from `[reset]`.",
        ),
        *_section(
            "[agents.NAME]",
            [AgentTable],
            "[Agents](agents.md) explains them. Without a table of an agent, the demo answers. The other settings\n"
            "depend on the `kind`:",
        ),
    ]
    for plugin in agents.AGENTS.installed:
        if plugin.is_ours:
            declared = agents.AGENTS.load(plugin.name).settings
            parts += _section(f'kind = "{plugin.name}"', [declared], level=3)
    parts += _section(
        "[[agents.NAME.mcp]]",
        [ToolServer],
        "For a `model`: the MCP servers whose tools it may call.",
        level=3,
    )
    parts += _section(
        "[personas.NAME]",
        [PersonaTable],
        "[Choose the agent and the model](choose.md) explains them.",
    )
    parts += [
        "## [channels.PLATFORM]\n",
        "Each channel has its own settings; every one of them also has these:\n",
        *_rows([ChannelTable]),
    ]
    for plugin in channels.CHANNELS.installed:
        if plugin.is_ours:
            declared, name = channels.CHANNELS.load(plugin.name).settings, plugin.name
            parts += _section(f"[channels.{name}]", [declared], _guide(name), level=3)
            for each in settings_of(declared):
                if each.shape.is_table:
                    heading, text = f"[channels.{name}.{each.name}]", f"{each.description}."
                    text = text[:1].upper() + text[1:]
                    parts += _section(heading, [each.shape.type], text, level=3)
    parts += _section("[access.PLATFORM]", [AccessPolicy], "A platform without a table is closed.")
    parts += _section(
        "[budget.SCOPE]",
        [Budget],
        "SCOPE is `person`, `channel`, `schedule`, `session`, `agent`, `model` or `profile`, or one of them by name:\n"
        '`[budget."person:telegram:42"]`. It needs `tokens` or `usd`. [Budgets](engine.md#budgets) explains them.',
    )
    parts += _section(
        "[[policy]]",
        [PolicyRule],
        "The first rule that matches a tool call decides. Each value is a pattern in which `*` stands for any text.\n"
        "[Questions and approvals](questions.md) explains them.",
    )
    parts += _section(
        "[questions]", [QuestionSettings], "[Questions and approvals](questions.md) explains them."
    )
    parts += _section("[engine]", [EngineSettings], "[How turns run](engine.md) explains them.")
    for name, table in SINGLE_TABLES.items():
        parts += _section(f"[{name}]", [table])
    parts += _section(
        "[web.limits]", [Limits], "How much one caller may ask for, and how slow it may be."
    )
    parts += _section(
        "[proxy.upstreams.NAME]",
        [UpstreamTable],
        "`openai` and `anthropic` are there without being configured. [The recording proxy](proxy.md) explains it.",
    )
    return "\n".join(parts).rstrip() + "\n"


def guide(text: str) -> str:
    """Return a guide with its tables of settings as they are declared."""
    return _GENERATED.sub(
        lambda found: f"{found[1]}\n{chr(10).join(_rows(_declared(found[2])))}\n{found[3]}", text
    )


def _declared(name: str) -> list[type[Any]]:
    """Return what declares `channels.PLATFORM`, `agents.KIND`, or a table in one of them."""
    kind, first, *inner = name.split(".")
    registry: PluginGroup[Any] = channels.CHANNELS if kind == "channels" else agents.AGENTS
    table: type[Any] = registry.load(first).settings
    for each in inner:
        shape = next(found.shape for found in settings_of(table) if found.name == each)
        table = (shape if shape.item is None else shape.item).type
    return [table, ChannelTable] if kind == "channels" and not inner else [table]


def _guide(platform: str) -> str:
    is_there = (ROOT / "docs" / "channels" / f"{platform}.md").exists()
    return f"[The guide](channels/{platform}.md) leads to a working bot." if is_there else ""


def _section(heading: str, tables: list[type[Any]], text: str = "", *, level: int = 2) -> list[str]:
    found = _rows(tables)
    return [
        f"{'#' * level} {heading}\n",
        *([f"{text}\n"] if text else []),
        *(found or ["It has no settings of its own.\n"]),
    ]


def _rows(tables: list[type[Any]]) -> list[str]:
    rows = [
        _page_row(each)
        for table in tables
        for each in settings_of(table)
        if not _is_table(each)
        and (table is ChannelTable or each.name != "agent" or table is StoreSettings)
    ]
    return ["| setting | type | default | meaning |\n|---|---|---|---|", *rows, ""] if rows else []


def _page_row(declared: Declared) -> str:
    names = ", ".join(f"`{name}`" for name in declared.names)
    if declared.default is MISSING:
        default = "required"
    elif declared.default is None:
        default = ""
    else:
        default = f"`{toml(_rounded(written(declared.shape, declared.default)))}`"
    cells = [names, type_text(declared), default, declared.description or ""]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def main() -> None:
    """Write all files."""
    EXAMPLE.write_text(example(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    for path in GUIDES:
        path.write_text(guide(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
