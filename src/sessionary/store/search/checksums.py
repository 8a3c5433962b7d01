"""A checksum on every page of the index file, so that no flipped bit goes unnoticed.

A damaged page of a full-text index mostly reads as «no such word». SQLite's checksum shim makes
it an error; the index is then made again. Where the shim is not there, we go without.
"""

import os
import threading
from array import array
from functools import cache

import apsw

NAME = "cksmvfs"
RESERVED_BYTES = 8
_loading = threading.Lock()


@cache
def shim() -> str | None:
    """The name of the VFS that checks pages, or None where apsw came without it."""
    folder = os.path.join(os.path.dirname(apsw.__file__), "sqlite_extra_binaries")
    found = [
        os.path.join(folder, f"cksumvfs{end}")
        for end in (".so", ".dylib", ".dll")
        if os.path.exists(os.path.join(folder, f"cksumvfs{end}"))
    ]
    return _load(found[0]) if found else None


def reserve(connection: apsw.Connection) -> None:
    """Leave room for a checksum on each page of a database that has none yet."""
    wanted = array("i", [RESERVED_BYTES])
    connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, wanted.buffer_info()[0])


def is_mismatch(error: apsw.Error) -> bool:
    """Whether an error says that a page is not what was written."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA


def _load(path: str) -> str | None:
    with _loading:
        usual = apsw.vfs_names()[0]
        if NAME not in apsw.vfs_names():
            scratch = apsw.Connection(":memory:")
            try:
                scratch.enable_load_extension(True)
                scratch.load_extension(path)
            except apsw.Error:
                return None
            finally:
                scratch.close()
            # The shim made itself the default; the log goes without it.
            apsw.set_default_vfs(usual)
    return NAME
