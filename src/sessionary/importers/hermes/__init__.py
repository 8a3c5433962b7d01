"""Hermes: its database of any version, the gateway's transcripts, the web interface's sessions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.importers.base import databases, events, files
from sessionary.importers.hermes import sessions
from sessionary.importers.hermes.conversation import HermesConversation
from sessionary.importers.hermes.home import DATABASE, INDEX, GatewayIndex, homes_of


class Hermes(events.Importer):
    """Reads the records of Hermes Agent and of its web interface."""

    name = "hermes"
    title = "Hermes"

    def __init__(self) -> None:
        # The state directory of a home's web interface, if it is elsewhere: both are read as one.
        self._web_folders: dict[Path, Path] = {}

    def places(self, user: events.UserEnvironment) -> list[Path]:
        home = user.path("HERMES_HOME", ".hermes")
        given = user.environment.get("HERMES_WEBUI_STATE_DIR")
        if not given:
            return [home]
        folder = Path(given).expanduser()
        if folder in (home, *(home / each for each in sessions.FOLDERS)):
            return [home]
        # `find` gets the resolved path.
        self._web_folders[home.resolve()] = folder.resolve()
        return [home] if files.is_directory(home) else [folder]

    def recognises(self, path: Path) -> bool:
        if not files.is_file(path):
            return False
        if path.suffix == ".db" and databases.passes(
            path,
            lambda database: (
                database.has("sessions", "id", "source", "started_at")
                and database.has("messages", "session_id", "role", "content", "tool_call_id")
            ),
        ):
            return True
        if path.name == INDEX:
            return b'"session_key"' in files.head(path)
        if path.name.endswith((".json", f".json{sessions.BACKUP}")):
            return sessions.is_web_session(path)
        if path.suffix != ".jsonl":
            return False
        if sessions.is_export(path):
            return True
        # A transcript where the gateway stores them: by its index, or below a database.
        folder = path.parent
        is_in_home = files.is_file(folder / INDEX) or (
            folder.name == "sessions" and self.recognises(folder.parent / DATABASE)
        )
        return is_in_home and _has_messages(path)

    def accepts(self, path: Path) -> bool:
        """Accept every transcript, too: nothing in its lines shows which tool wrote them."""
        return (path.suffix == ".jsonl" and _has_messages(path)) or self.recognises(path)

    def find(self, place: Path) -> Iterator[events.Unit]:
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

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        if isinstance(unit.hint, str):
            raise BadInput(unit.hint)
        if isinstance(unit.hint, GatewayIndex):
            for key, why in unit.hint.faults:
                yield events.Skipped(where=key, why=why)
            return
        home, chain = unit.hint
        with home.database() as database:
            yield from HermesConversation(home, chain, database).read()


def _has_messages(path: Path) -> bool:
    """Whether the first lines contain plain messages."""
    return any(
        isinstance(each.get("role"), str) and "content" in each and "type" not in each
        for each in files.first_objects(path)
    )


IMPORTER = Hermes()
