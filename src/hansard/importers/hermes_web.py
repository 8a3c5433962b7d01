"""Sessions of Hermes' web interface: one JSON file each, a copy beside it where it had shrunk."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hansard.errors import BadInput
from hansard.formats import shape
from hansard.importers import documents, files, times
from hansard.importers.base import Json
from hansard.importers.hermes_message import words_of
from hansard.model.record import ProjectFact
from hansard.model.terminal import one_line
from hansard.model.title import MAX_TITLE

FOLDERS = ("webui", "webui-mvp")
_NO_SESSION = re.compile(r"\A(?:_.*|sessions|session_.*|request_.*)\.json\Z")
_HEAD = 16_384
_IN_HEAD = re.compile(rb'"(profile|parent_session_id)"\s*:\s*"([^"\\]{1,100})"')
_COLOUR = re.compile(r"\A#[0-9a-fA-F]{6}\Z")
_DEFAULT_TITLES = ("Untitled", "New Chat", "New chat")
_KEPT = (
    "personality",
    "model_provider",
    "enabled_toolsets",
    "source_tag",
    "source_label",
    "raw_source",
    "session_source",
    "gateway_routing",
    "context_length",
    "composer_draft",
    "compression_anchor_summary",
)


@dataclass(slots=True)
class WebFile:
    """A session's file, and what its beginning tells of it."""

    id: str
    path: Path
    profile: str | None = None
    parent: str | None = None

    @property
    def backup(self) -> Path:
        """The copy that was kept when the file shrank."""
        return self.path.with_name(self.path.name + ".bak")


@dataclass(slots=True)
class WebSession:
    """What a session's file says."""

    facts: Json
    messages: list[Any]
    # The messages of the copy beside it, if they are more.
    before: list[Any] = field(default_factory=list)


def folders_of(home: Path) -> Iterator[Path]:
    """Where a web interface may keep its state below a directory: there, or in one of its own."""
    for each in (*(home / name for name in FOLDERS), home):
        if files.is_directory(each / "sessions"):
            yield each


def find(folder: Path) -> Iterator[WebFile]:
    """The session files of a web interface's state directory."""
    for path in files.walk(folder / "sessions", suffixes=(".json",), depth=0):
        if not _NO_SESSION.match(path.name):
            yield web_file(path)


def web_file(path: Path) -> WebFile:
    """One file, by its name and its beginning."""
    told = files.head(path, _HEAD).partition(b'"messages"')[0]
    head = dict(_IN_HEAD.findall(told))
    profile, parent = (head.get(n) for n in (b"profile", b"parent_session_id"))
    return WebFile(
        path.name.removesuffix(".json"),
        path,
        None if profile is None else profile.decode("utf-8", "replace"),
        None if parent is None else parent.decode("utf-8", "replace"),
    )


def read(file: WebFile) -> WebSession:
    """What a session's file says, and the copy beside it where that says more."""
    data = documents.read(file.path)
    if not isinstance(data, dict) or "messages" not in data:
        raise BadInput(f"{file.path} is no session of the web interface.")
    found = WebSession(data, list(shape.items(data.get("messages"))))
    _add_pending(found)
    if files.is_file(file.backup):
        before = shape.record(documents.read(file.backup)).get("messages")
        if len(shape.items(before)) > len(found.messages):
            found.before = shape.items(before)
    return found


def _add_pending(session: WebSession) -> None:
    """A message that was sent and never taken down."""
    text = shape.name(session.facts.get("pending_user_message"))
    asked = [m for m in session.messages if isinstance(m, dict) and m.get("role") == "user"]
    if text is None or (asked and words_of(asked[-1]) == text.strip()):
        return
    at = session.facts.get("pending_started_at") or session.facts.get("updated_at")
    files_of = session.facts.get("pending_attachments")
    pending = {"role": "user", "content": text, "timestamp": at, "attachments": files_of}
    session.messages.append(pending)


def fields_of(facts: Json, projects: dict[str, ProjectFact]) -> dict[str, Any]:
    """What the file knows of its session."""
    made: dict[str, Any] = {
        "title": _title(facts),
        "model": shape.name(facts.get("model")),
        "workspace": _workspace(facts),
        "pinned": facts.get("pinned") is True,
        "archived": facts.get("archived") is True,
        "project": projects.get(shape.words(facts.get("project_id"))),
    }
    return {name: value for name, value in made.items() if value}


def kept_of(facts: Json) -> Json:
    """What has no place here."""
    return {name: facts[name] for name in _KEPT if facts.get(name)}


def projects_of(folder: Path) -> dict[str, ProjectFact]:
    """The projects of a web interface, by their names there."""
    found = shape.records(documents.read_if_any(folder / "projects.json"))
    return {each["project_id"]: fact for each in found if (fact := _project(each)) is not None}


def _project(given: Json) -> ProjectFact | None:
    name, colour = one_line(shape.words(given.get("name")))[:MAX_TITLE], given.get("color")
    if not name or shape.name(given.get("project_id")) is None:
        return None
    is_colour = isinstance(colour, str) and _COLOUR.match(colour)
    return ProjectFact(name, colour if is_colour else None)


def began_at(facts: Json) -> Any:
    """When the session was made."""
    return times.first(facts.get("created_at"), facts.get("updated_at"))


def _title(facts: Json) -> str | None:
    title = shape.name(facts.get("title"))
    return None if title in _DEFAULT_TITLES else title


def _workspace(facts: Json) -> Json | None:
    path = shape.name(facts.get("worktree_path")) or shape.name(facts.get("workspace"))
    if path is None:
        return None
    more = {
        "branch": shape.name(facts.get("worktree_branch")),
        "repository": shape.name(facts.get("worktree_repo_root")),
    }
    return {"path": path} | {name: value for name, value in more.items() if value}
