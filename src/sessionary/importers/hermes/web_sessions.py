"""Sessions of Hermes' web interface: one JSON file each, a copy beside it where it had shrunk.

The agent's own logs (`session_ID.json`) hold a session in the same way, and are read where nothing
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
from sessionary.importers.hermes.message import NOT_SAID, is_summary, local, words_of
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
# What is told in the log, or is a copy of it for the model.
_COPIES = ("messages", "tool_calls", "context_messages", "tools", "system_prompt")
# A field that is longer is left out, and said to be.
MAX_FIELD = 256 * 1024
# So much of a message stands in the key that finds it again.
_KEYED = 160


@dataclass(slots=True)
class WebFile:
    """A session's file, and what its beginning tells of it."""

    id: str
    path: Path
    profile: str | None = None
    parent: str | None = None
    # The session's own file, when it is damaged and its copy is read in its place.
    damaged: Path | None = None

    @property
    def backup(self) -> Path:
        """The copy that was kept when the file shrank."""
        return self.path.with_name(self.path.name + BACKUP)


@dataclass(slots=True)
class WebSession:
    """What a session's file says."""

    facts: Json
    messages: list[Any]
    # The messages of the copy beside it, if they are more.
    before: list[Any] = field(default_factory=list)
    # What could not be read: the file, and why.
    faults: list[tuple[Path, str]] = field(default_factory=list)


def folders_of(home: Path) -> Iterator[Path]:
    """Where a web interface may keep its state below a directory: there, or in one of its own."""
    for each in (*(home / name for name in FOLDERS), home):
        if files.is_directory(each / "sessions"):
            yield each


def find(folder: Path) -> Iterator[WebFile]:
    """The session files of a web interface's state directory; of one that is gone its copy."""
    ends = (".json", f".json{BACKUP}")
    for path in files.walk(folder / "sessions", suffixes=ends, depth=0):
        own = path.with_name(path.name.removesuffix(BACKUP))
        is_alone = path == own or not files.is_file(own)
        if is_alone and not _NO_SESSION.match(own.name):
            yield web_file(path)


def find_logs(sessions: Path) -> Iterator[WebFile]:
    """The agent's own logs in a directory of sessions."""
    for path in files.walk(sessions, suffixes=(".json",), depth=0):
        name = _LOG.match(path.name)
        if name is not None and is_session(path):
            yield replace(web_file(path), id=_head_of(path).get("session_id") or name[1])


def is_session(path: Path) -> bool:
    """Whether a file begins as a session of the web interface does, or a log of the agent's."""
    head = files.head(path).lstrip(b"\xef\xbb\xbf \t\r\n")
    is_named = head.startswith(b"{") and b'"session_id"' in head
    return is_named and (b'"workspace"' in head or b'"session_start"' in head)


def web_file(path: Path) -> WebFile:
    """One file, by its name and its beginning; its copy, if it has no beginning of a session."""
    backup = path.with_name(path.name + BACKUP)
    damaged = None
    if not is_session(path) and is_session(backup):
        path, damaged = backup, path
    head = _head_of(path)
    id = path.name.removesuffix(BACKUP).removesuffix(".json")
    return WebFile(id, path, head.get("profile"), head.get("parent_session_id"), damaged)


def named_file(path: Path) -> WebFile:
    """A file that may have any name: what it says of its session counts."""
    file = web_file(path)
    return replace(file, id=_head_of(file.path).get("session_id") or file.id)


def _head_of(path: Path) -> dict[str, str]:
    told = files.head(path, _HEAD).partition(b'"messages"')[0]
    return {
        name.decode(): value.decode("utf-8", "replace") for name, value in _IN_HEAD.findall(told)
    }


