"""Runs one benchmark in a process of its own, and prints its rows as JSON lines."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import (
    append,
    load,
    machine,
    open_store,
    postgres,
    search,
    server_start,
    session_lists,
    start,
    turn,
    turn_engine,
    web,
)
from benchmarks.measure import SCALES, Case, Scale, measure, rows


def _sdk(folder: Path, scale: Scale) -> Iterator[Case]:
    """Loads the SDKs, which the other benchmarks start without."""
    found: Iterator[Case] = importlib.import_module("benchmarks.sdk").cases(folder, scale)
    return found


def _import(folder: Path, scale: Scale) -> Iterator[Case]:
    """Loads the importers and the table of prices, which the others start without."""
    found: Iterator[Case] = importlib.import_module("benchmarks.imports").cases(folder, scale)
    return found


BENCHES: dict[str, Callable[[Path, Scale], Iterator[Case]]] = {
    "append": append.cases,
    "turn": turn.cases,
    "engine": turn_engine.cases,
    "list": session_lists.cases,
    "load": load.cases,
    "open": open_store.cases,
    "postgres": postgres.cases,
    "search": search.cases,
    "web": web.cases,
    "sdk": _sdk,
    "start": start.cases,
    "serve": server_start.cases,
    "import": _import,
}


def main(bench: str, disk: str, scale_name: str, folder: str) -> None:
    """Measure every case of a benchmark in the folder."""
    scale = SCALES[scale_name]
    for case in BENCHES[bench](Path(folder), scale):
        load_before = round(machine.load(), 2)
        for row in rows(bench, disk, case, measure(case, scale)):
            printed = replace(row, load=load_before)
            sys.stdout.write(json.dumps(printed.to_json()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
