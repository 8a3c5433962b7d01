"""The sessions of Hermes: rows of a database of any version, lines of an export, files of the web interface.

The web interface has one JSON file for each session, with a backup if the file became shorter. The
agent's own logs (`session_ID.json`) have the same format, and are read if nothing else has it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import first_time, parents_first, parse_time
from sessionary.importers.base.events import workspace
from sessionary.importers.hermes.messages import IGNORED_ROLES, is_summary, local, words_of
from sessionary.model import codec
from sessionary.model.record import MAX_DRAFT, ProjectFact
from sessionary.model.session import Kind, Lineage
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE
from sessionary.store.sqlite.external_file import ExternalDatabase

TABLE = "sessions"
PROMPT = "system_prompt"
# Longer values are not loaded.
LONGEST = 100_000
# A session that ended so continues in another row.
_GOES_ON = ("compression", "cli_close")
_BEGINS_ANEW = ("session_reset", "new_session", "reset", "idle", "daily")


@dataclass(frozen=True, slots=True, eq=False)
class SessionRow:
    """One row of the table of sessions, with all its columns."""

    id: str
    facts: Json
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
    def is_fork(self) -> bool:
        """Whether a person began it from a message of its parent."""
        return "_branched_from" in coerce.record(self.settings)

    def is_after(self, other: "SessionRow", *, otherwise: bool) -> bool:
        """Whether it began after the end of another; `otherwise` if a time is missing."""
        if other.ended is None or self.began is None:
            return otherwise
        return self.began >= other.ended


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
        """The kind of session: a schedule starts jobs."""
        if self.rows[0].source == "cron" or self.id.startswith("cron_"):
            return Kind.JOB
        return Kind.SUBAGENT if self.lineage is Lineage.SUBAGENT else Kind.IMPORT

    def last(self, name: str) -> Any:
        """Return the latest value of a column."""
        return next((row.facts[name] for row in reversed(self.rows) if row.facts.get(name)), None)


def rows_of(database: ExternalDatabase) -> dict[str, SessionRow]:
    """Return all sessions of a database by id."""
    if not database.has(TABLE, "id"):
        return {}
    groups = database.groups(
        "messages",
        "session_id",
        largest=["id", "timestamp"],
        sizes=["content", "tool_calls", "reasoning"],
        sums=["active", "compacted"],
    )
    seen = {key: tuple(rest) for key, *rest in groups if isinstance(key, str)}
    found: dict[str, SessionRow] = {}
    columns = [each for each in database.columns(TABLE) if each != PROMPT]
    for row in databases.records(database, TABLE, columns, order=["started_at", "id"]):
        facts = _held(row)
        id = facts.pop("id", None)
        if isinstance(id, str) and id:
            found[id] = SessionRow(id, facts, seen.get(id, ()))
    return found


def _held(facts: Json) -> Json:
    """Return the values that are neither long nor null."""
    return {
        name: value
        for name, value in facts.items()
        if value is not None and not (isinstance(value, str | bytes) and len(value) > LONGEST)
    }


def chains_of(rows: dict[str, SessionRow]) -> list[Chain]:
    """Return the conversations, each after the one it came from; no cycle is followed."""
    next_of = _continuations(rows)
    root_of: dict[str, str] = {}
    chained: dict[str, list[SessionRow]] = {}
    continued = {row.id for row in next_of.values()}
    # In a cycle of continuations any row can be the root.
    for root in sorted(rows.values(), key=lambda each: each.id in continued):
        here: SessionRow | None = root
        while here is not None and here.id not in root_of:
            root_of[here.id] = root.id
            chained.setdefault(root.id, []).append(here)
            here = next_of.get(here.id)
    chains: dict[str, Chain] = {}
    for id, chain in chained.items():
        parent = rows.get(chain[0].parent or "")
        if parent is None or root_of[parent.id] == id:
            chains[id] = Chain(tuple(chain))
        else:
            lineage = _lineage(chain[0], parent)
            chains[id] = Chain(tuple(chain), root_of[parent.id], lineage)
    return [chains[id] for id in parents_first({id: each.parent for id, each in chains.items()})]


def _continuations(rows: dict[str, SessionRow]) -> dict[str, SessionRow]:
    """Return the row in which a row continues: the newest one with messages."""
    children: dict[str, list[SessionRow]] = {}
    for row in rows.values():
        parent = rows.get(row.parent or "")
        if parent is None or parent is row or parent.end_reason not in _GOES_ON:
            continue
        if row.is_fork:
            continue
        if row.source == parent.source and row.is_after(parent, otherwise=True):
            children.setdefault(parent.id, []).append(row)

    def newness(row: SessionRow) -> tuple[bool, float, str]:
        has_messages = bool(row.fingerprint and row.fingerprint[0])
        return has_messages, row.began.timestamp() if row.began else 0.0, row.id

    return {id: max(found, key=newness) for id, found in children.items()}


def _lineage(row: SessionRow, parent: SessionRow) -> Lineage:
    is_after = row.is_after(parent, otherwise=False)
    if row.is_fork or parent.end_reason == "branched":
        return Lineage.FORK
    if is_after and parent.end_reason in _BEGINS_ANEW:
        return Lineage.RESET
    if is_after and parent.end_reason in _GOES_ON and row.source == parent.source:
        return Lineage.FORK
    return Lineage.SUBAGENT


# Exports: one session a line

_NAMES = ("id", "source", "started_at")


@dataclass(slots=True)
class SessionExport:
    """The sessions of an export, where each begins, and the lines that are none."""

    rows: dict[str, SessionRow] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)


def is_export(path: Path) -> bool:
    """Whether a file has sessions, and not messages, as lines."""
    head = files.json_head(path, 256 * 1024)
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
    for number, line in enumerate(files.read_json_lines(path), 1):
        data = coerce.record(line.data)
        id = coerce.name(data.get("id"))
        if id is None or "messages" not in data:
            found.faults.append((f"line {number}", line.why or "it is no session"))
            continue
        count = len(coerce.items(data.pop("messages")))
        facts = _held({n: v for n, v in data.items() if n not in ("id", PROMPT)})
        found.rows[id] = SessionRow(id, facts, (count, stamp))
        found.places[id] = line.start
    return found


# The web interface

FOLDERS = ("webui", "webui-mvp")
BACKUP = ".bak"
# Longer fields are left out, which is reported.
MAX_FIELD = 256 * 1024
_NO_SESSION = re.compile(r"\A(?:_.*|sessions|session_.*|request_.*)\.json\Z")
_IN_HEAD = re.compile(rb'"(profile|parent_session_id|session_id)"\s*:\s*"([^"\\]{1,100})"')
_COLOUR = re.compile(r"\A#[0-9a-fA-F]{6}\Z")
_DEFAULT_TITLES = ("Untitled", "New Chat", "New chat")
_LOG = re.compile(r"\Asession_(.+)\.json\Z")
# Fields that repeat the messages.
_COPIES = ("messages", "tool_calls", "context_messages", "tools", "system_prompt")
# How much of a message's text its key has.
_KEYED = 160


@dataclass(slots=True)
class WebFile:
    """A session's file, and what its beginning says about it."""

    id: str
    path: Path
    profile: str | None = None
    parent: str | None = None
    # The session's own file, if it is damaged and its backup is read instead.
    damaged: Path | None = None

    @property
    def backup(self) -> Path:
        """The backup that was made when the file became shorter."""
        return self.path.with_name(self.path.name + BACKUP)


