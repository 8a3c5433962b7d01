"""The name of a process, from which another process on the same machine can tell that it has ended.

A lease of a process that was killed would otherwise have to run out before its work goes on.
"""

import hashlib
import os
import re
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_PID = re.compile("[1-9][0-9]{0,8}")


def process_name() -> str:
    """Return the name of this process: `host/pid`, and on Linux also which machine it is and when the process began."""
    name = f"{os.uname().nodename}/{os.getpid()}"
    machine, began = _machine(), _began(os.getpid())
    return name if machine is None or began is None else f"{name}/{machine}-{began}"


def short_name(name: str) -> str:
    """Return the part of a name that people know: `host/pid`."""
    return "/".join(name.split("/")[:2])


def has_ended(name: str) -> bool:
    """Whether the process of this name has certainly ended; False if it runs or cannot be seen from here."""
    match name.rsplit("/", 2):
        case [host, pid, mark] if host == os.uname().nodename and _PID.fullmatch(pid):
            machine, _, began = mark.partition("-")
            return machine == _machine() and not _runs(int(pid), began)
    return False


@cache
def _machine() -> str | None:
    """Return what differs between machines, between starts of one, and between its containers."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        namespace = os.stat(_PROC / "self/ns/pid").st_ino
    except OSError:
        return None
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:8]


def _runs(pid: int, began: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process of another user, whose files may be hidden
    # The system gives the number of a process that has ended to another one.
    return _began(pid) in (began, None)


def _began(pid: int) -> str | None:
    """Return when a process began, in ticks since the machine's start; None if that cannot be read."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name of the program, in brackets, may contain anything.
    state, *fields = text.rpartition(")")[2].split()
    # One that was killed stays listed until its parent has taken note.
    return "ended" if state in ("Z", "X") else fields[18]
