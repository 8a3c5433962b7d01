"""A few sessions of the demo that show what the workbench can: versions, forks, subagents, files."""

import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sessionary import prices
from sessionary.actions import files
from sessionary.actions.sessions import append, edit, log, revise
from sessionary.clock import Ids, Moment
from sessionary.model.key import SessionKey
from sessionary.model.message import message
from sessionary.model.reset import ResetMode, ResetPolicy
from sessionary.model.session import Kind, Opening
from sessionary.model.source import Source
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

_MODEL = "claude-sonnet-4-5"
_WRITTEN_AT = datetime(2026, 11, 15, tzinfo=UTC)
_DIFF = {
    "path": "reports/weekly.sql",
    "old": "-- of a week\nselect * from runs\nwhere date(at) = current_date - 7\norder by at",
    "new": "-- of a week\nselect id, state, at from runs\nwhere at >= current_date - interval '7 days'\norder by at",
}
_FOUND = (
    "reports/weekly.sql:14:where date(at) = current_date - 7\n"
    "reports/monthly.sql:9:where date(at) > current_date - 31\n"
    "app/jobs.py:203:    rows = query(WEEKLY)"
)
_PARSER = "def parse(path):\n    text = path.read_text()\n    return lex(text)\n"
_WORKERS = (
    ("Read the query plans", "Which queries of the report scan the whole table?",
     "Two of five: `weekly.sql` and `monthly.sql`. Both call `date(at)`, so the index is not used."),
    ("Measure the indexes", "How large are the indexes, and are they used?",
     "`runs_at` has 1.2 GB and was used **0** times since Monday."),
    ("Look for callers", "Who runs the weekly report?",
     "Only `app/jobs.py`, on Mondays at 06:00."),
)  # fmt: skip