@dataclass(slots=True)
class WebSession:
    """The content of a session's file."""

    facts: Json
    messages: list[Any]
    # The messages of the backup, if it has more.
    before: list[Any] = field(default_factory=list)
    # The files that could not be read, and why.
    faults: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def fields(self) -> Json:
        """All fields except the messages."""
        return {n: v for n, v in self.facts.items() if n not in _COPIES and v is not None}


def find_web_files(folder: Path) -> Iterator[WebFile]:
    """Yield the session files of a state directory; backups of those that are gone."""
    ends = (".json", f".json{BACKUP}")
    for path in files.walk(folder / "sessions", suffixes=ends, depth=0):
        own = path.with_name(path.name.removesuffix(BACKUP))
        is_alone = path == own or not files.is_file(own)
        if is_alone and not _NO_SESSION.match(own.name):
            yield _web_file(path)


def find_logs(folder: Path) -> Iterator[WebFile]:
    """Yield the agent's own logs in a directory of sessions."""
    for path in files.walk(folder, suffixes=(".json",), depth=0):
        name = _LOG.match(path.name)
        if name is not None and is_web_session(path):
            yield replace(_web_file(path), id=_head_of(path).get("session_id") or name[1])


def named_file(path: Path) -> WebFile:
    """Return a file with any name; the session id is in its content."""
    file = _web_file(path)
    return replace(file, id=_head_of(file.path).get("session_id") or file.id)