def read(file: WebFile) -> WebSession:
    """What a session's file says, and the copy beside it where that says more.

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
    """What is wrong, without the name of the file."""
    return str(error).removeprefix(f"{path} ").removesuffix("; it was left alone.").rstrip(".")


def anchored(session: WebSession) -> tuple[int, str] | None:
    """The message after which the model read a summary, among those that are messages, and the summary.

    It is found by its key, the newest that has it, else by its number among those that people see.
    """
    summary = coerce.name(session.facts.get("compression_anchor_summary"))
    if summary is None:
        return None
    said = messages_in(session.messages)
    if any(
        is_summary(words) and _one_spaced(summary) in _one_spaced(words)
        for words in map(words_of, said)
    ):
        # It stands in the conversation already.
        return None
    shown = [(n, m) for n, m in enumerate(said) if _is_shown(m)]
    key = session.facts.get("compression_anchor_message_key")
    if isinstance(key, dict):
        for number, message in reversed(shown):
            if _has_key(message, key):
                return number, summary
    at = session.facts.get("compression_anchor_visible_idx")
    if isinstance(at, bool) or not isinstance(at, int) or at < 0 or not shown:
        return None
    return shown[min(at, len(shown) - 1)][0], summary


def messages_in(given: list[Any]) -> list[Json]:
    """Those items of a list that are messages, and said in the conversation."""
    found = [each for each in given if isinstance(each, dict) and isinstance(each.get("role"), str)]
    return [each for each in found if each["role"] not in NOT_SAID]


def _is_shown(message: Json) -> bool:
    if message["role"] == "tool":
        return False
    is_working = message["role"] == "assistant" and bool(
        message.get("tool_calls") or message.get("reasoning")
    )
    return is_working or bool(words_of(message)) or bool(message.get("attachments"))


def _has_key(message: Json, key: Json) -> bool:
    if key.get("role") != message["role"]:
        return False
    at, told = message.get("_ts") or message.get("timestamp"), key.get("ts")
    if at is not None and told is not None and at != told:
        return False
    words = _one_spaced(words_of(message))[:_KEYED]
    return words == _one_spaced(coerce.text(key.get("text")))[:_KEYED]


def _one_spaced(text: str) -> str:
    return " ".join(text.split())


def _add_pending(session: WebSession) -> None:
    """A message that was sent and never taken down."""
    text = coerce.name(session.facts.get("pending_user_message"))
    asked = [m for m in session.messages if isinstance(m, dict) and m.get("role") == "user"]
    if text is None:
        return
    # The two were written at different places: their white space may differ.
    if asked and _one_spaced(words_of(asked[-1])) == _one_spaced(words_of({"content": text})):
        return
    at = session.facts.get("pending_started_at") or session.facts.get("updated_at")
    files_of = session.facts.get("pending_attachments")
    pending = {"role": "user", "content": text, "timestamp": at, "attachments": files_of}
    session.messages.append(pending)


def fields_of(facts: Json, projects: dict[str, ProjectFact]) -> dict[str, Any]:
    """What the file knows of its session."""
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


def kept_of(facts: Json) -> Json:
    """Every field of the file but what was said in it."""
    return {
        name: value
        for name, value in facts.items()
        if name not in _COPIES and value is not None and not _is_long(value)
    }


def too_long(facts: Json) -> list[str]:
    """The fields that are too long to be kept."""
    return [name for name, each in facts.items() if name not in _COPIES and _is_long(each)]


def _is_long(value: object) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return False
    return len(codec.encode(value)) > MAX_FIELD


def _draft(facts: Json) -> str | None:
    """What was typed and not sent."""
    given = facts.get("composer_draft")
    text = given.get("text") if isinstance(given, dict) else given
    found = coerce.name(text)
    return None if found is None else found[:MAX_DRAFT]


def projects_of(folder: Path) -> dict[str, ProjectFact]:
    """The projects of a web interface, by their names there."""
    found = coerce.records(files.read_json_if_any(folder / "projects.json"))
    return {each["project_id"]: fact for each in found if (fact := _project(each)) is not None}


def _project(given: Json) -> ProjectFact | None:
    name, colour = one_line(coerce.text(given.get("name")))[:MAX_TITLE], given.get("color")
    if not name or coerce.name(given.get("project_id")) is None:
        return None
    is_colour = isinstance(colour, str) and _COLOUR.match(colour)
    return ProjectFact(name, colour if is_colour else None)


def began_at(facts: Json) -> Any:
    """When the session was made."""
    return first_time(facts.get("created_at"), facts.get("updated_at"))


def _title(facts: Json) -> str | None:
    title = coerce.name(facts.get("title"))
    return None if title in _DEFAULT_TITLES else title


def _workspace(facts: Json) -> Json | None:
    path = coerce.name(facts.get("worktree_path")) or coerce.name(facts.get("workspace"))
    if path is None:
        return None
    more = {
        "branch": coerce.name(facts.get("worktree_branch")),
        "repository": coerce.name(facts.get("worktree_repo_root")),
    }
    return {"path": path} | {name: value for name, value in more.items() if value}
