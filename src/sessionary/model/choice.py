"""What a session chooses for itself: its agent, model, persona and tools. Pure rules; nothing is read or written.

The choices are keys of a session's settings, beside `temperature` and the like. A missing key means the default: the
agent of the platform, the agent's own model, no persona, all tools.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, field

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model.message import Message, Role, Text
from sessionary.model.source import Person
from sessionary.model.terminal import one_line

CHOICES = ("agent", "model", "persona", "tools")
# The key of the changes that were chosen while a turn was running; the next turn applies and records them.
PENDING = "pending"
MAX_NAME = 200
MAX_PATTERNS = 100
_MAX_BY = 64

Changes = Mapping[str, Any]


class Persona(Struct, frozen=True):
    """A text that follows the agent's own prompt, under a name."""

    name: str
    prompt: str
    title: str | None = None


class AgentOffer(Struct, frozen=True):
    """A configured agent, and the models that a session may choose for it.

    `models` begins with the agent's own. It is empty if they are not known: such an agent picks its model itself.
    """

    name: str
    kind: str
    model: str | None = None
    models: tuple[str, ...] = ()
    # How many tokens its model reads, if that is configured.
    window: int | None = None

    def find_model(self, name: str) -> str:
        """Return the model with this name, which may leave out the provider; raise `BadInput` if it is not offered."""
        if name in self.models:
            return name
        short = [each for each in self.models if each.partition(":")[2] == name]
        if len(short) == 1:
            return short[0]
        if not self.models:
            raise BadInput(
                f"The agent {self.name} offers no models; nothing was changed. "
                f"List them in its table: models = […]."
            )
        raise BadInput(
            f"The agent {self.name} does not offer the model {one_line(name, MAX_NAME)!r}; nothing was changed. "
            f"It offers: {', '.join(self.models)}."
        )


class ChoiceChange(Struct, frozen=True):
    """Some choices that change together: who changed them, and why if nobody did."""

    changed: Changes
    by: Person | None = None
    # The sentence of the record, if it is not "Anna chose …": what was chosen before is no longer there.
    reason: str | None = None
    # The agent that answers from then on, if it is part of that sentence.
    agent: str | None = None


class SettledChoice(Struct, frozen=True):
    """The settings that a turn begins with, and what changed when it did.

    `agent` is the agent that the session chose; None means the default.
    """

    settings: Mapping[str, Any]
    agent: str | None = None
    changes: tuple[ChoiceChange, ...] = ()


def _is_unknown(_: str) -> None:
    return None