def is_web_session(path: Path) -> bool:
    """Whether a file begins like a web session or a log of the agent's."""
    head = files.json_head(path)
    is_named = head.startswith(b"{") and b'"session_id"' in head
    return is_named and (b'"workspace"' in head or b'"session_start"' in head)


def _web_file(path: Path) -> WebFile:
    """Return a session's file, or its backup if the file does not begin like a session."""
    backup = path.with_name(path.name + BACKUP)
    damaged = None
    if not is_web_session(path) and is_web_session(backup):
        path, damaged = backup, path
    head = _head_of(path)
    id = path.name.removesuffix(BACKUP).removesuffix(".json")
    return WebFile(id, path, head.get("profile"), head.get("parent_session_id"), damaged)


def _head_of(path: Path) -> dict[str, str]:
    head = files.head(path, 16_384).partition(b'"messages"')[0]
    return {
        name.decode(): value.decode("utf-8", "replace") for name, value in _IN_HEAD.findall(head)
    }


def read_web_session(file: WebFile) -> WebSession:
    """Read a session's file, and its backup if that has more.

    If the file is damaged, the backup is read instead, and the session's faults say so.
    """
    faults: list[tuple[Path, str]] = []
    if file.damaged is not None:
        faults.append((file.damaged, f"it is damaged; its copy {file.path.name} was read instead"))
    path, backup = file.path, file.backup
    try:
        data = _session_in(path)
    except BadInput as error:
        if not files.is_file(backup):
            raise
        data = _session_in(backup)
        faults.append((path, f"{_reason(error, path)}; its copy {backup.name} was read instead"))
        path, backup = backup, backup.with_name(backup.name + BACKUP)
    messages = list(coerce.items(data.get("messages")))
    # A message that was sent but not stored. White space may differ from that of the stored one.
    pending = coerce.name(data.get("pending_user_message"))
    prompts = [each for each in coerce.records(messages) if each.get("role") == "user"]
    last = _one_spaced(words_of(prompts[-1])) if prompts else None
    if pending is not None and last != _one_spaced(words_of({"content": pending})):
        at = data.get("pending_started_at") or data.get("updated_at")
        attached = data.get("pending_attachments")
        added = {"role": "user", "content": pending, "timestamp": at, "attachments": attached}
        messages.append(added)
    found = WebSession(data, messages, faults=faults)
    if files.is_file(backup):
        try:
            before = coerce.items(_session_in(backup).get("messages"))
        except BadInput as error:
            faults.append((backup, f"{_reason(error, backup)}; the session itself was read"))
            before = []
        if len(before) > len(messages):
            found.before = before
    return found


def _session_in(path: Path) -> Json:
    data = files.read_json(path)
    if not isinstance(data, dict) or "messages" not in data:
        raise BadInput(f"{path} is no session of the web interface.")
    for name, other in (("created_at", "session_start"), ("updated_at", "last_updated")):
        at = local(data.get(other))
        if name not in data and at is not None:
            data[name] = at.timestamp()
    return data


def _reason(error: BadInput, path: Path) -> str:
    """Return the reason of an error without the file's name."""
    return str(error).removeprefix(f"{path} ").removesuffix("; it was left alone.").rstrip(".")


