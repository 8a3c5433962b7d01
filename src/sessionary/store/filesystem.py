"""What lies under a path: the kind of file system, the room that is left, who may read."""

import errno
import fcntl
import os
import stat
from pathlib import Path

# What may stand beside a database: its name and one of these.
BESIDE = (
    *("", "-wal", "-shm", "-identity", "-queue", "-turn"),
    *("-search", "-search-wal", "-search-shm", "-search-lock"),
)
MOUNTS = Path("/proc/self/mountinfo")
# Locks and shared memory across machines are not what SQLite's WAL needs them to be.
SHARED = (
    *("9p", "afs", "ceph", "cifs", "fuse", "glusterfs", "lustre", "ncpfs", "nfs", "smb"),
    *("vboxsf", "virtiofs", "vmhgfs"),
)


def kind(path: str) -> str | None:
    """The kind of file system a path is on, as the kernel calls it; None where it does not say."""
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
    """Whether other machines may write to such a file system, or a program stands in between."""
    return name.startswith(SHARED)


def free_bytes(path: str) -> int:
    """The room left for us on the file system of a directory."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def sync(descriptor: int) -> None:
    """Bring what was written to an open file, or the entries of a directory, to the disk itself."""
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, whose fsync stops at the drive's cache
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            # A file system that does not know it, or a directory: fsync is all there is.
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
