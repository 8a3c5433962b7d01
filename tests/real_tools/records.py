"""Makes records of real tools small enough for the ordinary tests, and brings them back.

Long texts are cut: they are the tools' own instructions, which are not ours to copy and say nothing of a
format. A database is kept as the statements that make it.
"""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from tests.real_tools.tools import Tool

RECORDS = Path(__file__).resolve().parent / "records"
LONGEST = 240
_CUT = 60


def keep(tool: Tool, recorded: Path) -> None:
    """Renew the record of a tool."""
    target = RECORDS / tool.program
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copyfile(recorded / "talk.json", target / "talk.json")
    home = recorded / "home"
    for pattern in tool.kept:
        for path in sorted(home.glob(pattern)):
            if path.is_file():
                _keep_file(path, target / "home" / path.relative_to(home), tool.tables)


def bring_back(name: str, folder: Path) -> Path:
    """The home directory of a record, with its databases, in a folder of the test's own."""
    home = folder / "home"
    shutil.copytree(RECORDS / name / "home", home)
    for path in list(home.rglob("*.sql")):
        with sqlite3.connect(path.with_suffix("")) as base:
            base.executescript(path.read_text(encoding="utf-8"))
        base.close()
        path.unlink()
    return home


def _keep_file(path: Path, target: Path, tables: tuple[str, ...]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".db":
        target.with_name(f"{target.name}.sql").write_text(_statements(path, tables))
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        lines = [
            json.dumps(cut(json.loads(line)), ensure_ascii=False) for line in text.splitlines()
        ]
        text = "".join(f"{line}\n" for line in lines)
    elif path.suffix == ".json":
        text = json.dumps(cut(json.loads(text)), ensure_ascii=False, indent=1) + "\n"
    target.write_text(text, encoding="utf-8")


def cut(value: Any) -> Any:
    """The same with its long texts cut."""
    if isinstance(value, dict):
        return {name: cut(each) for name, each in value.items()}
    if isinstance(value, list):
        return [cut(each) for each in value]
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:_CUT]}… ({len(value)} characters)"
    return value


def _statements(path: Path, tables: tuple[str, ...]) -> str:
    base = sqlite3.connect(path)
    made = []
    for table in tables:
        row = base.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if row is None:
            continue
        made.append(f"{row[0]};")
        for values in base.execute(f'SELECT * FROM "{table}" ORDER BY rowid'):
            literals = ", ".join(_literal(base, value) for value in values)
            made.append(f'INSERT INTO "{table}" VALUES ({literals});')
    base.close()
    return "\n".join(made) + "\n"


def _literal(base: sqlite3.Connection, value: Any) -> str:
    if isinstance(value, str):
        try:
            given = json.loads(value)
        except ValueError:
            given = None
        value = json.dumps(cut(given)) if isinstance(given, dict | list) else cut(value)
    return str(base.execute("SELECT quote(?)", (value,)).fetchone()[0])