def summary_place(session: WebSession) -> tuple[int, str] | None:
    """Return the index of the message after which the model reads a summary, and the summary.

    It is found by its key, the newest that has it, else by its number among those that people see.
    """
    summary = coerce.name(session.facts.get("compression_anchor_summary"))
    if summary is None:
        return None
    found = [each for each in coerce.records(session.messages) if isinstance(each.get("role"), str)]
    messages = [each for each in found if each["role"] not in IGNORED_ROLES]
    if any(
        is_summary(words) and _one_spaced(summary) in _one_spaced(words)
        for words in map(words_of, messages)
    ):
        # It is in the conversation already.
        return None
    visible = [(number, each) for number, each in enumerate(messages) if _is_visible(each)]
    key = session.facts.get("compression_anchor_message_key")
    if isinstance(key, dict):
        for number, message in reversed(visible):
            if _has_key(message, key):
                return number, summary
    at = session.facts.get("compression_anchor_visible_idx")
    if isinstance(at, bool) or not isinstance(at, int) or at < 0 or not visible:
        return None
    return visible[min(at, len(visible) - 1)][0], summary


def _is_visible(message: Json) -> bool:
    if message["role"] == "tool":
        return False
    is_working = message["role"] == "assistant" and bool(
        message.get("tool_calls") or message.get("reasoning")
    )
    return is_working or bool(words_of(message)) or bool(message.get("attachments"))


def _has_key(message: Json, key: Json) -> bool:
    if key.get("role") != message["role"]:
        return False
    at, key_at = message.get("_ts") or message.get("timestamp"), key.get("ts")
    if at is not None and key_at is not None and at != key_at:
        return False
    words = _one_spaced(words_of(message))[:_KEYED]
    return words == _one_spaced(coerce.text(key.get("text")))[:_KEYED]


def _one_spaced(text: str) -> str:
    return " ".join(text.split())


def fields_of(facts: Json, projects: dict[str, ProjectFact]) -> dict[str, Any]:
    """Return the fields of the session."""
    title = coerce.name(facts.get("title"))
    draft = facts.get("composer_draft")
    draft = coerce.text(draft.get("text") if isinstance(draft, dict) else draft)
    branch, repository = facts.get("worktree_branch"), facts.get("worktree_repo_root")
    made: dict[str, Any] = {
        "title": None if title in _DEFAULT_TITLES else title,
        "model": coerce.name(facts.get("model")),
        "workspace": workspace(
            coerce.first_name(facts.get("worktree_path"), facts.get("workspace")),
            branch=branch,
            repository=repository,
        ),
        "pinned": facts.get("pinned") is True,
        "archived": facts.get("archived") is True,
        # A text that was typed but not sent.
        "draft": draft[:MAX_DRAFT] if draft.strip() else None,
        "system_prompt": coerce.name(facts.get("system_prompt")),
        "project": projects.get(coerce.text(facts.get("project_id"))),
    }
    return {name: value for name, value in made.items() if value}


def is_long(value: object) -> bool:
    """Whether a field is too long to be stored."""
    if value is None or isinstance(value, bool | int | float):
        return False
    return len(codec.encode(value)) > MAX_FIELD


def projects_of(folder: Path) -> dict[str, ProjectFact]:
    """Return the projects of a web interface by id."""
    found: dict[str, ProjectFact] = {}
    for each in coerce.records(files.read_json_if_any(folder / "projects.json")):
        name, colour = one_line(coerce.text(each.get("name")))[:MAX_TITLE], each.get("color")
        is_colour = isinstance(colour, str) and _COLOUR.match(colour)
        if name and coerce.name(each.get("project_id")):
            found[each["project_id"]] = ProjectFact(name, colour if is_colour else None)
    return found


def began_at(facts: Json) -> datetime | None:
    """Return when the session was created."""
    return first_time(facts.get("created_at"), facts.get("updated_at"))


def prompt_of(database: ExternalDatabase, chain: Chain) -> str | None:
    """Return the system prompt; newer versions store it in a table of its own, by hash."""
    found = coerce.name(databases.value(database, TABLE, PROMPT, where=("id", chain.rows[-1].id)))
    if found is not None:
        return found
    digest = chain.last("system_prompt_hash")
    columns = database.columns("system_prompts")
    text = next((c for c in ("content", "prompt", "system_prompt", "text") if c in columns), "")
    key = next((c for c in ("hash", "prompt_hash", "id") if c in columns), None)
    if not digest or key is None:
        return None
    return coerce.name(databases.value(database, "system_prompts", text, where=(key, digest)))
