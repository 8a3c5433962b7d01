"""A store's identity beside its file: a missing, empty or swapped file is refused, not made anew."""

import errno
import json
import os
from pathlib import Path

from sessionary.errors import StoreUnavailable
from sessionary.store import filesystem


def check(path: str, *, there: bool) -> None:
    """Refuse to start on nothing where a store was."""
    known = read(path)
    if known is not None and not there:
        raise StoreUnavailable(
            f"The store at {path} is gone or empty, but it was here ({known}). Nothing was made in its place. "
            f"Bring the file back, run `sessionary restore`, or remove {side_file(path)} to begin anew."
        )


def confirm(path: str, store_id: str) -> None:
    """Refuse a file that was put in the place of another store; remember a new one."""
    known = read(path)
    if known is None:
        write(path, store_id)
    elif known != store_id:
        raise StoreUnavailable(
            f"{path} is another store ({store_id}) than the one that was here ({known}); it was left as it is. "
            f"If that is meant, remove {side_file(path)}."
        )


def side_file(path: str) -> Path:
    """Where the identity is kept."""
    return Path(f"{path}-identity")


def read(path: str) -> str | None:
    """The identity that was last seen at this path."""
    try:
        known = json.loads(side_file(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise StoreUnavailable(
            f"{side_file(path)} cannot be read: {error.strerror}. Nothing was opened."
        ) from error
    store_id = known.get("store_id") if isinstance(known, dict) else None
    return store_id if isinstance(store_id, str) else None


def write(path: str, store_id: str) -> None:
    """Remember who is here. A directory that cannot be written to goes without."""
    target = side_file(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return
        raise StoreUnavailable(f"Cannot write beside {path}: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"store_id": store_id}, file)
        file.flush()
        filesystem.sync(file.fileno())
    os.replace(draft, target)
