"""What an editor can choose for a session, and which commands it offers: in the protocol's form."""

from collections.abc import Iterable, Mapping
from typing import Any

from sessionary.engine.commands import REGISTRY
from sessionary.errors import BadInput
from sessionary.formats.coerce import Json
from sessionary.model.choice import ChoiceCatalog
from sessionary.model.source import WEB
from sessionary.model.terminal import one_line

AGENT, MODEL, PERSONA = "agent", "model", "persona"
NO_PERSONA = "none"
# Commands that are about chats without an id of their own; an editor has its own for what they do.
NOT_HERE: Mapping[str, str] = {
    "new": "Begin a new thread in your editor: it is a session of its own.",
    "resume": "Open the session from the list of your editor.",
    "sessions": "Your editor lists the sessions; so does: sessionary ls",
    "branch": "Fork the session with your editor, or in the workbench: both stay open.",
    "sethome": "An editor cannot be the home channel: messages are sent to chats.",
}


def list_commands() -> list[Json]:
    """Return the commands that work in an editor."""
    made = []
    for each in REGISTRY.values():
        if each.name in NOT_HERE:
            continue
        described: Json = {"name": each.name, "description": each.help}
        hint = each.usage.partition(" ")[2].strip("[]")
        if hint:
            described["input"] = {"hint": hint}
        made.append(described)
    return made


def current_agent(catalog: ChoiceCatalog, chosen: Mapping[str, Any]) -> str | None:
    """Return the name of the agent that answers with these choices."""
    offer = catalog.offer(chosen, platform=WEB)
    return None if offer is None else offer.name


def describe_modes(catalog: ChoiceCatalog, chosen: Mapping[str, Any]) -> Json | None:
    """Return the agents as modes, for editors that know no options; None if there is only one."""
    agent = current_agent(catalog, chosen)
    if len(_agents(catalog)) < 2 or agent is None:  # one is no choice
        return None
    return {
        "currentModeId": agent,
        "availableModes": [{"id": name, "name": name} for name in _agents(catalog)],
    }


def describe_options(catalog: ChoiceCatalog, chosen: Mapping[str, Any]) -> list[Json]:
    """Return what can be chosen, and what is chosen: the agent, its model and its persona."""
    made = []
    offer = catalog.offer(chosen, platform=WEB)
    agents = _agents(catalog)
    if offer is not None and len(agents) > 1:
        made.append(_select(AGENT, "Agent", offer.name, agents, category="mode"))
    if offer is not None and offer.models:
        model = chosen.get("model") or offer.model or offer.models[0]
        models = dict.fromkeys((*offer.models, model))
        made.append(_select(MODEL, "Model", model, models, category="model"))
    if catalog.personas:
        persona = chosen.get("persona") or NO_PERSONA
        titles = {NO_PERSONA: "No persona"} | {
            name: each.title or name for name, each in catalog.personas.items()
        }
        made.append(_select(PERSONA, "Persona", persona, titles, names=titles))
    return made


def read_choice(option: str, value: object) -> dict[str, Any]:
    """Return the change that choosing a value of an option is; raise `BadInput` for an unknown one."""
    if option not in (AGENT, MODEL, PERSONA):
        raise BadInput(f"There is no option {one_line(option, 60)!r}; nothing was changed.")
    if not isinstance(value, str):
        raise BadInput(f"The {option} is chosen by its name; nothing was changed.")
    return {option: None if (option, value) == (PERSONA, NO_PERSONA) else value}


def _agents(catalog: ChoiceCatalog) -> list[str]:
    return [] if catalog.only is not None else sorted(catalog.agents)


def _select(
    id: str,
    name: str,
    current: str,
    values: Iterable[str],
    *,
    category: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Json:
    made: Json = {
        "type": "select",
        "id": id,
        "name": name,
        "currentValue": current,
        "options": [{"value": each, "name": (names or {}).get(each, each)} for each in values],
    }
    return made if category is None else {**made, "category": category}