class Show:
    """Writes the sessions in one transaction, all within the last hours."""

    def __init__(self, tx: Tx, *, profile: str, ids: Ids, now: datetime) -> None:
        self._tx = tx
        self._profile = profile
        self._ids = ids
        self._at = now - timedelta(hours=3)
        self._now = now
        self.messages = 0

    def write(self, key: SessionKey, chat: Source) -> int:
        """Write all of them; how many there are."""
        slow = self._slow_report()
        workers = self._workers(slow)
        self._answer(slow)
        self._read(slow)
        self._another_way(slow)
        self._imported()
        self._reset_chat(key, chat)
        return 1 + workers + 1 + 1 + 2

    def _slow_report(self) -> str:
        id = self._open("Why the weekly report takes 40 minutes", Source("web"), labels=("report",))
        picture = self._file(chart(), "image/png", "duration.png")
        self._say(id, "user", [_text("It used to take two minutes. See the chart."), picture])
        self._say(id, "assistant", "Could be the network. Shall I look?")
        revise.retract(self._tx, id, profile=self._profile, after=0, at=self._tick(4))
        asked = "It used to take two minutes. See the chart. Find the cause, do not guess."
        self._say(id, "user", [_text(asked), picture])
        thought = {"type": "reasoning", "text": "Three questions that do not need each other."}
        call = _call("plan", "task", {"description": "Find what makes the report slow"})
        self._say(id, "assistant", [thought, call], seconds=6)
        return id

    def _workers(self, parent: str) -> int:
        for title, prompt, answer in _WORKERS:
            opening = Opening(self._profile, Source("web"), title=title, model=_MODEL)
            id = edit.open_for(self._tx, parent, opening, moment=self._moment(1))
            self._say(id, "user", prompt, seconds=0)
            self._say(id, "assistant", answer, seconds=1)
            self._read(id)
        return len(_WORKERS)

    def _answer(self, id: str) -> None:
        self._step(id, ("plan", "task"), None, "Three subagents reported.")
        self._step(id, ("grep", "grep"), {"pattern": r"date\(at\)"}, _FOUND)
        self._step(id, ("edit", "edit_file"), _DIFF, "1 replacement")
        self._step(id, ("try", "bash"), {"command": "make report"}, "make: *** [report] Error 2")
        made = "done in \x1b[32m1m52s\x1b[0m"
        self._step(id, ("again", "bash"), {"command": "make report WEEK=46"}, made)
        self._say(
            id,
            "assistant",
            "The filter calls `date(at)`, so PostgreSQL cannot use the index and reads **61 million** "
            "rows.\n\n| | before | after |\n|---|---|---|\n| rows read | 61 M | 210 k |\n"
            "| time | 40 min | 1 m 52 s |\n\n`monthly.sql` has the same line. Shall I change it too?",
            seconds=20,
        )  # fmt: skip
        head = log.lock_session(self._tx, id, profile=self._profile)
        revise.compact(
            self._tx,
            id,
            "The weekly report was slow because of `date(at)` in its filter; fixed in weekly.sql.",
            profile=self._profile,
            through=head.last_seq - 1,
            at=self._tick(2),
        )
        self._say(id, "user", "Yes, please.", seconds=300)
        self._say(id, "assistant", "Done: the monthly report takes 4 minutes now.", seconds=30)

    def _another_way(self, parent: str) -> None:
        title = "The weekly report with a summary table"
        made = edit.fork(
            self._tx, parent, profile=self._profile, moment=self._moment(60), title=title
        )
        self._say(made.id, "user", "What if we kept a table of daily sums instead?")
        self._say(made.id, "assistant", "Then the report reads 7 rows. It costs one trigger.")
        self._read(made.id)

    def _imported(self) -> None:
        opening = Opening(
            self._profile,
            Source("claude-code"),
            kind=Kind.IMPORT,
            title="Port the parser to streaming",
            model=_MODEL,
            workspace={"cwd": "~/src/parser", "branch": "streaming"},
            labels=("import",),
        )
        id = edit.open_session(self._tx, opening, moment=self._moment(60))
        self._say(id, "user", "Read the file in chunks instead of at once.")
        self._step(id, ("read", "Read"), {"file_path": "parser.py"}, _PARSER)
        self._say(id, "assistant", "Done; a 2 GB file needs 40 MB of memory now.")
        self._read(id)
        edit.seal(self._tx, id, profile=self._profile)

    def _reset_chat(self, key: SessionKey, chat: Source) -> None:
        policy = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(minutes=60))
        old = self._now - timedelta(hours=20)
        for at, role, text in (
            (old, "user", "Remind me to call the plumber."),
            (old + timedelta(seconds=9), "assistant", "I will, tomorrow at nine."),
            (self._now - timedelta(minutes=12), "user", "Is the kitchen tap on his list?"),
            (self._now - timedelta(minutes=11), "assistant", "Yes, with the boiler check."),
        ):
            saying = append.NewMessage(message(role, text), at=at)
            moment = Moment(at, self._ids)
            id = append.append_to_source(
                self._tx, key, chat, saying, policy=policy, moment=moment
            ).session_id
            if role == "user":
                title = "The plumber" if at == old else "The kitchen tap"
                edit.rename(self._tx, id, title, profile=self._profile)
            self.messages += 1

    def _open(self, title: str, source: Source, *, labels: tuple[str, ...] = ()) -> str:
        opening = Opening(self._profile, source, title=title, model=_MODEL, labels=labels)
        return edit.open_session(self._tx, opening, moment=self._moment(60))

    def _say(self, id: str, role: str, said: str | Sequence[Any], *, seconds: float = 8) -> None:
        content = said if isinstance(said, str) else list(said)
        model = _MODEL if role == "assistant" else None
        saying = append.NewMessage(
            message(role, content, model=model),
            at=self._tick(seconds),
            usage=_used() if role == "assistant" else None,
        )
        append.append_to(self._tx, id, saying, profile=self._profile, moment=self._moment(0))
        self.messages += 1

    def _step(self, id: str, call: tuple[str, str], given: Any, output: str) -> None:
        call_id, tool = call
        if given is not None:
            self._say(id, "assistant", [_call(call_id, tool, given)], seconds=3)
        result = {"type": "tool_result", "call_id": call_id, "name": tool, "content": output}
        failed = {"is_error": True} if "***" in output else {}
        self._say(id, "tool", [result | failed], seconds=4)

    def _file(self, data: bytes, media_type: str, name: str) -> dict[str, Any]:
        blob = files.link_blob(self._tx, data)
        about = {"media_type": media_type, "name": name, "size": len(data)}
        return {"type": "attachment", "blob": blob} | about

    def _read(self, id: str) -> None:
        last = log.lock_session(self._tx, id, profile=self._profile).last_seq
        edit.mark_read(self._tx, id, last, profile=self._profile)

    def _tick(self, seconds: float) -> datetime:
        self._at += timedelta(seconds=seconds)
        return self._at

    def _moment(self, seconds: float) -> Moment:
        return Moment(self._tick(seconds), self._ids)


def chart(width: int = 320, height: int = 120) -> bytes:
    """A small picture: bars that grow, as a PNG."""
    bars = [8, 9, 8, 10, 9, 12, 18, 31, 52, 88]
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            bar = bars[x * len(bars) // width] * height // 100
            is_bar = height - y <= bar and x % (width // len(bars)) > 5
            rows.extend((43, 91, 199) if is_bar else (246, 246, 244))
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _used() -> Usage:
    used = Usage(model=_MODEL, input_tokens=2400, output_tokens=160, cache_read_tokens=1800)
    return prices.priced(used, at=_WRITTEN_AT)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(id: str, tool: str, given: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": tool, "arguments": given}
