"""The sessions of a Hermes database of any version, and how they continue each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.content import parse_time
from sessionary.importers.base.events import Json
from sessionary.model.session import Kind, Lineage
from sessionary.store.sqlite.external_file import ExternalDatabase

TABLE = "sessions"
PROMPT = "system_prompt"
# Longer values are not loaded.
LONGEST = 100_000
# A session that ended so continues in another row.
_GOES_ON = ("compression", "cli_close")
_BEGINS_ANEW = ("session_reset", "new_session", "reset", "idle", "daily")
CRON = "cron"


@dataclass(frozen=True, slots=True, eq=False)
class SessionRow:
    """One row of the table of sessions, with all its columns."""

    id: str
    facts: Json
    count: int = 0
    # Count, largest ids and sizes of its messages: they change with the session.
    fingerprint: tuple[Any, ...] = ()

    @property
    def source(self) -> str:
        """The platform: `cli`, `telegram`, `cron`."""
        return coerce.text(self.facts.get("source"))

    @property
    def parent(self) -> str | None:
        """The session it came from."""
        return coerce.name(self.facts.get("parent_session_id"))

    @property
    def began(self) -> datetime | None:
        """When it began."""
        return parse_time(self.facts.get("started_at"))

    @property
    def ended(self) -> datetime | None:
        """When it ended."""
        return parse_time(self.facts.get("ended_at"))

    @property
    def end_reason(self) -> str | None:
        """Why it ended."""
        return coerce.name(self.facts.get("end_reason"))

    @property
    def settings(self) -> Any:
        """The model's settings."""
        return coerce.parse_json_or_keep(self.facts.get("model_config"))

    @property
    def is_job(self) -> bool:
        """Whether a schedule started it."""
        return self.source == CRON or self.id.startswith("cron_")


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The rows of one conversation, and the conversation it came from."""

    rows: tuple[SessionRow, ...]
    parent: str | None = None
    lineage: Lineage | None = None

    @property
    def id(self) -> str:
        """The id of its first row."""
        return self.rows[0].id

    @property
    def kind(self) -> Kind:
        """The kind of session."""
        if self.rows[0].is_job:
            return Kind.JOB
        return Kind.SUBAGENT if self.lineage is Lineage.SUBAGENT else Kind.IMPORT


def rows_of(database: ExternalDatabase) -> dict[str, SessionRow]:
    """Return all sessions of a database by id."""
    if not database.has(TABLE, "id"):
        return {}
    seen = {
        key: rest
        for key, *rest in database.groups(
            "messages",
            "session_id",
            largest=["id", "timestamp"],
            sizes=["content", "tool_calls", "reasoning"],
            sums=["active", "compacted"],
        )
        if isinstance(key, str)
    }
    found: dict[str, SessionRow] = {}
    columns = [each for each in database.columns(TABLE) if each != PROMPT]
    for values in database.rows(TABLE, columns, order=["started_at", "id"]):
        facts = held(dict(zip(columns, values, strict=True)))
        id = facts.pop("id", None)
        if isinstance(id, str) and id:
            fingerprint = tuple(seen.get(id, ()))
            found[id] = SessionRow(
                id, facts, int(fingerprint[0]) if fingerprint else 0, fingerprint
            )
    return found


def held(facts: Json) -> Json:
    """Return the values that are neither long nor null."""
    return {
        name: value
        for name, value in facts.items()
        if value is not None and not (isinstance(value, str | bytes) and len(value) > LONGEST)
    }


def prompt_of(database: ExternalDatabase, row: SessionRow) -> str | None:
    """Return a session's system prompt; it is long, so it is read separately."""
    if not database.has(TABLE, PROMPT):
        return None
    found = next(database.rows(TABLE, [PROMPT], where=("id", row.id)), None)
    return None if found is None else coerce.name(found[0])


def chains_of(rows: dict[str, SessionRow]) -> list[Chain]:
    """Return the conversations, each after the one it came from; no cycle is followed."""
    next_of = _continuations(rows)
    root_of: dict[str, str] = {}
    held: dict[str, tuple[SessionRow, ...]] = {}
    continued = {row.id for row in next_of.values()}
    # In a cycle of continuations any row can be the root.
    for row in sorted(rows.values(), key=lambda each: each.id in continued):
        if row.id in root_of:
            continue
        chain = tuple(_walk(row, next_of, root_of))
        held[row.id] = chain
        root_of.update((each.id, row.id) for each in chain)
    chains = {root: _chain(chain, rows, root_of) for root, chain in held.items()}
    return list(_parents_first(chains))


