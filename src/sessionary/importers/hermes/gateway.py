"""The gateway's `sessions.json`: the platform and chat of each session."""

from dataclasses import dataclass, field
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.events import Json
from sessionary.model.source import Source

INDEX = "sessions.json"
MAX_INDEX = 64 * 1024 * 1024
_ORIGIN = (
    *("chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic"),
    *("user_id_alt", "chat_id_alt"),
)
_OTHER_NAMES = {"cli": "terminal", "local": "terminal", "cron": "schedule"}
# agent:main:{platform}:{chat type}[:{chat}][:{thread}][:{person}]
_SHORTEST_KEY = 4


@dataclass(slots=True)
class GatewayIndex:
    """The entries of a `sessions.json` by session id, and those that cannot be read."""

    entries: dict[str, Json] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    path: Path | None = None


def index(path: Path) -> GatewayIndex:
    """Read a `sessions.json`; an empty index if there is none."""
    found = GatewayIndex(path=path)
    if not files.is_file(path):
        return found
    data = files.read_json(path, most=MAX_INDEX)
    if not isinstance(data, dict):
        found.faults.append(("", "it is no list of sessions"))
        return found
    for key, entry in data.items():
        id = coerce.name(coerce.record(entry).get("session_id"))
        if id is None:
            found.faults.append((key[:100], "it names no session"))
        else:
            found.entries[id] = {"session_key": key, **entry}
    return found


def source_of(facts: Json, entry: Json) -> Json | None:
    """Return the source of a session, from its row and its entry in the index."""
    origin = coerce.record(entry.get("origin"))
    origin = origin or coerce.parse_record(facts.get("origin_json"))
    origin = origin or coerce.parse_record(facts.get("origin"))
    key = coerce.first_name(entry.get("session_key"), facts.get("session_key"))
    known = _of_key(key) | {n: facts[n] for n in _ORIGIN if facts.get(n) not in (None, "")}
    known |= {n: origin[n] for n in _ORIGIN if origin.get(n) not in (None, "")}
    platform = coerce.first_name(origin.get("platform"), entry.get("platform"))
    platform = platform or coerce.name(facts.get("source")) or known.get("platform")
    if platform is None:
        return None
    known["platform"] = _OTHER_NAMES.get(platform, platform)
    return _valid(known)


def _of_key(key: str | None) -> Json:
    """Return platform, chat type and chat of a key; its other parts are ambiguous."""
    cut = (key or "").split(":")
    if len(cut) < _SHORTEST_KEY or cut[0] != "agent":
        return {}
    made: Json = {"platform": cut[2], "chat_type": cut[3]}
    if len(cut) > _SHORTEST_KEY:
        made["chat_id"] = cut[_SHORTEST_KEY]
    return made


def _valid(known: Json) -> Json | None:
    """Return the source without invalid fields."""
    made: Json = {}
    for name, value in known.items():
        try:
            Source.from_json({"platform": "any", **made, name: value})
        except BadInput:
            continue
        made[name] = value
    return Source.from_json(made).to_json() if "platform" in made else None
