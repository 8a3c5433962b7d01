"""Sessions of Hermes' web interface: one JSON file each, with a backup if the file became shorter.

The agent's own logs (`session_ID.json`) have the same format, and are read if nothing
else has it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.content import first_time
from sessionary.importers.base.events import Json
from sessionary.importers.hermes.message import IGNORED_ROLES, is_summary, local, words_of
from sessionary.model import codec
from sessionary.model.record import MAX_DRAFT, ProjectFact
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE

FOLDERS = ("webui", "webui-mvp")
_NO_SESSION = re.compile(r"\A(?:_.*|sessions|session_.*|request_.*)\.json\Z")
_HEAD = 16_384
_IN_HEAD = re.compile(rb'"(profile|parent_session_id|session_id)"\s*:\s*"([^"\\]{1,100})"')
_COLOUR = re.compile(r"\A#[0-9a-fA-F]{6}\Z")
_DEFAULT_TITLES = ("Untitled", "New Chat", "New chat")
BACKUP = ".bak"
_LOG = re.compile(r"\Asession_(.+)\.json\Z")
# Fields that repeat the messages.
_COPIES = ("messages", "tool_calls", "context_messages", "tools", "system_prompt")
# Longer fields are left out, which is reported.
MAX_FIELD = 256 * 1024
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


def folders_of(home: Path) -> Iterator[Path]:
    """Yield the state directories of web interfaces at or below a directory."""
    for each in (*(home / name for name in FOLDERS), home):
        if files.is_directory(each / "sessions"):
            yield each


def find(folder: Path) -> Iterator[WebFile]:
    """Yield the session files of a state directory; backups of those that are gone."""
    ends = (".json", f".json{BACKUP}")
    for path in files.walk(folder / "sessions", suffixes=ends, depth=0):
        own = path.with_name(path.name.removesuffix(BACKUP))
        is_alone = path == own or not files.is_file(own)
        if is_alone and not _NO_SESSION.match(own.name):
            yield web_file(path)


def find_logs(sessions: Path) -> Iterator[WebFile]:
    """Yield the agent's own logs in a directory of sessions."""
    for path in files.walk(sessions, suffixes=(".json",), depth=0):
        name = _LOG.match(path.name)
        if name is not None and is_session(path):
            yield replace(web_file(path), id=_head_of(path).get("session_id") or name[1])


def is_session(path: Path) -> bool:
    """Whether a file begins like a web session or a log of the agent's."""
    head = files.json_head(path)
    is_named = head.startswith(b"{") and b'"session_id"' in head
    return is_named and (b'"workspace"' in head or b'"session_start"' in head)


def web_file(path: Path) -> WebFile:
    """Return a session's file, or its backup if the file does not begin like a session."""
    backup = path.with_name(path.name + BACKUP)
    damaged = None
    if not is_session(path) and is_session(backup):
        path, damaged = backup, path
    head = _head_of(path)
    id = path.name.removesuffix(BACKUP).removesuffix(".json")
    return WebFile(id, path, head.get("profile"), head.get("parent_session_id"), damaged)


def named_file(path: Path) -> WebFile:
    """Return a file with any name; the session id is in its content."""
    file = web_file(path)
    return replace(file, id=_head_of(file.path).get("session_id") or file.id)


def _head_of(path: Path) -> dict[str, str]:
    head = files.head(path, _HEAD).partition(b'"messages"')[0]
    return {
        name.decode(): value.decode("utf-8", "replace") for name, value in _IN_HEAD.findall(head)
    }


