"""The machine that was measured on, in words: without it a figure means nothing."""

import os
import platform
from datetime import datetime
from pathlib import Path

import apsw

import sessionary


def described(now: datetime) -> dict[str, str]:
    """What a reader has to know, each by its name."""
    return {
        "date": f"{now:%Y-%m-%d %H:%M} UTC",
        "cores": str(os.cpu_count()),
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "Sessionary": sessionary.__version__,
    }


def load() -> float:
    """How many processes wanted a core during the last minute, ours among them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _memory() -> str:
    found = _first("/proc/meminfo", "MemTotal")
    return f"{int(found.split()[0]) / 2**20:.0f} GiB" if found else "unknown"


def _first(path: str, name: str) -> str:
    """A value from a file of the kernel; nothing on other systems."""
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    values = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in values if key.strip() == name), "")
