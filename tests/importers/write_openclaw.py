"""Writes the state of OpenClaw: a database, archives, and the files of older releases."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import zstandard

from tests.importers.write_pi import PiSession

SCHEMA = """
CREATE TABLE session_nodes(session_key TEXT PRIMARY KEY, current_session_id TEXT, entry_json TEXT,
  label TEXT, display_name TEXT, created_via TEXT, updated_at INTEGER);
CREATE TABLE session_windows(session_id TEXT PRIMARY KEY, session_key TEXT, created_at INTEGER);
CREATE TABLE transcript_events(session_id TEXT, seq INTEGER, event_json TEXT, created_at INTEGER,
  event_zstd BLOB, PRIMARY KEY(session_id, seq));
CREATE TABLE session_transcript_cold_archives(session_id TEXT PRIMARY KEY, archive_name TEXT,
  storage TEXT, archive_blob BLOB);
"""


class State:
    """A state directory with one agent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agent = root / "agents" / "main"
        self.path = self.agent / "agent" / "openclaw-agent.sqlite"
        self.path.parent.mkdir(parents=True)
        (self.agent / "sessions").mkdir()
        self._base = sqlite3.connect(self.path)
        self._base.executescript(SCHEMA)
        self._windows = 0

    def node(self, key: str, current: str, **entry: Any) -> None:
        self._put("session_nodes", key, current, json.dumps(entry), None, None, "channel", 0)

    def window(self, key: str, session: PiSession, *, packed: bool = False) -> None:
        """A session of a conversation, with its events."""
        self._windows += 1
        self._put("session_windows", session.id, key, 1769936400000 + self._windows)
        self.events(session, packed=packed)

    def events(self, session: PiSession, *, since: int = 0, packed: bool = False) -> None:
        for seq, line in enumerate(session.lines[since:], start=since + 1):
            text = json.dumps(line)
            row = (None, 0, zstandard.compress(text.encode())) if packed else (text, 0, None)
            self._put("transcript_events", session.id, seq, *row)

    def archive(self, key: str, session: PiSession, name: str, *, storage: str = "file") -> None:
        """A session that was put away."""
        self._windows += 1
        self._put("session_windows", session.id, key, 1769936400000 + self._windows)
        data = zstandard.compress(session.text().encode())
        if storage == "file":
            path = self.agent / "sessions" / "cold" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        blob = data if storage == "sqlite" else None
        self._put("session_transcript_cold_archives", session.id, name, storage, blob)

    def files(self, index: dict[str, Any], *sessions: PiSession) -> None:
        """Transcripts as older releases kept them."""
        folder = self.agent / "sessions"
        (folder / "sessions.json").write_text(json.dumps(index))
        for session in sessions:
            (folder / f"{session.id}.jsonl").write_text(session.text())

    def _put(self, table: str, *values: Any) -> None:
        marks = ",".join("?" * len(values))
        with self._base:
            self._base.execute(f"INSERT INTO {table} VALUES({marks})", values)

    def close(self) -> None:
        self._base.close()