class ChoiceCatalog(Struct, frozen=True):
    """What there is to choose from. Without agents nothing is known, and nothing is refused or dropped."""

    agents: Mapping[str, AgentOffer] = field(default_factory=dict)
    personas: Mapping[str, Persona] = field(default_factory=dict)
    # The agent that answers if a session has chosen none: of its platform, or of all.
    default: str | None = None
    default_by_platform: Mapping[str, str] = field(default_factory=dict)
    # The agent that this process uses whatever a session has chosen; None: the sessions' own.
    only: str | None = None
    # Returns the names of an agent's tools if they are known without asking its servers.
    known_tools: Callable[[str], Sequence[str] | None] = _is_unknown
    # Returns how many tokens an agent's own model reads, if that is known already.
    known_window: Callable[[str], int | None] = _is_unknown

    def default_agent(self, platform: str) -> str | None:
        """Return the name of the agent that answers on a platform by default."""
        return self.only or self.default_by_platform.get(platform) or self.default

    def offer(self, settings: Mapping[str, Any], *, platform: str) -> AgentOffer | None:
        """Return the agent that answers in a session with these settings; None if it is not in the catalog."""
        chosen = None if self.only is not None else settings.get("agent")
        return self.agents.get(chosen or self.default_agent(platform) or "")

    def check(
        self, settings: Mapping[str, Any], changes: Changes, *, platform: str
    ) -> dict[str, Any]:
        """Return the changes with full names; raise `BadInput` for what there is not.

        A session that gets another agent loses a model that the new one does not offer.
        """
        checked = dict(changes)
        agent = checked.get("agent")
        if agent is not None and agent not in self.agents:
            raise BadInput(_unknown("agent", agent, self.agents))
        offer = self.offer({**settings, **checked}, platform=platform)
        model = checked.get("model")
        if model is not None:
            if offer is None:
                raise BadInput("No agent offers models here; nothing was changed.")
            checked["model"] = offer.find_model(model)
            if self.default_by_platform and not {**settings, **checked}.get("agent"):
                # The default depends on where a message comes from; the model is of this agent.
                checked["agent"] = offer.name
        elif "agent" in checked and "model" not in checked and settings.get("model") is not None:
            offered = () if offer is None else offer.models
            checked["model"] = settings["model"] if settings["model"] in offered else None
        persona = checked.get("persona")
        if persona is not None and persona not in self.personas:
            raise BadInput(_unknown("persona", persona, self.personas))
        if checked.get("tools") and offer is not None:
            _check_tools(checked["tools"], self.known_tools(offer.name), offer.name)
        return checked

    def settle(self, settings: Mapping[str, Any], *, platform: str) -> SettledChoice:
        """Return what a turn begins with: pending changes are applied, and what there is no more is dropped."""
        if not settings:
            return SettledChoice(settings)
        changes = list(pending_changes(settings))
        settled = with_pending(settings)
        if self.agents and self.only is None:
            for change in self._missing(settled, platform):
                changes.append(change)
                settled = apply_changes(settled, change.changed)
        agent = settled.get("agent") if self.agents and self.only is None else None
        return SettledChoice(settled, agent, tuple(changes))

    def _missing(self, settings: Mapping[str, Any], platform: str) -> Iterable[ChoiceChange]:
        agent, model, persona = (settings.get(key) for key in ("agent", "model", "persona"))
        if agent is not None and agent not in self.agents:
            default = self.default_agent(platform)
            yield ChoiceChange(
                {"agent": None},
                reason=f"There is no agent {agent} any more: {default} answers instead.",
                agent=default,
            )
            settings = apply_changes(settings, {"agent": None})
        offer = self.offer(settings, platform=platform)
        if model is not None and offer is not None and offer.models and model not in offer.models:
            yield ChoiceChange(
                {"model": None},
                reason=f"The agent {offer.name} does not offer the model {model}: its own answers instead.",
                agent=offer.name,
            )
        if persona is not None and persona not in self.personas:
            yield ChoiceChange(
                {"persona": None},
                reason=f"There is no persona {persona} any more: the session goes on without one.",
            )

    def for_turn(self, settings: Mapping[str, Any], *, platform: str) -> Mapping[str, Any]:
        """Return what an agent is given of a session's settings as they are stored."""
        given = {key: value for key, value in settings.items() if key != PENDING}
        if self.only is None:
            return given
        offer, model = self.offer(settings, platform=platform), given.get("model")
        if offer is not None and offer.models and model not in offer.models:
            given.pop("model", None)  # it was chosen for another agent
        return given

    def persona_prompt(self, settings: Mapping[str, Any]) -> str | None:
        """Return the text of a session's persona."""
        persona = self.personas.get(settings.get("persona") or "")
        return None if persona is None else persona.prompt


def clean(changes: Changes) -> dict[str, Any]:
    """Return changes in the form in which they are stored; raise `BadInput` for any other."""
    found: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in CHOICES:
            raise BadInput(f"A session has no {key!r} to choose: use {', '.join(CHOICES)}.")
        if value is None:
            found[key] = None
        elif key == "tools":
            found[key] = _clean_tools(value)
        else:
            found[key] = _clean_name(value, key)
    return found


