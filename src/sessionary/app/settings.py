"""All settings there are: each table of sessionary.toml with the class that declares it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessionary import config
from sessionary.agents import registry as agents
from sessionary.channels import registry as channels
from sessionary.config import Config, StoreSettings
from sessionary.config.engine import (
    AgentTable,
    ChannelTable,
    EngineTables,
    read_engine,
)
from sessionary.config.proxy import ProxySettings
from sessionary.config.reader import Place, read, settings_of
from sessionary.config.schema import Json, table_schema, title, toml, written
from sessionary.config.secret import SECRET_NAME, Secret
from sessionary.config.server import (
    ImportTable,
    PushTable,
    TelemetryTable,
    WebSettings,
    read_table,
    read_telemetry,
)
from sessionary.model.redact import masked

# The tables that are there once, in the order of the reference page.
SINGLE_TABLES: Mapping[str, type[Any]] = {
    "imports": ImportTable,
    "web": WebSettings,
    "push": PushTable,
    "proxy": ProxySettings,
    "telemetry": TelemetryTable,
}
HIDDEN = "…"
# The password in an address.
_PASSWORD = re.compile(r"(://[^/@:\s]*:)[^/@\s]*@")


def json_schema() -> Json:
    """Return the JSON Schema of sessionary.toml, from which forms can be made.

    A property with `x-secret` names where a secret is; one that is also `writeOnly` may contain the secret itself.
    `x-needs` is what pip has to install for a channel, if its library is not there yet.
    """
    whole = table_schema(StoreSettings)
    tables = table_schema(EngineTables)["properties"]
    whole["properties"] |= {
        name: tables[name]
        for name in ("personas", "access", "budget", "policy", "questions", "engine")
    }
    for name, table in SINGLE_TABLES.items():
        whole["properties"][name] = table_schema(table) | {"title": title(name)}
    kinds = {name: _agent_schema(kind) for name, kind in agents.AGENTS.load_all().items()}
    platforms = {name: _channel_schema(kind) for name, kind in channels.CHANNELS.load_all().items()}
    whole["properties"]["agents"] = {
        "type": "object",
        "title": "Agents",
        "description": "the agents, by name",
        "additionalProperties": {"oneOf": list(kinds.values())},
    }
    whole["properties"]["channels"] = {
        "type": "object",
        "title": "Channels",
        "description": "the channels, by platform",
        "properties": platforms,
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": config.FILE,
        **whole,
    }


def _agent_schema(kind: agents.AgentKind[Any]) -> Json:
    name = kind.name
    schema, own = table_schema(AgentTable), table_schema(kind.settings)
    is_default = name == AgentTable().kind
    schema["title"] = name
    schema["properties"]["kind"] |= {"const": name, "default": name}
    schema["properties"] |= own["properties"]
    schema["required"] = [*([] if is_default else ["kind"]), *own.get("required", [])]
    return schema | {key: own[key] for key in ("allOf",) if key in own}


def _channel_schema(kind: channels.ChannelKind[Any]) -> Json:
    schema, common = table_schema(kind.settings), table_schema(ChannelTable)
    schema["properties"] = common["properties"] | schema["properties"]
    needs = {} if kind.extra is None else {"x-needs": kind.extra}
    return {"title": kind.title} | needs | schema


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting in force: its value as it is written in the file, and where it comes from.

    `origin` is "flag", "variable …", "file" or "default". A secret is never in `value`.
    """

    name: str
    value: Any
    origin: str


def effective_settings(
    loaded: Config, *, flags: Mapping[str, str | None], environ: Mapping[str, str]
) -> list[EffectiveSetting]:
    """Return every setting in force; `flags` are the options of the command line."""
    return [*_top_level(loaded, flags, environ), *_tables(loaded, environ)]


