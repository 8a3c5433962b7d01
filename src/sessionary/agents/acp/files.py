"""The text files of a workspace: no path leads out of it, whatever it consists of and whatever changes meanwhile."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionary.errors import BadInput, NotAllowed, NotFound

MOST_BYTES = 10 * 1024 * 1024
_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC


class Workspace:
    """A directory whose text files can be read and written."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)

    def find(self, path: str) -> str:
        """Return the real path of a file that may not be there yet; raise `NotAllowed` if it is outside."""
        if "\0" in path or not path:
            raise BadInput("That is no path.")
        root = os.path.realpath(self.folder)
        found = os.path.realpath(os.path.join(root, path))
        if found != root and not found.startswith(root.rstrip(os.sep) + os.sep):
            raise NotAllowed(f"{path} is outside the workspace.")
        return found

    def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """Return a text file, or `limit` of its lines from `line` on, counted from 1."""
        with self._opened(path, os.O_RDONLY | os.O_NONBLOCK, makes_folders=False) as file:
            size = os.fstat(file).st_size
            if size > MOST_BYTES:
                raise BadInput(f"{path} is longer than {MOST_BYTES:,} bytes.")
            with os.fdopen(os.dup(file), "rb") as opened:
                data = opened.read(MOST_BYTES + 1)
        try:
            text = data[:MOST_BYTES].decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is no text file.") from error
        if line is None and limit is None:
            return text
        first = max(0, (line or 1) - 1)
        lines = text.splitlines(keepends=True)[first:]
        return "".join(lines if limit is None else lines[:limit])

    def write(self, path: str, content: str) -> None:
        """Write a text file, and make the folders that it needs."""
        data = content.encode()
        if len(data) > MOST_BYTES:
            raise BadInput(f"The text for {path} is longer than {MOST_BYTES:,} bytes.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        with self._opened(path, flags, makes_folders=True) as file:
            os.ftruncate(file, 0)
            with os.fdopen(os.dup(file), "wb") as opened:
                opened.write(data)

    @contextmanager
    def _opened(self, path: str, flags: int, *, makes_folders: bool) -> Iterator[int]:
        """Open a regular file, folder by folder and through no link: a link put there meanwhile is not followed."""
        found = Path(self.find(path))
        root = Path(os.path.realpath(self.folder))
        if found == root:
            raise BadInput(f"{path} is no file.")
        try:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for name in found.relative_to(root).parts[:-1]:
                    if makes_folders:
                        _make_folder(name, folder)
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW, dir_fd=folder)
                    os.close(folder)
                    folder = inner
                file = os.open(found.name, flags | _NOFOLLOW, 0o666, dir_fd=folder)
            finally:
                os.close(folder)
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {path}.") from error
        except OSError as error:
            raise BadInput(f"{path} cannot be opened: {error.strerror}.") from error
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise BadInput(f"{path} is no file.")
            yield file
        finally:
            os.close(file)


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return