def apply_changes(settings: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return settings after changes; a choice of None is left out."""
    changed = {**settings, **changes}
    return {key: value for key, value in changed.items() if key not in CHOICES or value is not None}


def difference(settings: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the changes that are not in effect yet."""
    return {key: value for key, value in changes.items() if settings.get(key) != value}


def pending_changes(settings: Mapping[str, Any]) -> tuple[ChoiceChange, ...]:
    """Return what was chosen while a turn was running, in order."""
    found = settings.get(PENDING, ())
    return tuple(change_from_json(each) for each in found)


def change_from_json(stored: Mapping[str, Any]) -> ChoiceChange:
    """The inverse of `change_json`."""
    by = stored.get("by")
    return ChoiceChange(stored["changed"], None if by is None else Person.from_json(by))


def change_json(change: ChoiceChange) -> dict[str, Any]:
    """Return a change as it is stored until it is in effect."""
    by = None if change.by is None else change.by.to_json()
    return {"changed": dict(change.changed), "by": by}


def add_pending(settings: Mapping[str, Any], change: ChoiceChange) -> dict[str, Any]:
    """Return settings with one more change that the next turn applies."""
    return {**settings, PENDING: [*settings.get(PENDING, ()), change_json(change)]}


def with_pending(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the session's next turn."""
    applied = {key: value for key, value in settings.items() if key != PENDING}
    for change in pending_changes(settings):
        applied = apply_changes(applied, change.changed)
    return applied


def chosen_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the four choices of a session, as its next turn uses them; None where it uses the default."""
    known = with_pending(settings)
    return {key: known.get(key) for key in CHOICES}


def record_of(change: ChoiceChange, before: Mapping[str, Any]) -> Message:
    """Return the entry of the log for a change; people read it, the model does not."""
    record: dict[str, Any] = {
        "kind": "settings",
        "changed": dict(change.changed),
        "before": {key: before.get(key) for key in change.changed},
        "by": None if change.by is None else change.by.label,
    }
    if change.reason is not None:
        # So that it can be said in another language.
        record["is_missing"] = True
        record["agent"] = change.agent
    # With its person, so that it is erased with what they wrote.
    return Message(
        Role.SYSTEM, (Text(_sentence(change)),), person=change.by, extra={"record": record}
    )


def reverted(settings: Mapping[str, Any], records: Iterable[Message]) -> dict[str, Any]:
    """Return the settings as they were before these records of changes, given in the order of the log."""
    earlier = dict(settings)
    for message in reversed(list(records)):
        record = message.extra.get("record")
        if isinstance(record, dict) and record.get("kind") == "settings":
            earlier = apply_changes(earlier, record.get("before") or {})
    return earlier


def describe(key: str, value: Any) -> str:
    """Return a choice in words: "the model gpt-5", "no persona"."""
    match key, value:
        case "agent", None:
            return "the default agent"
        case "model", None:
            return "the agent's own model"
        case "persona", None:
            return "no persona"
        case "tools", None:
            return "all tools"
        case "tools", []:
            return "no tools"
        case "tools", _:
            return f"the tools {', '.join(value)}"
    return f"the {key} {value}"


def _sentence(change: ChoiceChange) -> str:
    if change.reason is not None:
        return change.reason
    # What was done, as a participle, and to what.
    done: dict[str, list[str]] = {}
    for key in CHOICES:
        if key in change.changed:
            verb, what = _verb_and_object(key, change.changed[key])
            done.setdefault(verb, []).append(what)
    if change.by is not None:
        clauses = [
            f"{'chose' if verb == 'chosen' else verb} {_listed(what)}"
            for verb, what in done.items()
        ]
        return f"{one_line(change.by.label, _MAX_BY)} {', and '.join(clauses)}."
    clauses = [f"{_listed(what)} {_be(what)} {verb}" for verb, what in done.items()]
    sentence = ", and ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _verb_and_object(key: str, value: Any) -> tuple[str, str]:
    """Return what was done, as a participle, and to what. "No persona was chosen" would say that nobody chose one."""
    match key, value:
        case "persona", None:
            return "removed", "the persona"
        case "tools", None:
            return "turned on", "all tools"
        case "tools", []:
            return "turned off", "all tools"
    return "chosen", describe(key, value)


def _listed(what: Sequence[str]) -> str:
    *first, last = what
    return f"{', '.join(first)} and {last}" if first else last


def _be(what: Sequence[str]) -> str:
    is_plural = len(what) > 1 or what[0].startswith(("the tools ", "all tools"))
    return "were" if is_plural else "was"


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    there_are = ", ".join(sorted(known)) or "none"
    return f"There is no {kind} {one_line(name, MAX_NAME)!r}; nothing was changed. There are: {there_are}."


def _clean_name(value: Any, key: str) -> str:
    if (
        not isinstance(value, str)
        or not value.strip()
        or len(value) > MAX_NAME
        or codec.storable_text(value) != value
    ):
        raise BadInput(
            f"The {key} of a session is a name of 1 to {MAX_NAME} characters, or nothing."
        )
    return value.strip()


def _clean_tools(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > MAX_PATTERNS:
        raise BadInput(
            f"The tools of a session are a list of at most {MAX_PATTERNS} names or patterns, or nothing."
        )
    return list(dict.fromkeys(_clean_name(each, "tool") for each in value))


def _check_tools(patterns: Sequence[str], known: Sequence[str] | None, agent: str) -> None:
    """Refuse a pattern that no tool matches, if the agent's tools are known."""
    if known is None:
        return
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            there_are = ", ".join(known) or "none"
            raise BadInput(
                f"The agent {agent} has no tool {pattern!r}; nothing was changed. There are: {there_are}."
            )


def is_tool_chosen(name: str, *, patterns: Sequence[str] | None) -> bool:
    """Return whether a session that chose these patterns may use a tool; None means all tools."""
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)
