"""The configuration. Only this package reads the environment and sessionary.toml."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from sessionary.config.reset import ResetTable
from sessionary.config.setting import MAY_HAVE_PASSWORD, Setting, Zone, find_zone
from sessionary.errors import BadInput, StoreUnavailable

FILE = "sessionary.toml"
DATABASE = "sessionary.db"
# The program's former name. A home of that name is found and moved, never opened in place.
FORMER_NAME = "hansard"
# Read where an engine or a server is built: most commands need neither.
OTHER_TABLES = (
    "agents",
    "personas",
    "channels",
    "access",
    "budget",
    "policy",
    "questions",
    "engine",
    "imports",
    "web",
    "push",
    "proxy",
    "telemetry",
)
COMPLETION_VARIABLE = "_SESSIONARY_COMPLETE"


class IsolationSettings(Struct, frozen=True, kw_only=True):
    """Who shares a conversation."""

    people_in_groups: Annotated[
        bool, Setting("each person in a group has their own conversation")
    ] = True
    people_in_threads: Annotated[
        bool, Setting("each person in a thread has their own; false: they share one")
    ] = False


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The settings that every command reads: those outside any table, `[isolation]` and `[reset]`."""

    # Not in the repr: the URL may contain a password.
    database: Annotated[
        str | None,
        Setting(
            "an SQLite file, or a URL postgresql://…; default: sessionary.db in the home directory",
            example="postgresql://sessionary@localhost/sessionary",
        ),
        MAY_HAVE_PASSWORD,
    ] = None
    profile: Annotated[str, Setting("the namespace of sessions, people and schedules")] = "main"
    zone: Annotated[Zone, Setting('for daily resets and schedules, such as "Europe/Berlin"')] = (
        field(default_factory=lambda: ZoneInfo("UTC"))
    )
    redact_people: Annotated[
        bool,
        Setting("true: the agent sees hashes instead of people's ids, if the platform allows it"),
    ] = False
    agent: Annotated[
        str | None,
        Setting("which of the agents answers; default: the first", example="assistant"),
    ] = None
    isolation: Annotated[IsolationSettings, Setting("who shares a conversation")] = field(
        default_factory=IsolationSettings
    )
    reset: Annotated[ResetTable, Setting("when a conversation starts afresh by itself")] = field(
        default_factory=ResetTable
    )

    def __repr__(self) -> str:
        return f"StoreSettings(profile={self.profile!r}, zone={self.zone!r}, agent={self.agent!r})"


class Config(Struct, frozen=True):
    """The configuration: where the store is, and what the file says.

    `settings` has the database and the profile of the file; `database` and `profile` are those in force.
    """

    home: Path
    # Not in the repr: the URL and the file may contain secrets.
    database: str
    profile: str = "main"
    settings: StoreSettings = field(default_factory=StoreSettings)
    file: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Config(home={self.home!r}, profile={self.profile!r}, settings={self.settings!r})"

    @property
    def path(self) -> str:
        """The path of sessionary.toml, which need not exist."""
        return str(self.home / FILE)

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of daily resets and schedules."""
        return self.settings.zone


def load(
    *, home: str | None = None, database: str | None = None, profile: str | None = None
) -> Config:
    """Read the configuration: arguments override the environment, which overrides the file."""
    folder = Path(home) if home else default_home()
    _refuse_former_home(folder, is_named=bool(home or os.environ.get("SESSIONARY_HOME")))
    values = read_file(folder / FILE)
    settings = StoreSettings()
    if values:
        # Without a file, a command need not load what reads it.
        from sessionary.config.reader import Place, read

        settings = read(StoreSettings, values, Place(str(folder / FILE)), others=OTHER_TABLES)
    return Config(
        home=folder,
        database=database
        or os.environ.get("SESSIONARY_DATABASE")
        or settings.database
        or f"sqlite:///{folder / DATABASE}",
        profile=profile or os.environ.get("SESSIONARY_PROFILE") or settings.profile,
        settings=settings,
        file=values,
    )


def environment() -> Mapping[str, str]:
    """Return the environment: settings may name a variable that has a secret."""
    return os.environ


def user_home() -> Path:
    """Return the user's home directory, where other tools keep their records."""
    return Path.home()


def completion_instruction() -> str | None:
    """Return what a shell asks for when it calls the program to complete a word."""
    return os.environ.get(COMPLETION_VARIABLE)


def is_plain_terminal() -> bool:
    """Whether the terminal shows no styles, or the user wants none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def pager() -> list[str]:
    """Return the command that shows long output; empty if the user wants none."""
    named = os.environ.get("SESSIONARY_PAGER", os.environ.get("PAGER", "less"))
    return [] if named.strip() in ("", "cat") else named.split()


def pager_environment() -> dict[str, str]:
    """Return the environment for the pager: `less` shows colours, and exits if one screen is enough."""
    return {"LESS": "FRX", **os.environ}


def read_file(path: Path) -> Mapping[str, Any]:
    """Return the tables of a TOML file; one that is not there is empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} cannot be read: it is not UTF-8 text.") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    import tomllib  # only needed if there is a file

    try:
        return dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} cannot be read: {error}.") from error
    except (ValueError, RecursionError) as error:
        # The parser raises these for numbers of thousands of digits, and for very deep nesting.
        raise BadInput(
            f"{path} cannot be read: a number is too long, or brackets are nested too deeply."
        ) from error


def default_home() -> Path:
    """Return the directory that SESSIONARY_HOME names, or the platform's directory for user data."""
    named = os.environ.get("SESSIONARY_HOME")
    if named:
        return Path(named)
    if sys.platform == "linux" and "XDG_DATA_HOME" not in os.environ:
        # What platformdirs returns, without loading it: that takes longer than a search.
        return Path.home() / ".local" / "share" / "sessionary"
    import platformdirs

    return Path(platformdirs.user_data_dir("sessionary", appauthor=False))


def former_homes(folder: Path, *, is_named: bool) -> list[Path]:
    """Return the directories that may be a home made under the former name, this one first."""
    if is_named:
        return [folder]
    variable = os.environ.get(f"{FORMER_NAME.upper()}_HOME")
    return [folder, Path(variable) if variable else folder.with_name(FORMER_NAME)]


def is_former_home(folder: Path) -> bool:
    """Whether a directory has a store or a configuration of the former name only."""
    return any(
        (folder / f"{FORMER_NAME}{Path(today).suffix}").exists() and not (folder / today).exists()
        for today in (DATABASE, FILE)
    )


def _refuse_former_home(folder: Path, *, is_named: bool) -> None:
    """Refuse to begin an empty store next to one of the former name."""
    is_new = not (folder / DATABASE).exists() and not (folder / FILE).exists()
    homes = former_homes(folder, is_named=is_named) if is_new else [folder]
    for each in filter(is_former_home, homes):
        target = f" --home {shlex.quote(str(folder))}" if is_named else ""
        raise BadInput(
            f"{each} is a home of {FORMER_NAME.capitalize()}, as this program was called before; nothing was "
            f"changed. Move it with: sessionary move-home{target}"
        )


def zone_named(name: str) -> ZoneInfo:
    """Return a time zone by its name."""
    try:
        return find_zone(name)
    except ValueError as error:
        raise BadInput(f"There is no time zone {name!r}: write one like Europe/Berlin.") from error