def _continuations(rows: dict[str, SessionRow]) -> dict[str, SessionRow]:
    """Return the row in which a row continues: the newest one with messages."""
    children: dict[str, list[SessionRow]] = {}
    for row in rows.values():
        parent = rows.get(row.parent or "")
        if parent is not None and parent is not row and _continues(row, parent):
            children.setdefault(parent.id, []).append(row)
    return {id: max(found, key=_newest) for id, found in children.items()}


def _newest(row: SessionRow) -> tuple[bool, float, str]:
    return row.count > 0, row.began.timestamp() if row.began else 0.0, row.id


def _continues(row: SessionRow, parent: SessionRow) -> bool:
    if row.source != parent.source or parent.end_reason not in _GOES_ON:
        return False
    return parent.ended is None or row.began is None or row.began >= parent.ended


def _walk(
    row: SessionRow, next_of: dict[str, SessionRow], taken: dict[str, str]
) -> Iterator[SessionRow]:
    seen: set[str] = set()
    here: SessionRow | None = row
    while here is not None and here.id not in seen and here.id not in taken:
        seen.add(here.id)
        yield here
        here = next_of.get(here.id)


def _chain(
    chain: tuple[SessionRow, ...], rows: dict[str, SessionRow], root_of: dict[str, str]
) -> Chain:
    first = chain[0]
    parent = rows.get(first.parent or "")
    if parent is None or root_of[parent.id] == first.id:
        return Chain(chain)
    return Chain(chain, root_of[parent.id], _lineage(first, parent))


def _lineage(row: SessionRow, parent: SessionRow) -> Lineage:
    settings = coerce.record(row.settings)
    is_after = parent.ended is not None and row.began is not None and row.began >= parent.ended
    if "_branched_from" in settings or parent.end_reason == "branched":
        return Lineage.FORK
    if is_after and parent.end_reason in _BEGINS_ANEW:
        return Lineage.RESET
    if is_after and parent.end_reason in _GOES_ON and row.source == parent.source:
        return Lineage.FORK
    return Lineage.SUBAGENT


def _parents_first(chains: dict[str, Chain]) -> Iterator[Chain]:
    done: set[str] = set()
    for chain in chains.values():
        line: list[Chain] = []
        here: Chain | None = chain
        while here is not None and here.id not in done:
            done.add(here.id)
            line.append(here)
            here = chains.get(here.parent or "")
        yield from reversed(line)


def last_of(rows: Sequence[SessionRow], name: str) -> Any:
    """Return the latest value of a column in the rows of a conversation."""
    return next((row.facts[name] for row in reversed(rows) if row.facts.get(name)), None)


_HEAD = 256 * 1024
_NAMES = ("id", "source", "started_at")


@dataclass(slots=True)
class SessionExport:
    """The sessions of an export, where each begins, and the lines that are none."""

    rows: dict[str, SessionRow] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)


def is_export(path: Path) -> bool:
    """Whether a file has sessions, and not messages, as lines."""
    head = files.json_head(path, _HEAD)
    if not head.startswith(b"{"):
        return False
    line, newline, _ = head.partition(b"\n")
    if newline:
        first = coerce.parse_record(line)
        return all(name in first for name in _NAMES)
    # A session with its messages may be longer than the beginning that was read.
    return all(f'"{name}"'.encode() in head for name in _NAMES)


def read_export(path: Path) -> SessionExport:
    """Read an export without the messages."""
    found = SessionExport()
    stamp = files.stamp_of(path)
    with files.opened(path) as file:
        for number, line in enumerate(files.json_lines(file), 1):
            data = coerce.record(line.data)
            id = coerce.name(data.get("id"))
            if id is None or "messages" not in data:
                found.faults.append((f"line {number}", line.why or "it is no session"))
                continue
            messages = coerce.items(data.pop("messages"))
            facts = held({n: v for n, v in data.items() if n not in ("id", PROMPT)})
            found.rows[id] = SessionRow(id, facts, len(messages), (len(messages), stamp))
            found.places[id] = line.start
    return found


def exported_prompt(path: Path, place: int) -> str | None:
    """Return a session's system prompt from its line."""
    with files.opened(path) as file:
        line = next(files.json_lines(file, place), None)
    return None if line is None else coerce.name(coerce.record(line.data).get(PROMPT))
