"""Moving a store's files, with everyone else kept out."""

import os
from contextlib import nullcontext
from pathlib import Path

from sessionary.errors import BadInput, Conflict, StoreUnavailable
from sessionary.store.backup import sync
from sessionary.store.restore import hold_store


def move_home(old: Path, new: Path, *, old_name: str, new_name: str) -> int:
    """Give a home and the files in it another name; return how many files were renamed.

    A move that was cut off can be done again.
    """
    store = old / f"{old_name}.db"
    try:
        with hold_store(str(store)) if store.exists() else nullcontext():
            if old != new:
                _rename_folder(old, new)
            names = [each.name for each in new.iterdir() if each.name.startswith(f"{old_name}.")]
            for name in names:
                (new / name).rename(new / (new_name + name.removeprefix(old_name)))
            sync(str(new))
    except OSError as error:
        raise StoreUnavailable(f"{old} cannot be moved to {new}: {error.strerror}.") from error
    return len(names)


def _rename_folder(old: Path, new: Path) -> None:
    if new.exists() and any(new.iterdir()):
        raise Conflict(f"{new} is there and not empty; nothing was moved. Move what is in it away.")
    if os.path.lexists(new) and not new.is_dir():
        raise BadInput(f"{new} is not a directory; nothing was moved.")
    new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    old.rename(new)
    sync(str(new.parent))
