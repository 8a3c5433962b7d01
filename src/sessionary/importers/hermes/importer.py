"""Hermes: its database of any version, the gateway's transcripts, the web interface's sessions."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.importers.base import files
from sessionary.importers.base.events import Event, Resume, Skipped, Unit, UserEnvironment
from sessionary.importers.hermes import state, web_sessions
from sessionary.importers.hermes.conversation import HermesConversation
from sessionary.importers.hermes.gateway import INDEX, GatewayIndex
from sessionary.importers.hermes.home import DATABASE, homes_of
from sessionary.importers.hermes.web_sessions import FOLDERS
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite


@dataclass(eq=False)
class Hermes:
    """Reads the records of Hermes Agent and of its web interface."""

    name = "hermes"
    title = "Hermes"

    # The state directory of a home's web interface, if it is elsewhere: both are read as one.
    _web_folders: dict[Path, Path] = field(default_factory=dict)

    def places(self, user: UserEnvironment) -> list[Path]:
        home = user.path("HERMES_HOME", ".hermes")
        given = user.environment.get("HERMES_WEBUI_STATE_DIR")
        if not given:
            return [home]
        folder = Path(given).expanduser()
        if folder in (home, *(home / each for each in FOLDERS)):
            return [home]
        # `find` gets the resolved path.
        self._web_folders[home.resolve()] = folder.resolve()
        return [home] if files.is_directory(home) else [folder]

    def recognises(self, path: Path) -> bool:
        return files.is_file(path) and _is_file_of_hermes(path)

    def accepts(self, path: Path) -> bool:
        """Accept a transcript: nothing in its lines shows which tool wrote them."""
        return path.suffix == ".jsonl" and _has_messages(path)

    def find(self, place: Path) -> Iterator[Unit]:
        homes = homes_of(place, self._web_folders.get(place.resolve()))
        with ExitStack() as opened:
            for home in homes:
                opened.enter_context(home.opened())
            # A web session belongs to the profile whose database has it.
            for home in homes:
                for id in [each for each in homes[0].web if each in home.rows]:
                    home.web.setdefault(id, homes[0].web[id])
                    if home is not homes[0]:
                        del homes[0].web[id]
            for home in homes:
                yield from home.units()

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        if isinstance(unit.hint, str):
            raise BadInput(unit.hint)
        if isinstance(unit.hint, GatewayIndex):
            for key, why in unit.hint.faults:
                yield Skipped(where=key, why=why)
            return
        home, chain = unit.hint
        with home.database() as database:
            yield from HermesConversation(home, chain, database).events()


def _is_file_of_hermes(path: Path) -> bool:
    if path.suffix == ".db" and is_sqlite(path):
        try:
            with ExternalDatabase(path) as database:
                return database.has("sessions", "id", "source", "started_at") and database.has(
                    "messages", "session_id", "role", "content", "tool_call_id"
                )
        except BadInput:
            return False
    head = files.head(path)
    if path.name == INDEX:
        return b'"session_key"' in head
    if path.name.endswith((".json", f".json{web_sessions.BACKUP}")):
        return web_sessions.is_session(path)
    if path.suffix == ".jsonl":
        return state.is_export(path) or (_is_in_home(path) and _has_messages(path))
    return False


def _is_in_home(path: Path) -> bool:
    """Whether a transcript is where the gateway stores them: by its index, or below a database."""
    home = path.parent.parent
    is_beside_index = files.is_file(path.parent / INDEX)
    return is_beside_index or (
        path.parent.name == "sessions" and _is_file_of_hermes(home / DATABASE)
    )


def _has_messages(path: Path) -> bool:
    """Whether the first lines contain plain messages."""
    return any(
        isinstance(each.get("role"), str) and "content" in each and "type" not in each
        for each in files.first_objects(path)
    )


IMPORTER = Hermes()