def _top_level(
    loaded: Config, flags: Mapping[str, str | None], environ: Mapping[str, str]
) -> Iterator[EffectiveSetting]:
    for name, value in (
        ("home", str(loaded.home)),
        ("database", _without_secrets(loaded.database)),
        ("profile", loaded.profile),
    ):
        variable = f"SESSIONARY_{name.upper()}"
        if flags.get(name):
            origin = "flag"
        elif environ.get(variable):
            origin = f"variable {variable}"
        else:
            origin = "file" if loaded.file.get(name) else "default"
        yield EffectiveSetting(name, value, origin)
    for each in _of_table(loaded.settings, loaded.file, ""):
        if each.name not in ("database", "profile"):
            yield each


def _tables(loaded: Config, environ: Mapping[str, str]) -> Iterator[EffectiveSetting]:
    file, place = loaded.file, Place(loaded.path)
    engine = read_engine(loaded)
    for name, table in engine.agents.items():
        values, where = file["agents"][name], f"agents.{name}"
        yield from _of_table(table, values, where)
        within = place.below("agents").below(name)
        kind = agents.AGENTS.load(table.kind, where=str(within))
        yield from _of_table(
            read(kind.settings, table.options, within, environ=environ), values, where
        )
    for name, values in engine.channels.items():
        read_channel = channels.read_settings(name, values, environ)
        yield from _of_table(read_channel, values, f"channels.{name}")
    for name, persona in engine.personas.items():
        yield from _of_table(persona, file["personas"][name], f"personas.{name}")
    for name, policy in engine.engine.access.items():
        yield from _of_table(policy, file["access"][name], f"access.{name}")
    for name, budget in engine.engine.budgets.items():
        yield from _of_table(budget, file["budget"][name], f"budget.{name}")
    for number, rule in enumerate(engine.engine.policy, 1):
        yield from _of_table(rule, file["policy"][number - 1], f"policy.{number}")
    yield from _of_table(engine.engine.questions, file.get("questions", {}), "questions")
    yield from _of_table(engine.engine, file.get("engine", {}), "engine")
    for name, declared in SINGLE_TABLES.items():
        found = read_table(declared, loaded, name, environ)
        for each in _of_table(found, file.get(name, {}), name):
            if each.name == "telemetry.export" and each.origin == "default":
                # OpenTelemetry's own variables turn it on.
                export = read_telemetry(loaded, environ).export
                yield EffectiveSetting(
                    each.name, export, "variable OTEL_*" if export else "default"
                )
            else:
                yield each


def _of_table(table: object, values: Mapping[str, Any], path: str) -> Iterator[EffectiveSetting]:
    for each in settings_of(type(table)):
        value = getattr(table, each.attribute)
        name = f"{path}.{each.name}" if path else each.name
        is_set = any(known in values for known in each.names)
        origin = "file" if is_set else "default"
        if isinstance(value, Secret):
            yield EffectiveSetting(name, HIDDEN, f"{origin}: {value.origin}")
        elif each.shape.is_table:
            yield from _of_table(value, values.get(each.name, {}), name)
        elif each.shape.item is not None and each.shape.item.is_table:
            within = values.get(each.name, {})
            if isinstance(value, Mapping):
                items = {key: (item, within[key]) for key, item in value.items()}
            else:
                items = {
                    str(number): (item, within[number - 1]) for number, item in enumerate(value, 1)
                }
            for key, (item, written_as) in items.items():
                yield from _of_table(item, written_as, f"{name}.{key}")
        elif value is not None:
            # Of environment variables and headers, only the names are shown.
            is_private = each.shape.kind is not None and isinstance(value, Mapping)
            shown = dict.fromkeys(value, HIDDEN) if is_private else written(each.shape, value)
            yield EffectiveSetting(name, _without_secrets(shown), origin)


def _without_secrets(value: Any) -> Any:
    """Return a value without what is, or looks like, a secret."""
    if isinstance(value, dict):
        return {
            name: HIDDEN if SECRET_NAME.search(name) else _without_secrets(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return _PASSWORD.sub(r"\1…@", masked(value)) if isinstance(value, str) else value


def setting_line(setting: EffectiveSetting) -> str:
    """Return the value of a setting for people."""
    value = round(setting.value, 3) if isinstance(setting.value, float) else setting.value
    return HIDDEN if value == HIDDEN else toml(value)
