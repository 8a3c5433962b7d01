"""Configuration: a frozen tree. The only reader of the environment and of hansard.toml."""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hansard.errors import BadInput, StoreUnavailable

FILE = "hansard.toml"
DATABASE = "hansard.db"
COMPLETION_VARIABLE = "_HANSARD_COMPLETE"


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """A reset policy as it is written down."""

    mode: str = "none"
    idle: timedelta = timedelta(minutes=1440)
    daily_at: time = time(4)
    notify: bool = True
    notify_exclude: tuple[str, ...] = ("api", "webhook")


_DEFAULT_RESET = ResetSettings()


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a house is told before it opens."""

    home: Path
    database: str
    profile: str = "main"
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    isolate_people_in_groups: bool = True
    isolate_people_in_threads: bool = False
    redact_people: bool = False
    reset: ResetSettings = ResetSettings()
    reset_by_type: Mapping[str, ResetSettings] = field(default_factory=dict)
    reset_by_platform: Mapping[str, ResetSettings] = field(default_factory=dict)


def load(
    *, home: str | None = None, database: str | None = None, profile: str | None = None
) -> Config:
    """Read the configuration: what was given, else the environment, the file, the defaults."""
    folder = Path(home or os.environ.get("HANSARD_HOME") or _default_home())
    table = _Table(_read(folder / FILE), str(folder / FILE))
    url = (
        database
        or os.environ.get("HANSARD_DATABASE")
        or table.text("database")
        or f"sqlite:///{folder / DATABASE}"
    )
    reset = table.table("reset")
    default = _reset(reset, _DEFAULT_RESET)
    by_type = {name: _reset(each, default) for name, each in reset.table("type").tables()}
    by_platform = {name: _reset(each, default) for name, each in reset.table("platform").tables()}
    isolation = table.table("isolation")
    config = Config(
        home=folder,
        database=url,
        profile=profile or os.environ.get("HANSARD_PROFILE") or table.text("profile") or "main",
        zone=_zone(table),
        isolate_people_in_groups=isolation.flag("people_in_groups", default=True),
        isolate_people_in_threads=isolation.flag("people_in_threads", default=False),
        redact_people=table.flag("redact_people", default=False),
        reset=default,
        reset_by_type=by_type,
        reset_by_platform=by_platform,
    )
    for each in (table, isolation, reset):
        each.refuse_unknown()
    return config


def completion_instruction() -> str | None:
    """What a shell asks for when it calls the program to complete a word."""
    return os.environ.get(COMPLETION_VARIABLE)


class _Table:
    """One table of the file; remembers what was asked for, so that a misspelt name is noticed."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._where = where
        self._asked: list[str] = []

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._get(name, default)
        if value is not None and not isinstance(value, str):
            raise self._bad(name, "a text")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._bad(name, "true or false")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self._bad(name, "a number above 0")
        return value

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self._get(name, list(default))
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._bad(name, "a list of texts")
        return tuple(value)

    def table(self, name: str) -> "_Table":
        value = self._get(name, {})
        if not isinstance(value, dict):
            raise self._bad(name, "a table")
        return _Table(value, f"{self._where} [{name}]")

    def tables(self) -> "list[tuple[str, _Table]]":
        return [(name, self.table(name)) for name in self._values]

    def refuse_unknown(self) -> None:
        for name in self._values:
            if name not in self._asked:
                near = importlib.import_module("difflib").get_close_matches(name, self._asked, n=1)
                hint = (
                    f" Did you mean {near[0]!r}?"
                    if near
                    else f" Known here: {', '.join(sorted(self._asked))}."
                )
                raise BadInput(f"{self._where}: there is no setting {name!r}.{hint}")

    def _get(self, name: str, default: Any) -> Any:
        self._asked.append(name)
        return self._values.get(name, default)

    def _bad(self, name: str, wanted: str) -> BadInput:
        return BadInput(f"{self._where}: {name} must be {wanted}, not {self._values[name]!r}.")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} cannot be read: it is not UTF-8 text.") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    tomllib = importlib.import_module("tomllib")
    try:
        return dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} cannot be read: {error}.") from error


def _default_home() -> str:
    """The platform's directory for data. What finds it is loaded only when nobody named a home."""
    platformdirs = importlib.import_module("platformdirs")
    return str(platformdirs.user_data_dir("hansard", appauthor=False))


def _zone(table: _Table) -> ZoneInfo:
    name = table.text("zone") or "UTC"
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadInput(f"There is no time zone {name!r}: write one like Europe/Berlin.") from error


def _reset(table: _Table, default: ResetSettings) -> ResetSettings:
    mode = table.text("mode", default.mode) or default.mode
    if mode not in ("none", "idle", "daily", "both"):
        raise BadInput(f"A reset mode is none, idle, daily or both, not {mode!r}.")
    minutes = table.number("idle_minutes", default.idle.total_seconds() / 60)
    settings = ResetSettings(
        mode=mode,
        idle=timedelta(minutes=minutes),
        daily_at=_time(table.text("daily_at") or default.daily_at.isoformat("minutes")),
        notify=table.flag("notify", default=default.notify),
        notify_exclude=table.texts("notify_exclude", default.notify_exclude),
    )
    # The default's own table holds the tables of types and platforms too; its reader checks it last.
    if default is not _DEFAULT_RESET:
        table.refuse_unknown()
    return settings


def _time(text: str) -> time:
    try:
        found = time.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"A time of day is written like 04:00, not {text!r}.") from error
    if found.tzinfo is not None:
        raise BadInput(f"The time of day {text!r} has a zone of its own; set `zone` instead.")
    return found
