"""The program, as a person or a script calls it."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessionary.cli import main


@dataclass(frozen=True)
class Answer:
    """What came back."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The one line on standard error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class Program:
    """`sessionary` with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def database(self) -> Path:
        return self.home / "sessionary.db"

    def __call__(self, *args: str, stdin: bytes = b"") -> Answer:
        """Call it in this process: quick."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        before, hook = sys.stdin, sys.excepthook
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = main(["--home", str(self.home), *args])
        finally:
            sys.stdin, sys.excepthook = before, hook
        return Answer(code, _text(out), _text(err))

    def run(
        self,
        *args: str | bytes,
        stdin: bytes = b"",
        environ: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Call it as a process of its own: real."""
        done = subprocess.run(
            [sys.executable, "-m", "sessionary", *args],
            input=stdin,
            env={**os.environ, "SESSIONARY_HOME": str(self.home), **(environ or {})},
            capture_output=True,
            check=False,
            **more,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def append(self, ref: str, text: str, *more: str) -> dict[str, Any]:
        """Add a message; where it stands."""
        answer = self("sessions", "append", ref, *more, "--json", "--", text)
        assert answer.code == 0, answer.err
        found: dict[str, Any] = answer.json
        return found

    def ids(self, *filters: str) -> list[str]:
        """The ids that a list shows."""
        items = self("sessions", "list", "--json", *filters).json["items"]
        return [item["id"] for item in items]


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


@pytest.fixture
def sessionary(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")
