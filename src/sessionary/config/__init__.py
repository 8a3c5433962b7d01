"""The configuration. Only this package reads the environment and sessionary.toml."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sessionary.config import reset as resets
from sessionary.config.reset import ResetSettings
from sessionary.config.table import Table
from sessionary.errors import BadInput, StoreUnavailable

FILE = "sessionary.toml"
DATABASE = "sessionary.db"
# The program's former name. A home of that name is found and moved, never opened in place.
FORMER_NAME = "hansard"
ENGINE_TABLES = (
    "agent",
    "agents",
    "channels",
    "access",
    "budget",
    "engine",
    "imports",
    "web",
    "telemetry",
)
COMPLETION_VARIABLE = "_SESSIONARY_COMPLETE"


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting that a client needs to open the store."""

    home: Path
    # Not in the repr: the URL and the file may contain secrets.
    database: str = field(repr=False)
    profile: str = "main"
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    isolate_people_in_groups: bool = True
    isolate_people_in_threads: bool = False
    redact_people: bool = False
    reset: ResetSettings = resets.DEFAULT
    reset_by_type: Mapping[str, ResetSettings] = field(default_factory=dict)
    reset_by_platform: Mapping[str, ResetSettings] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict, repr=False)


def load(
    *, home: str | None = None, database: str | None = None, profile: str | None = None
) -> Config:
    """Read the configuration: arguments override the environment, which overrides the file."""
    folder = Path(home) if home else default_home()
    _refuse_former_home(folder, is_named=bool(home or os.environ.get("SESSIONARY_HOME")))
    table = Table(read_file(folder / FILE), str(folder / FILE))
    # Read from the file even if overridden: a setting that nobody read is refused below.
    url = _first(
        database,
        os.environ.get("SESSIONARY_DATABASE"),
        table.text("database"),
        default=f"sqlite:///{folder / DATABASE}",
    )
    reset = table.table("reset")
    default = resets.read(reset, resets.DEFAULT)
    by_type = {name: resets.read(each, default) for name, each in reset.table("type").tables()}
    by_platform = {
        name: resets.read(each, default) for name, each in reset.table("platform").tables()
    }
    isolation = table.table("isolation")
    config = Config(
        home=folder,
        database=url,
        profile=_first(
            profile, os.environ.get("SESSIONARY_PROFILE"), table.text("profile"), default="main"
        ),
        zone=zone_named(table.text("zone") or "UTC"),
        isolate_people_in_groups=isolation.flag("people_in_groups", default=True),
        isolate_people_in_threads=isolation.flag("people_in_threads", default=False),
        redact_people=table.flag("redact_people", default=False),
        reset=default,
        reset_by_type=by_type,
        reset_by_platform=by_platform,
        file=table.values,
    )
    # Read where an engine is built: most commands need none.
    table.leave(ENGINE_TABLES)
    for each in (table, isolation, reset):
        each.refuse_unknown()
    return config


def _first(flag: str | None, variable: str | None, in_file: str | None, *, default: str) -> str:
    """Return the setting with the highest precedence: flag, environment, file, default."""
    return flag or variable or in_file or default


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
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadInput(f"There is no time zone {name!r}: write one like Europe/Berlin.") from error
