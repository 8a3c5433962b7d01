"""A folder of backups, each named by its time."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sessionary.errors import StoreUnavailable

# The names that are given here; no other file is ever deleted.
_OURS = re.compile(r"sessionary-[0-9]{8}T[0-9]{6}Z\.db")


@dataclass(frozen=True, slots=True)
class Kept:
    """A backup in a folder."""

    name: str
    bytes: int


def named(folder: Path, now: datetime) -> Path:
    """The file for a backup that is made now."""
    if not folder.is_dir():
        raise StoreUnavailable(f"There is no directory {folder}; nothing was made.")
    return folder / f"sessionary-{now:%Y%m%dT%H%M%SZ}.db"


def listed(folder: Path) -> list[Kept]:
    """The backups of a folder, newest first; one that is not there has none."""
    try:
        found = sorted(folder.iterdir(), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnavailable(
            f"The directory {folder} cannot be read: {error.strerror}."
        ) from error
    return [Kept(path.name, path.stat().st_size) for path in found if _OURS.fullmatch(path.name)]


def delete_older(folder: Path, keep: int) -> list[str]:
    """Delete all but the newest backups; their names sort by time."""
    older = sorted(each.name for each in listed(folder))[:-keep]
    for name in older:
        (folder / name).unlink()
    return older