def read(file: WebFile) -> WebSession:
    """Read a session's file, and its backup if that has more.

    Of a file that is damaged the copy is read, and the session says so.
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
    found = WebSession(data, list(coerce.items(data.get("messages"))), faults=faults)
    _add_pending(found)
    if files.is_file(backup):
        try:
            before = coerce.items(_session_in(backup).get("messages"))
        except BadInput as error:
            faults.append((backup, f"{_reason(error, backup)}; the session itself was read"))
            before = []
        if len(before) > len(found.messages):
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


def anchored(session: WebSession) -> tuple[int, str] | None:
    """Return the index of the message after which the model reads a summary, and the summary.

    It is found by its key, the newest that has it, else by its number among those that people see.
    """
    summary = coerce.name(session.facts.get("compression_anchor_summary"))
    if summary is None:
        return None
    messages = messages_in(session.messages)
    if any(
        is_summary(words) and _one_spaced(summary) in _one_spaced(words)
        for words in map(words_of, messages)
    ):
        # It is in the conversation already.
        return None
    visible = [(n, m) for n, m in enumerate(messages) if _is_visible(m)]
    key = session.facts.get("compression_anchor_message_key")
    if isinstance(key, dict):
        for number, message in reversed(visible):
            if _has_key(message, key):
                return number, summary
    at = session.facts.get("compression_anchor_visible_idx")
    if isinstance(at, bool) or not isinstance(at, int) or at < 0 or not visible:
        return None
    return visible[min(at, len(visible) - 1)][0], summary


def messages_in(given: list[Any]) -> list[Json]:
    """Return the items of a list that are messages of the conversation."""
    found = [each for each in given if isinstance(each, dict) and isinstance(each.get("role"), str)]
    return [each for each in found if each["role"] not in IGNORED_ROLES]


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


def _add_pending(session: WebSession) -> None:
    """Add a message that was sent but not stored."""
    text = coerce.name(session.facts.get("pending_user_message"))
    prompts = [m for m in session.messages if isinstance(m, dict) and m.get("role") == "user"]
    if text is None:
        return
    # The two were written by different code: their white space may differ.
    if prompts and _one_spaced(words_of(prompts[-1])) == _one_spaced(words_of({"content": text})):
        return
    at = session.facts.get("pending_started_at") or session.facts.get("updated_at")
    files_of = session.facts.get("pending_attachments")
    pending = {"role": "user", "content": text, "timestamp": at, "attachments": files_of}
    session.messages.append(pending)


def fields_of(facts: Json, projects: dict[str, ProjectFact]) -> dict[str, Any]:
    """Return the fields of the session."""
    made: dict[str, Any] = {
        "title": _title(facts),
        "model": coerce.name(facts.get("model")),
        "workspace": _workspace(facts),
        "pinned": facts.get("pinned") is True,
        "archived": facts.get("archived") is True,
        "draft": _draft(facts),
        "system_prompt": coerce.name(facts.get("system_prompt")),
        "project": projects.get(coerce.text(facts.get("project_id"))),
    }
    return {name: value for name, value in made.items() if value}


def extra_of(facts: Json) -> Json:
    """Return all fields except the messages."""
    return {
        name: value
        for name, value in facts.items()
        if name not in _COPIES and value is not None and not _is_long(value)
    }


def too_long(facts: Json) -> list[str]:
    """Return the fields that are too long to be stored."""
    return [name for name, each in facts.items() if name not in _COPIES and _is_long(each)]


def _is_long(value: object) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return False
    return len(codec.encode(value)) > MAX_FIELD


def _draft(facts: Json) -> str | None:
    """Return the text that was typed but not sent."""
    given = facts.get("composer_draft")
    text = given.get("text") if isinstance(given, dict) else given
    found = coerce.name(text)
    return None if found is None else found[:MAX_DRAFT]


def projects_of(folder: Path) -> dict[str, ProjectFact]:
    """Return the projects of a web interface by id."""
    found = coerce.records(files.read_json_if_any(folder / "projects.json"))
    return {each["project_id"]: fact for each in found if (fact := _project(each)) is not None}


def _project(given: Json) -> ProjectFact | None:
    name, colour = one_line(coerce.text(given.get("name")))[:MAX_TITLE], given.get("color")
    if not name or coerce.name(given.get("project_id")) is None:
        return None
    is_colour = isinstance(colour, str) and _COLOUR.match(colour)
    return ProjectFact(name, colour if is_colour else None)


def began_at(facts: Json) -> Any:
    """Return when the session was created."""
    return first_time(facts.get("created_at"), facts.get("updated_at"))


def _title(facts: Json) -> str | None:
    title = coerce.name(facts.get("title"))
    return None if title in _DEFAULT_TITLES else title


def _workspace(facts: Json) -> Json | None:
    path = coerce.first_name(facts.get("worktree_path"), facts.get("workspace"))
    if path is None:
        return None
    more = {
        "branch": coerce.name(facts.get("worktree_branch")),
        "repository": coerce.name(facts.get("worktree_repo_root")),
    }
    return {"path": path} | {name: value for name, value in more.items() if value}
