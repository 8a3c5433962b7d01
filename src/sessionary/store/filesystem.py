"""What is under a path: the kind of file system, free space, permissions; and new files, whole or not at all."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sessionary.errors import BadInput, Conflict, NotFound, SessionaryError

# The endings of a database and of the files beside it.
BESIDE = (
    *("", "-wal", "-shm", "-identity", "-queue", "-turn"),
    *("-search", "-search-wal", "-search-shm", "-search-lock"),
)
MOUNTS = Path("/proc/self/mountinfo")
# Here locks and shared memory do not work across machines as SQLite's WAL needs them.
SHARED = (
    *("9p", "afs", "ceph", "cifs", "fuse", "glusterfs", "lustre", "ncpfs", "nfs", "smb"),
    *("vboxsf", "virtiofs", "vmhgfs"),
)


def kind(path: str) -> str | None:
    """The kernel's name for the file system of a path; None where it does not say."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    best = ("", "")
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, right.split()[0])
    return best[1] or None


def is_shared(name: str) -> bool:
    """Whether other machines may write to such a file system, or a program is in between."""
    return name.startswith(SHARED)


def free_bytes(path: str) -> int:
    """The free space on the file system of a directory."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def sync(descriptor: int) -> None:
    """Sync an open file, or the entries of a directory, to the disk itself."""
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, whose fsync stops at the drive's cache
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            # Not supported by this file system, or for a directory: fsync is all there is.
            if error.errno not in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
                raise
        else:
            return
    os.fsync(descriptor)


def mode(path: str) -> int | None:
    """The permission bits of a file, without opening it; None when it is not there."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None


def refuse_to_overwrite(path: Path, *, is_allowed: bool, hint: str = "") -> None:
    """Refuse a path that cannot be written, before any work is done."""
    if path.is_dir():
        raise BadInput(f"{path} is a directory; name a file.")
    if path.exists() and not is_allowed:
        raise Conflict(f"{path} exists already and was not changed. {hint}".rstrip())
    if not path.absolute().parent.is_dir():
        raise NotFound(f"There is no directory {path.absolute().parent}; nothing was written.")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A private draft to fill, which replaces the path when the block ends; a failure leaves no file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        try:
            yield draft
            descriptor = os.open(draft, os.O_RDONLY)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(draft, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft)
            raise
    except OSError as error:
        raise SessionaryError(f"{path} was not written: {error.strerror}.") from error
